// The decision, and the picture as a table.

import { button, className, follow, html, many, numberCell, percent, signed, table } from "./dom.js";
import { MARKS, classList, placeName, verdict } from "./words.js";

const LABELS = 5; // of several labels; more are counted
const ROWS = 12;

const mark = (kind, words = kind) =>
  html("span", { class: `mark ${kind.split(" ")[0]}` }, `${MARKS[kind]} ${words}`);

/** One class in a line; several labels below each other, those of both sides marked. */
function classes(names, other, several) {
  if (!several) return names.length ? className(names[0]) : "none";
  if (!names.length) return "no label";
  const order = other ? [...names].sort((one, two) => other.includes(two) - other.includes(one)) : names;
  const items = order.slice(0, LABELS).map((name) => {
    const shared = other?.includes(name) ? html("span", { class: "mark right" }, "✓ ") : null;
    return html("li", { title: className(name) }, shared, className(name));
  });
  const more = names.length - LABELS;
  if (more > 0) items.push(html("li", { class: "muted" }, `and ${many(more, "more label")}`));
  return html("ul", { class: "labels" }, items);
}

function judged({ predicted, truth }, several) {
  const kind = verdict(predicted, truth);
  if (!several || kind === "right") return mark(kind);
  const found = predicted.filter((name) => truth.includes(name)).length;
  return mark(kind, `${found} of ${many(truth.length, "label")} found, ${predicted.length - found} too many`);
}

/** What was decided, and what the score is made of. */
export function decisionPanel(answer, run, id, { explainClass, followAll }) {
  const { decision, exact, partial, left_out: leftOut } = answer;
  const { predicted, truth } = decision;
  const several = run.multi_label;
  const choices = answer.classes.includes(decision.target) ? answer.classes : [decision.target, ...answer.classes];
  const choice = html(
    "select",
    { id, onchange: (event) => explainClass(Number(event.target.value)) },
    choices.map((each) =>
      html("option", { value: each, selected: each === decision.target }, className(run.classes[each])),
    ),
  );
  const term = (words) => html("span", { class: "term" }, words);
  const rest = Math.abs(decision.rest) > 1e-3 * Math.max(1e-9, Math.abs(decision.score));
  const judgement =
    truth === null
      ? [html("span", { class: "muted" }, "not known")]
      : [classes(truth, several ? predicted : null, several), " ", judged(decision, several)];
  const fact = (name, attributes, ...told) => [html("dt", {}, name), html("dd", attributes, ...told)];
  return [
    html("h3", {}, "Decision"),
    html(
      "dl",
      { class: "facts" },
      fact("Predicted", { class: "predicted" }, classes(predicted, several ? truth : null, several)),
      fact("True", {}, ...judgement),
      fact(
        html("label", { for: id }, "Explained"),
        { class: "explained" },
        choice,
        term(percent(decision.probability)),
      ),
      fact(
        "Score",
        {},
        term(signed(decision.score)),
        " = ",
        term(`${signed(decision.inputs)} inputs`),
        " ",
        term(`${signed(decision.biases)} biases`),
        ...(rest ? [" ", term(`${signed(decision.rest)} ${exact ? "norms, curvature" : "not explained"}`)] : []),
      ),
    ),
    exact ? null : html("p", { class: "note" }, leftOut),
    partial ? button({ onclick: followAll }, "Follow all nodes (takes longer)") : null,
  ].filter(Boolean);
}

/** The nodes with the largest influence, by its size. */
export function nodeTable(answer, { address, visit }) {
  const hops = answer.node !== null;
  const order = answer.nodes
    .map((each, place) => ({ ...each, place }))
    .filter(({ share }) => share !== 0)
    .sort((one, other) => Math.abs(other.share) - Math.abs(one.share));
  if (!order.length) return html("p", { class: "muted" }, "No node has any influence: only the biases decide.");
  const nodeName = (each) => {
    const name = html("span", { title: each.name }, each.name);
    if (!hops || each.place === 0) return name;
    return html("a", { href: address(each), onclick: follow(() => visit(each)) }, name);
  };
  const prediction = (each) => {
    const predicted = each.predicted ?? [];
    const kind = verdict(predicted, each.truth);
    const title = `${classList(predicted, 9)}${kind ? `; ${kind}: ${classList(each.truth, 9)}` : ""}`;
    const attributes = kind && { class: `mark ${kind.split(" ")[0]}`, role: "img", "aria-label": kind };
    const words = predicted.length > 1 ? many(predicted.length, "label") : classList(predicted);
    return html("td", { class: "class", title }, kind ? html("span", attributes, `${MARKS[kind]} `) : null, words);
  };
  const row = (each) =>
    html(
      "tr",
      {},
      html("th", { scope: "row", class: "name" }, nodeName(each)),
      hops ? numberCell(each.hop ?? "–") : null,
      numberCell(percent(each.share), each.share > 0 ? "pro" : "contra"),
      numberCell(signed(each.contribution)),
      hops ? prediction(each) : null,
    );
  const heads = [["Node"], ["Hops", "number"], ["Share", "number"], ["Adds", "number"], ["Predicted", "class"]];
  const list = table(
    {
      class: hops ? "list of-nodes" : "list",
      "aria-label": `Nodes with the largest influence on ${placeName(answer)}`,
    },
    heads.filter(([text]) => hops || !["Hops", "Predicted"].includes(text)),
    order.slice(0, ROWS).map(row),
  );
  const showAll = (event) => {
    list.tBodies[0].append(...order.slice(ROWS).map(row));
    event.target.remove();
  };
  const left = order.length - ROWS;
  const more = left > 0 ? button({ class: "more", onclick: showAll }, `Show ${many(left, "more node")}`) : null;
  return html("div", { class: "wide" }, list, more);
}
