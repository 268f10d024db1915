// One answer in full: picture, decision, probabilities, hops and the table of nodes. The page shows one or two.

import { depthCurve, hopBars, ownPlace, probabilityBars } from "./charts.js";
import { html, many, percent } from "./dom.js";
import { featurePanel } from "./features.js";
import { Graph } from "./graph.js";
import { legend } from "./legend.js";
import { decisionPanel, nodeTable } from "./panels.js";
import { placeTitle, radiusWords, saidAt } from "./words.js";

const SECTIONS = ["decision", "probabilities", "forming", "distances", "influential", "features"];
const FIXED_DEPTH = "has a fixed depth: there is no shorter network inside it to look at.";
let numbers = 0;

export class Pane {
  /** `acts`: visit(node), address(node), explainClass(target), followAll() and choosePlace(place of the slider). */
  constructor(acts) {
    this.acts = acts;
    this.graph = new Graph(acts);
    this.number = numbers += 1;
    this.title = html("h2", { id: `title-${this.number}` });
    this.subtitle = html("p", { class: "muted" });
    this.buttons = html("div", { class: "pane-buttons" });
    this.legend = html("div", { class: "legend" });
    this.caption = html("p");
    this.message = html("div", { class: "message", role: "alert", hidden: true });
    this.sections = Object.fromEntries(SECTIONS.map((name) => [name, html("section", { class: name })]));
    this.element = html(
      "article",
      { class: "pane", "aria-labelledby": this.title.id },
      html("header", { class: "pane-head" }, html("div", {}, this.title, this.subtitle), this.buttons),
      this.message,
      html(
        "figure",
        { class: "picture-box" },
        this.graph.element,
        html("figcaption", {}, this.legend, this.caption),
      ),
      html("div", { class: "side" }, ...Object.values(this.sections)),
    );
  }

  /** `depths`: places of the slider; `longest`: share of the longest bar; `slotOf(class)`: its colour. */
  update(answer, run, { depths, longest, slotOf, compared }) {
    Object.assign(this, { answer, run, depths });
    this.element.classList.remove("failed", "empty");
    this.message.hidden = true;
    this.title.textContent = placeTitle(answer);
    this.subtitle.textContent = [
      compared ? `${run.title} (${run.name})` : null,
      answer.part ? `in the ${answer.part} part` : null,
    ]
      .filter(Boolean)
      .join(", ");
    this.graph.update(answer);
    this.legend.replaceChildren(...legend(answer, run));
    const part = percent(answer.shown_share);
    const shown = `${many(answer.nodes.length, "node")} shown, with ${part} of all influence`;
    this.caption.textContent = `${shown}; answered in ${answer.seconds.toFixed(2)} s.`;
    const { decision, probabilities, forming, distances, influential, features } = this.sections;
    decision.replaceChildren(...decisionPanel(answer, run, `target-${this.number}`, this.acts));
    this.bars = probabilityBars(answer, run.classes, slotOf);
    this.heading = html("h3");
    probabilities.replaceChildren(this.heading, this.bars.element);
    const slides = answer.by_depth.length > 1;
    this.curve = slides
      ? depthCurve(answer, { depths, slotOf, classes: run.classes, choose: this.acts.choosePlace })
      : null;
    forming.hidden = !slides && !compared;
    forming.replaceChildren(
      html("h3", {}, "The prediction forming"),
      this.curve?.element ?? html("p", { class: "muted" }, `${run.title} ${FIXED_DEPTH}`),
    );
    distances.hidden = answer.node === null;
    distances.replaceChildren(
      html("h3", {}, "Influence by distance"),
      hopBars(answer, longest),
      html("p", { class: "muted" }, radiusWords(answer)),
    );
    influential.replaceChildren(html("h3", {}, "Most influential nodes"), nodeTable(answer, this.acts));
    features.hidden = !run.has_features;
    features.replaceChildren(...(run.has_features ? featurePanel(answer) : []));
  }

  /** The slider moved to this place. */
  showDepth(place) {
    const index = ownPlace(this.answer, this.depths, place);
    const last = index === this.answer.by_depth.length - 1;
    this.bars.show(index);
    this.curve?.show(place);
    this.graph.setReach(last ? null : this.answer.reach[index]);
    this.heading.textContent = last
      ? "Probabilities"
      : `Probabilities at depth ${this.answer.by_depth[index].depth}`;
  }

  says(place) {
    return saidAt(this.answer, this.run, ownPlace(this.answer, this.depths, place));
  }

  /** Other colours. */
  repaint() {
    if (!this.answer) return;
    this.graph.paint();
    this.legend.replaceChildren(...legend(this.answer, this.run));
  }

  fail(message, ...ways) {
    this.answer = null;
    this.element.classList.remove("empty");
    this.element.classList.add("failed");
    this.title.textContent = "Nothing to show";
    this.subtitle.textContent = "";
    this.buttons.replaceChildren();
    const words = message.split("`").map((part, i) => (i % 2 ? html("code", {}, part) : part));
    this.message.replaceChildren(html("p", {}, words), html("p", { class: "ways" }, ways));
    this.message.hidden = false;
  }
}
