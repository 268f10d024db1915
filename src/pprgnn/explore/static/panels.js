// The decision, and the picture as a table.

import { className, html, many, percent, signed } from "./dom.js";
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
  const items = order
    .slice(0, LABELS)
    .map((name) =>
      html(
        "li",
        { title: className(name) },
        other?.includes(name) ? html("span", { class: "mark right" }, "✓ ") : null,
        className(name),
      ),
    );
  const more = names.length - LABELS;
  return html(
    "ul",
    { class: "labels" },
    items,
    more > 0 ? html("li", { class: "muted" }, `and ${many(more, "more label")}`) : null,
  );
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
  const term = (value, words = "") => html("span", { class: "term" }, `${signed(value)}${words}`);
  const rest = Math.abs(decision.rest) > 1e-3 * Math.max(1e-9, Math.abs(decision.score));
  const known = truth !== null;
  return [
    html("h3", {}, "Decision"),
    html(
      "dl",
      { class: "facts" },
      html("dt", {}, "Predicted"),
      html("dd", { class: "predicted" }, classes(predicted, several ? truth : null, several)),
      html("dt", {}, "True"),
      html(
        "dd",
        {},
        known
          ? [classes(truth, several ? predicted : null, several), " ", judged(decision, several)]
          : html("span", { class: "muted" }, "not known"),
      ),
      html("dt", {}, html("label", { for: id }, "Explained")),
      html("dd", { class: "explained" }, choice, html("span", { class: "term" }, percent(decision.probability))),
      html("dt", {}, "Score"),
      html(
        "dd",
        {},
        term(decision.score),
        " = ",
        term(decision.inputs, " inputs"),
        " ",
        term(decision.biases, " biases"),
        rest ? [" ", term(decision.rest, exact ? " norms, curvature" : " not explained")] : null,
      ),
    ),
    exact ? null : html("p", { class: "note" }, leftOut),
    partial ? html("button", { type: "button", onclick: followAll }, "Follow all nodes (takes longer)") : null,
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
  const follow = (node) => (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    visit(node);
  };
  const row = (each) => {
    const name = html("span", { title: each.name }, each.name);
    const predicted = each.predicted ?? [];
    const kind = verdict(predicted, each.truth);
    return html(
      "tr",
      {},
      html(
        "th",
        { scope: "row", class: "name" },
        hops && each.place !== 0 ? html("a", { href: address(each), onclick: follow(each) }, name) : name,
      ),
      hops ? html("td", { class: "number" }, each.hop ?? "–") : null,
      html("td", { class: `number ${each.share > 0 ? "pro" : "contra"}` }, percent(each.share)),
      html("td", { class: "number" }, signed(each.contribution)),
      hops
        ? html(
            "td",
            {
              class: "class",
              title: `${classList(predicted, 9)}${kind ? `; ${kind}: ${classList(each.truth, 9)}` : ""}`,
            },
            kind
              ? html(
                  "span",
                  { class: `mark ${kind.split(" ")[0]}`, role: "img", "aria-label": kind },
                  `${MARKS[kind]} `,
                )
              : null,
            predicted.length > 1 ? many(predicted.length, "label") : classList(predicted),
          )
        : null,
    );
  };
  const heads = [
    ["Node", null],
    hops ? ["Hops", "number"] : null,
    ["Share", "number"],
    ["Adds", "number"],
    hops ? ["Predicted", "class"] : null,
  ].filter(Boolean);
  const body = html("tbody", {}, order.slice(0, ROWS).map(row));
  const left = order.length - ROWS;
  const more =
    left <= 0
      ? null
      : html(
          "button",
          {
            type: "button",
            class: "more",
            onclick: (event) => {
              body.append(...order.slice(ROWS).map(row));
              event.target.remove();
            },
          },
          `Show ${many(left, "more node")}`,
        );
  return html(
    "div",
    { class: "wide" },
    html(
      "table",
      {
        class: hops ? "list of-nodes" : "list",
        "aria-label": `Nodes with the largest influence on ${placeName(answer)}`,
      },
      html(
        "thead",
        {},
        html(
          "tr",
          {},
          heads.map(([text, kind]) => html("th", { scope: "col", class: kind }, text)),
        ),
      ),
      body,
    ),
    more,
  );
}
