// The features of a decision. They are asked for by a button, since they take longer than the picture.

import { fetchFeatures } from "./api.js";
import { button, html, numberCell, percent, signed, table } from "./dom.js";

const short = (value) => String(Number(value.toPrecision(4)));

function told(found, ofNode) {
  const added = found.score - found.baseline;
  const left = added ? percent(Math.abs(found.residual / added)) : "nothing";
  const row = (each) =>
    html(
      "tr",
      {},
      html("th", { scope: "row", class: "name", title: each.name }, each.name),
      numberCell(short(each.value)),
      numberCell(signed(each.contribution), each.contribution > 0 ? "pro" : "contra"),
      ofNode ? numberCell(signed(each.own)) : null,
    );
  const heads = [["Feature"], [ofNode ? "Value" : "Mean", "number"], ["Adds", "number"]];
  if (ofNode) heads.push(["Here", "number"]);
  const label = { class: "list", "aria-label": "Features that mattered most" };
  return [
    html("div", { class: "wide" }, table(label, heads, found.features.map(row))),
    html(
      "p",
      { class: "muted" },
      `All features add ${signed(added)} to the score, which is ${signed(found.baseline)} with all of them at 0. `,
      `Their sum leaves ${left} of it unexplained.`,
    ),
  ];
}

/** A button, and in its place what it asked for. */
export function featurePanel(answer) {
  const holder = html("div", { "aria-live": "polite" });
  const ask = async () => {
    asking.disabled = true;
    asking.textContent = "Adding up …";
    try {
      holder.replaceChildren(...told(await fetchFeatures(answer), answer.node !== null));
    } catch (error) {
      if (error.name === "AbortError") return; // another view takes its place
      holder.replaceChildren(html("p", { class: "note" }, error.message));
    }
  };
  const asking = button({ class: "more", onclick: ask }, "Which features decided (takes longer)");
  holder.append(asking);
  return [html("h3", {}, "Features"), holder];
}
