// The picture as a file: what is on the screen, with its title above and its legend below.

import { picture } from "./colours.js";
import { fill, svg } from "./dom.js";
import { legendPicture } from "./legend.js";
import { ownPlace } from "./charts.js";
import { depthWords, placeName } from "./words.js";

const SPACE = 16;

/** The drawing alone: links, targets for fingers and what only the screen needs are left out. */
function still(drawing) {
  const copy = drawing.cloneNode(true);
  copy.querySelectorAll(".hit, .edges-near, .ground").forEach((part) => part.remove());
  for (const link of copy.querySelectorAll("a")) {
    const group = svg("g", {
      transform: link.getAttribute("transform"),
      opacity: link.getAttribute("opacity"),
      class: "node",
      "data-node": link.dataset.node,
    });
    group.append(svg("title", {}, link.getAttribute("aria-label")), ...link.childNodes);
    link.replaceWith(group);
  }
  copy.querySelectorAll("[aria-hidden]").forEach((part) => part.removeAttribute("aria-hidden"));
  copy.removeAttribute("role");
  return copy;
}

/** One SVG of all panes, side by side: {element, width, height}. */
function composed(panes, title) {
  const colours = picture();
  const whole = svg("svg", { xmlns: "http://www.w3.org/2000/svg", "font-family": "system-ui, sans-serif" });
  whole.append(svg("title", {}, title), svg("rect", { width: "100%", height: "100%", fill: colours.ground }));
  let [x, height] = [SPACE, 0];
  for (const { graph, answer, run, words } of panes) {
    const size = graph.size();
    const drawing = still(graph.svg);
    fill(drawing, { x, y: SPACE + 26, width: size.width, height: size.height, overflow: "hidden" });
    const under = legendPicture(answer, run, size.width);
    under.element.setAttribute("transform", `translate(${x},${SPACE + 26 + size.height + 10})`);
    whole.append(
      svg("text", { x, y: SPACE + 12, "font-size": 14, "font-weight": 600, fill: colours.ink }, words),
      drawing,
      under.element,
    );
    x += size.width + SPACE;
    height = Math.max(height, SPACE + 26 + size.height + 10 + under.height + SPACE);
  }
  fill(whole, { width: x, height, viewBox: `0 0 ${x} ${height}` });
  return { element: whole, width: x, height };
}

const text = (element) =>
  `<?xml version="1.0" encoding="UTF-8"?>\n${new XMLSerializer().serializeToString(element)}`;

function save(blob, name) {
  const address = URL.createObjectURL(blob);
  const link = Object.assign(document.createElement("a"), { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

export function saveSvg(panes, title, name) {
  save(new Blob([text(composed(panes, title).element)], { type: "image/svg+xml" }), `${name}.svg`);
}

/** Twice as many pixels as on the screen, for print. */
export async function savePng(panes, title, name, scale = 2) {
  const { element, width, height } = composed(panes, title);
  const address = URL.createObjectURL(new Blob([text(element)], { type: "image/svg+xml" }));
  try {
    const image = new Image();
    image.src = address;
    await image.decode();
    const canvas = Object.assign(document.createElement("canvas"), {
      width: Math.round(width * scale),
      height: Math.round(height * scale),
    });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    const blob = await new Promise((done) => canvas.toBlob(done, "image/png"));
    save(blob, `${name}.png`);
  } finally {
    URL.revokeObjectURL(address);
  }
}

/** What to save: the drawings with a title each, a title of the whole, and the name of the file. */
export function drawings(panes, place) {
  const list = panes.map((pane) => {
    const { graph, answer, run, depths } = pane;
    const depth = depthWords(answer, run, ownPlace(answer, depths, place))
      .split(/[:(]/)[0]
      .trim();
    const under = panes.length > 1 ? [run.title, depth] : [depth];
    return {
      graph,
      answer,
      run,
      words: [`${run.data}, ${placeName(answer)}: ${pane.says(place)}`, ...under].join(", "),
    };
  });
  const names = panes.map(({ answer, run }) => `${run.data}-${answer.node === null ? answer.graph : answer.name}`);
  const name = names.join("-and-").replace(/[^\w.-]+/g, "_");
  return [list, document.title, name.slice(0, 80)];
}
