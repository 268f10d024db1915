// Words in the picture: they keep their size when the picture is zoomed, and never lie on each other.

import { picture } from "./colours.js";
import { many, nodeName, shorten, svg, textWidth } from "./dom.js";

const SIZE = 12;
const HEIGHT = SIZE + 4;
const MOST = 24;
const ANGLES = Array.from({ length: 24 }, (_, i) => Math.ceil(i / 2)).map((step, i) => [
  -Math.PI / 2 + ((i % 2 ? 1 : -1) * step * Math.PI) / 12,
  step,
]);
const width = (text, bold) => textWidth(text, bold ? 600 : 400) + 4;

const overlap = (one, other) =>
  one.left < other.right && one.right > other.left && one.top < other.bottom && one.bottom > other.top;
const box = (x, y, wide, high) => ({ left: x, right: x + wide, top: y, bottom: y + high });
const fits = (place, taken, wide, high) =>
  place.left >= 2 && place.top >= 2 && place.right <= wide - 2 && place.bottom <= high - 2 &&
  !taken.some((other) => overlap(place, other));

/** Draw what fits: rings' names first, then nodes by the size of their share. */
export function drawLabels(
  layer,
  { points, rings, asked },
  transform,
  { width: wide, height: high, buttons },
  reach,
) {
  const shown = points
    .map((point) => {
      const [x, y, r] = [transform.applyX(point.x), transform.applyY(point.y), point.r * transform.k];
      return { point, x, y, r, box: box(x - r, y - r, 2 * r, 2 * r) };
    })
    .filter(({ box: each }) => each.right > 0 && each.left < wide && each.bottom > 0 && each.top < high);
  // Names are for what is in reach; all nodes are in the way.
  const named = shown.filter(({ point }) => reach === null || point.hop === null || point.hop <= reach);
  const taken = [buttons];
  const words = [
    ...ringLabels(rings, shown, transform, taken, wide, high),
    ...nodeLabels(asked, named, shown, taken, wide, high),
  ];
  const colours = picture();
  layer.replaceChildren(
    ...words.map(({ text, x, y, ring, asked, place }) =>
      svg(
        "text",
        {
          class: ring ? "ring-label" : "node-label",
          x: x + 2,
          y: y + SIZE,
          "font-size": SIZE,
          "font-weight": asked ? 600 : 400,
          fill: ring ? colours.muted : colours.ink,
          stroke: colours.ground,
          "stroke-width": 3,
          "stroke-linejoin": "round",
          "paint-order": "stroke",
          "data-place": place,
        },
        text,
      ),
    ),
  );
}

/** A ring's name stands on the ring, near the top, where the fewest nodes are in its way. */
function ringLabels(rings, shown, transform, taken, wide, high) {
  const words = [];
  for (const { hop, radius } of rings) {
    const text = hop === null ? "no path" : many(hop, "hop");
    const size = width(text);
    let best = null;
    for (const [angle, turned] of ANGLES) {
      if (best !== null && best.cost <= turned) break; // no later one is better
      for (const away of [0, HEIGHT, -HEIGHT, 2 * HEIGHT, -2 * HEIGHT]) {
        const far = radius + away / transform.k;
        const x = transform.applyX(far * Math.cos(angle)) - size / 2;
        const y = transform.applyY(far * Math.sin(angle)) - HEIGHT / 2;
        const place = box(x, y, size, HEIGHT);
        if (!fits(place, taken, wide, high)) continue;
        const cost =
          20 * shown.filter((node) => overlap(place, node.box)).length + turned + (12 * Math.abs(away)) / HEIGHT;
        if (best === null || cost < best.cost) best = { cost, text, x, y, ring: true, place };
      }
    }
    if (best === null) continue;
    taken.push(best.place);
    words.push({ ...best, place: undefined });
  }
  return words;
}

function nodeLabels(central, named, shown, taken, wide, high) {
  const words = [];
  const strongest = [...named].sort(
    (one, other) =>
      central * ((other.point.place === 0) - (one.point.place === 0)) ||
      Math.abs(other.point.share) - Math.abs(one.point.share),
  );
  for (const { point, x, y, r } of strongest.slice(0, MOST)) {
    const asked = central && point.place === 0;
    if (!asked && !point.share) continue;
    const text = shorten(asked ? nodeName(point.name) : point.name, 22);
    const size = width(text, asked);
    const around = [
      [x - size / 2, y + r + 1],
      [x - size / 2, y - r - HEIGHT - 1],
      [x + r + 3, y - HEIGHT / 2],
      [x - r - size - 3, y - HEIGHT / 2],
    ];
    const free = around.filter(([left, top]) => fits(box(left, top, size, HEIGHT), taken, wide, high));
    const covers = ([left, top]) =>
      shown.some((node) => node.point !== point && overlap(box(left, top, size, HEIGHT), node.box));
    // The asked one always has its name, on top of others if need be.
    const best = free.find((each) => !covers(each)) ?? (asked ? free[0] : undefined);
    if (!best) continue;
    const [left, top] = best;
    taken.push(box(left, top, size, HEIGHT));
    words.push({ text, x: left, y: top, asked, place: point.place });
  }
  return words;
}
