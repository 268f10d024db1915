// Which node is meant: what a tooltip says about it and where it stands, and which node lies in a direction.

import { html, large, nodeTitle } from "./dom.js";
import { nodeFacts } from "./words.js";

export const DIRECTIONS = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };

/** Beside the node, and inside the picture. */
export function showTip(tip, point, answer, transform, { width, height }) {
  const facts = nodeFacts(point, answer).map((fact) => html("span", {}, large(fact)));
  tip.replaceChildren(html("strong", {}, nodeTitle(point.name)), ...facts);
  tip.hidden = false;
  const [x, y] = transform.apply([point.x, point.y]);
  const away = point.r * transform.k + 8;
  const [wide, high] = [tip.offsetWidth, tip.offsetHeight];
  const left = x + away + wide < width ? x + away : x - away - wide;
  tip.style.left = `${Math.max(4, Math.min(width - wide - 4, left))}px`;
  tip.style.top = `${Math.max(4, Math.min(height - high - 4, y - high / 2))}px`;
}

/** The nearest node within 60 degrees of a direction; one that is joined by an edge counts as half as far. */
export function towards(points, neighbours, current, [right, down]) {
  let [best, cost] = [current, Infinity];
  points.forEach((point, i) => {
    const [x, y] = [point.x - points[current].x, point.y - points[current].y];
    const along = x * right + y * down;
    const away = Math.hypot(x, y);
    if (i === current || along <= 0 || along < away * 0.5) return;
    const total = (2 * away - along) * (neighbours[current].includes(i) ? 0.5 : 1);
    if (total < cost) [best, cost] = [i, total];
  });
  return best;
}
