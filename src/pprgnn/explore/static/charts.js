// Probabilities as bars, influence by hops as bars, and the prediction forming over the depth as lines.

import { className, count, html, many, numberCell, percent, svg, table } from "./dom.js";

const ROWS = 7; // more classes are folded away
const HOP_ROWS = 11;

const bar = (kind, share) => {
  const part = html("span", { class: `bar ${kind}` });
  part.style.width = `${(100 * share).toFixed(2)}%`;
  return part;
};

// ---------------------------------------------------------------------------------------------- probabilities
/** {element, show(index)}: one row per class, at the depth of that place; a tick marks where it ends up. */
export function probabilityBars(answer, classes, slotOf) {
  const final = answer.by_depth.at(-1).probabilities;
  const rows = answer.classes.map((each, i) => {
    const fillPart = bar(`slot-${slotOf(each)}`, final[i]);
    const value = numberCell(percent(final[i]));
    const end = html("span", { class: "end" });
    end.style.left = `${100 * final[i]}%`;
    const name = className(classes[each]);
    const row = html(
      "tr",
      { "aria-current": each === answer.decision.target ? "true" : null },
      html("th", { scope: "row", title: name }, html("span", { class: `swatch slot-${slotOf(each)}` }), name),
      html("td", { class: "track" }, html("span", { class: "rail" }, fillPart, end)),
      value,
    );
    return { row, fillPart, value };
  });
  const bars = (part) =>
    table({ class: "bars", "aria-label": "Probability of each class" }, [], part.map(({ row }) => row));
  const more = rows.length - ROWS;
  const words = many(more, "more class").replace(/classs$/, "classes");
  const folded = more > 0 ? html("details", {}, html("summary", {}, words), bars(rows.slice(ROWS))) : null;
  const element = html("div", {}, bars(rows.slice(0, ROWS)), folded);
  const show = (index) =>
    answer.by_depth[index].probabilities.forEach((value, i) => {
      rows[i].fillPart.style.width = `${(100 * value).toFixed(2)}%`;
      rows[i].value.textContent = percent(value);
    });
  return { element, show };
}

// ------------------------------------------------------------------------------------------------------- hops
/** The longest bar of this answer; two panes share the larger of theirs. */
export const longestHop = (answer) =>
  Math.max(0, answer.unreachable?.share ?? 0, ...foldedHops(answer).map(({ share }) => share));

function foldedHops({ hops }) {
  const named = hops.map((each) => ({ ...each, name: `${each.hop}` }));
  if (hops.length <= HOP_ROWS) return named;
  const rest = named.splice(HOP_ROWS - 1);
  const sum = (key) => rest.reduce((total, each) => total + each[key], 0);
  const name = `${rest[0].hop}–${rest.at(-1).hop}`;
  return [...named, { hop: rest[0].hop, name, share: sum("share"), signed: sum("signed"), nodes: sum("nodes") }];
}

export function hopBars(answer, longest) {
  const rows = foldedHops(answer);
  if (answer.unreachable?.share > 0) rows.push({ name: "no path", signed: 0, ...answer.unreachable, plain: true });
  const body = rows.map(({ name, share, signed = 0, nodes, plain, hop }) => {
    const [pro, against] = plain ? [0, 0] : [(share + signed) / 2, (share - signed) / 2];
    const scale = longest || 1;
    const words = plain ? "" : `${percent(Math.max(0, pro))} for, ${percent(Math.max(0, against))} against`;
    return html(
      "tr",
      { "data-hop": hop },
      html("th", { scope: "row" }, name),
      html(
        "td",
        { class: "track", title: words },
        html(
          "span",
          { class: "rail stack" },
          plain ? bar("none", share / scale) : [bar("for", pro / scale), bar("against", against / scale)],
          html("span", { class: "sr" }, words),
        ),
      ),
      numberCell(percent(share)),
      numberCell(count(nodes), "muted"),
    );
  });
  const heads = [["Hops"], [""], ["Share", "number"], ["Nodes", "number"]];
  return table({ class: "bars hops", "aria-label": "Share of the influence by distance" }, heads, body);
}

// ------------------------------------------------------------------------------------------------------ depths
const MARGIN = { left: 46, right: 14, top: 10, bottom: 36 };
const HEIGHT = 168;
const TICK = { class: "tick", "text-anchor": "middle" };
const label = (x, y, text, more = TICK) => svg("text", { x, y, ...more }, text);

/** {element, show(place)}: lines over the places of the slider; a click chooses the nearest place. */
export function depthCurve(answer, { depths, slotOf, classes, choose }) {
  const picture = svg("svg", { class: "curve", role: "img" });
  const element = html("div", { class: "curve-box" }, picture);
  const target = answer.classes.indexOf(answer.decision.target);
  const values = answer.by_depth.map(({ probabilities }) => probabilities);
  const places = answer.by_depth.map(({ depth }) => depths.indexOf(depth));
  let current = depths.length - 1;
  let wide = 0;
  const x = (place) =>
    MARGIN.left + (place * (wide - MARGIN.left - MARGIN.right)) / Math.max(1, depths.length - 1);
  const y = (value) => HEIGHT - MARGIN.bottom - value * (HEIGHT - MARGIN.bottom - MARGIN.top);
  if (target >= 0) {
    picture.setAttribute(
      "aria-label",
      `Probability of ${className(classes[answer.decision.target])} against depth: ` +
        `${percent(values[0][target])} at depth ${depths[places[0]]}, ` +
        `${percent(values.at(-1)[target])} at the end`,
    );
  }
  function draw() {
    const grid = [0, 0.5, 1].map((value) =>
      svg(
        "g",
        { class: "grid" },
        svg("line", { x1: MARGIN.left, x2: wide - MARGIN.right, y1: y(value), y2: y(value) }),
        label(MARGIN.left - 6, y(value) + 4, `${100 * value} %`, { "text-anchor": "end" }),
      ),
    );
    const step = Math.max(1, Math.ceil((26 * depths.length) / Math.max(1, wide - MARGIN.left - MARGIN.right)));
    const last = depths.length - 1;
    const ticks = depths.map((depth, place) =>
      place === last || (place % step === 0 && last - place >= step)
        ? label(x(place), HEIGHT - MARGIN.bottom + 16, place === last ? "∞" : depth)
        : null,
    );
    const title = label((MARGIN.left + wide - MARGIN.right) / 2, HEIGHT - 4, "depth");
    const lines = answer.classes
      .map((each, i) => {
        const steps = values.map((row, k) => [x(places[k]), y(row[i])]);
        // A run that needs fewer steps than the other one stays where it is.
        if (places.at(-1) < last) steps.push([x(last), steps.at(-1)[1]]);
        return svg("polyline", {
          class: `line slot-${slotOf(each)}${i === target ? " target" : ""}`,
          points: steps.map((point) => point.map((value) => value.toFixed(1)).join(",")).join(" "),
        });
      })
      .reverse();
    const own = ownPlace(answer, depths, current);
    const marker = svg("line", {
      class: "now",
      x1: x(current),
      x2: x(current),
      y1: MARGIN.top - 4,
      y2: HEIGHT - MARGIN.bottom,
    });
    const dots = answer.classes
      .map((each, i) =>
        svg("circle", {
          class: `dot slot-${slotOf(each)}`,
          cx: x(current),
          cy: y(values[own][i]),
          r: i === target ? 4.5 : 3,
        }),
      )
      .reverse();
    picture.setAttribute("width", wide);
    picture.setAttribute("height", HEIGHT);
    picture.replaceChildren(...grid, ...ticks.filter(Boolean), title, marker, ...lines, ...dots);
  }
  picture.addEventListener("click", (event) => {
    const at = event.clientX - picture.getBoundingClientRect().left;
    const place = Math.round(((at - MARGIN.left) / (wide - MARGIN.left - MARGIN.right)) * (depths.length - 1));
    choose(Math.max(0, Math.min(depths.length - 1, place)));
  });
  new ResizeObserver(() => {
    if (!element.clientWidth || element.clientWidth === wide) return;
    wide = element.clientWidth;
    draw();
  }).observe(element);
  const show = (place) => {
    current = place;
    if (wide) draw();
  };
  return { element, show };
}

/** The slider may serve two runs: the last entry of this one that is no deeper than the slider's place. */
export function ownPlace(answer, depths, place) {
  const entries = answer.by_depth;
  if (entries.length === 1 || place >= depths.length - 1) return entries.length - 1;
  let own = 0;
  entries.forEach(({ depth }, i) => {
    if (depth <= depths[place]) own = i;
  });
  return own;
}
