// Where nodes stand. Nothing is drawn at random: the same answer always gives the same picture.

import {
  forceCollide,
  forceLink,
  forceManyBody,
  forceRadial,
  forceSimulation,
  forceX,
  forceY,
} from "./vendor/d3.js";

const GAP = 74; // between rings, in units of the picture
const SMALLEST = 4.5;
const LARGEST = 17;

/** Largest share among all but the asked node: its own one often dwarfs the rest. */
export function largestShare(nodes, asked) {
  const others = (asked ? nodes.slice(1) : nodes).map((node) => Math.abs(node.share));
  return Math.max(0, ...others) || Math.abs(nodes[0]?.share ?? 0);
}

/** {points: [{x, y, r, hop, ...}], rings: [{hop, radius}], radius}: the asked node is at (0, 0). */
export function layout(answer) {
  const asked = answer.node !== null;
  const largest = largestShare(answer.nodes, asked);
  const points = answer.nodes.map((node, place) => ({
    ...node,
    place,
    r: largest
      ? SMALLEST + (LARGEST - SMALLEST) * Math.sqrt(Math.min(1, Math.abs(node.share) / largest))
      : SMALLEST,
  }));
  const links = answer.edges.map(([source, target]) => ({ source, target }));
  return asked ? inRings(points, links) : freely(points, links);
}

function inRings(points, links) {
  const farthest = Math.max(0, ...points.map((point) => point.hop ?? 0));
  // Nodes without a path get a ring of their own, outside all others.
  for (const point of points) point.ring = point.hop ?? farthest + 1;
  const rings = ringRadii(points);
  placeAsTree(points, links, rings);
  points[0].fx = points[0].fy = 0;
  const simulation = forceSimulation(points)
    .force(
      "ring",
      forceRadial((point) => rings[point.ring].radius, 0, 0).strength((point) => (point.ring ? 0.95 : 0)),
    )
    .force(
      "link",
      forceLink(links)
        .distance(GAP * 0.7)
        .strength(0.02),
    )
    .force(
      "collide",
      forceCollide((point) => point.r + 3.5)
        .strength(0.9)
        .iterations(2),
    )
    .stop();
  simulation.tick(points.length > 400 ? 60 : 120);
  return { points, asked: true, rings: rings.slice(1), radius: extent(points, rings.at(-1).radius) };
}

function freely(points, links) {
  const simulation = forceSimulation(points)
    .force("link", forceLink(links).distance(52).strength(0.8))
    .force("charge", forceManyBody().strength(-260).distanceMax(500))
    .force("x", forceX().strength(0.03))
    .force("y", forceY().strength(0.03))
    .stop();
  // Sizes come last: large nodes could not pass each other, and rings would stay twisted.
  simulation.tick(points.length > 400 ? 80 : 260);
  simulation
    .force(
      "collide",
      forceCollide((point) => point.r + 3),
    )
    .alpha(0.3)
    .tick(60);
  const [x, y] = ["x", "y"].map((axis) => {
    const values = points.map((point) => point[axis]);
    return values.length ? (Math.min(...values) + Math.max(...values)) / 2 : 0;
  });
  for (const point of points) {
    point.x -= x;
    point.y -= y;
  }
  return { points, asked: false, rings: [], radius: extent(points, 40) };
}

const extent = (points, least) =>
  Math.max(least, ...points.map((point) => Math.hypot(point.x, point.y) + point.r)) + 14;

/** Rings far enough apart for what stands on them; a crowded one is a band of up to three nodes across. */
function ringRadii(points) {
  const last = Math.max(...points.map((point) => point.ring));
  const needed = Array(last + 1).fill(0);
  for (const point of points) needed[point.ring] += 2 * point.r + 8;
  const rings = [{ hop: 0, radius: 0 }];
  for (let ring = 1; ring <= last; ring += 1) {
    const near = rings[ring - 1].radius + GAP * Math.max(0.35, 0.96 ** Math.max(0, ring - 4));
    const around = needed[ring] / (2 * Math.PI);
    rings.push({
      hop: points.some((point) => point.ring === ring && point.hop === null) ? null : ring,
      radius: Math.max(near, around / 2.2, Math.min(around, near * 1.25)),
    });
  }
  return rings;
}

/** First guess: every node in the sector of the node through which it is reached, sectors by number of leaves. */
function placeAsTree(points, links, rings) {
  const children = points.map(() => []);
  const parent = points.map(() => -1);
  for (const { source, target } of links) {
    const [inner, outer] = points[source].ring < points[target].ring ? [source, target] : [target, source];
    if (points[outer].ring === points[inner].ring + 1 && parent[outer] < 0) parent[outer] = inner;
  }
  const order = points
    .map((point) => point.place)
    .sort((one, other) => points[one].ring - points[other].ring || one - other);
  for (const place of order.slice(1)) children[Math.max(0, parent[place])].push(place);
  const leaves = points.map(() => 0);
  for (const place of [...order].reverse())
    leaves[place] = children[place].reduce((sum, child) => sum + leaves[child], 0) || 1;
  const sector = points.map(() => [-Math.PI / 2, 1.5 * Math.PI]);
  for (const place of order) {
    const [start, end] = sector[place];
    let from = start;
    const middle = (start + end) / 2;
    const radius = rings[points[place].ring].radius;
    points[place].x = radius * Math.cos(middle);
    points[place].y = radius * Math.sin(middle);
    const weights = children[place].map((child) => leaves[child] ** 0.6); // a fan must not push all others aside
    const total = weights.reduce((sum, weight) => sum + weight, 0);
    for (const [i, child] of children[place].entries()) {
      const width = ((end - start) * weights[i]) / total;
      sector[child] = [from, from + width];
      from += width;
    }
  }
}
