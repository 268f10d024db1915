// Keys that work anywhere on the page, except where one types.

import { byId } from "./dom.js";

const ZOOM = 1.35;

export function makeKeys({ transport, graphs, togglePin }) {
  const acts = {
    "/": () => byId("query").focus(),
    "?": () => byId("help").showModal(),
    "[": () => transport.step(-1),
    "]": () => transport.step(1),
    "+": () => graphs().forEach((graph) => graph.zoomBy(ZOOM)),
    "-": () => graphs().forEach((graph) => graph.zoomBy(1 / ZOOM)),
    0: () => graphs().forEach((graph) => graph.fit(true)),
    p: togglePin,
    t: () => byId("theme").click(),
    " ": () => transport.toggle(),
  };
  document.addEventListener("keydown", (event) => {
    const typing = event.target.matches("input:not([type=range]), select") || byId("help").open;
    const own = event.key === " " && event.target.closest("button, a, summary, input"); // there, it presses
    const act = acts[event.key];
    if (!act || typing || own || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  });
}
