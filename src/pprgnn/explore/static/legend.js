// What colours, sizes and shapes mean: beside the picture, and below it in an exported file.

import { influence, picture } from "./colours.js";
import { className, html, shorten, svg, textWidth } from "./dom.js";

const SHARES = [-1, -0.4, -0.1, 0, 0.1, 0.4, 1];
const SIZE = 14;

function swatches() {
  const step = 18;
  return {
    width: SHARES.length * step,
    draw: () =>
      SHARES.map((share, i) =>
        svg("circle", {
          cx: step * (i + 0.5),
          cy: SIZE / 2,
          r: 4 + 2.6 * Math.sqrt(Math.abs(share)),
          fill: influence(share, 1),
          stroke: picture().outline,
          "stroke-width": 1,
        }),
      ),
  };
}

function entries(answer, run) {
  const name = shorten(className(answer.decision.class), 34);
  const mark = (tag, attributes) => ({
    width: SIZE,
    draw: () => [
      svg(tag, { ...attributes, fill: picture().none, stroke: picture().outline, "stroke-width": 1.2 }),
    ],
  });
  const scale = { before: "against", ...swatches(), text: `for ${name}` };
  if (answer.node === null) return [scale];
  return [
    scale,
    {
      ...mark("circle", { cx: SIZE / 2, cy: SIZE / 2, r: 5 }),
      text: run.multi_label ? "shares a predicted label" : "predicted alike",
    },
    {
      ...mark("path", { d: `M${SIZE / 2},1L${SIZE - 1},${SIZE / 2}L${SIZE / 2},${SIZE - 1}L1,${SIZE / 2}Z` }),
      text: run.multi_label ? "shares none" : "otherwise",
    },
  ];
}

export const legend = (answer, run) =>
  entries(answer, run).map(({ before, width, draw, text }) =>
    html(
      "span",
      { class: "legend-item" },
      before,
      svg("svg", { width, height: SIZE, "aria-hidden": "true" }, draw()),
      text,
    ),
  );

/** The same as SVG, in lines no wider than `width`: {element, height}. */
export function legendPicture(answer, run, width) {
  const group = svg("g", { "font-size": 12, "font-family": "system-ui, sans-serif", fill: picture().muted });
  let [x, y] = [0, 0];
  for (const { before, width: drawn, draw, text } of entries(answer, run)) {
    const first = before ? textWidth(before) + 6 : 0;
    const whole = first + drawn + 6 + textWidth(text);
    if (x > 0 && x + whole > width) [x, y] = [0, y + 22];
    if (before) group.append(svg("text", { x, y: y + 12 }, before));
    group.append(
      svg("g", { transform: `translate(${x + first},${y})` }, draw()),
      svg("text", { x: x + first + drawn + 6, y: y + 12 }, text),
    );
    x += whole + 20;
  }
  return { element: group, height: y + 20 };
}
