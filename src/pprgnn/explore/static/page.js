// What surrounds the panes: the head, suggestions, menus, the banner and the help.

import { button, byId, count, follow, html, nodeName, shorten } from "./dom.js";

const PERCENTAGES = /accuracy|f1|auc/i;

const score = (run, part) => {
  const value = run.scores?.[part];
  if (value === undefined || value === null) return null;
  const shown = PERCENTAGES.test(run.metric) ? `${(100 * value).toFixed(1)} %` : value.toPrecision(3);
  return `${part} ${run.metric} ${shown}`;
};

/** "PPRGNN (cora): test accuracy 83.2 %": how runs are told apart. */
export const runName = (run) => (run.name === run.system ? run.title : `${run.title} (${run.name})`);

function showRun(run) {
  const size =
    run.task === "graph" || run.num_graphs > 1
      ? `${count(run.num_graphs)} graphs, ${count(run.num_nodes)} nodes`
      : `${count(run.num_nodes)} nodes, ${count(run.num_edges)} edges`;
  byId("data-name").textContent = run.data;
  const facts = [
    runName(run),
    size,
    score(run, "test") ?? score(run, "val"),
    run.test_chose_the_epoch ? "the test part chose the epoch" : null,
  ];
  byId("run-facts").textContent = facts.filter(Boolean).join(" · ");
  byId("run-facts").title = [...run.layers.map((layer) => `${layer.layer}: ${layer.sentence}`), run.note]
    .filter(Boolean)
    .join(" ");
}

/** Which run and which place the page is about. */
export function showHead(run, view) {
  byId("run").value = run.index;
  showRun(run);
  showGraphChoice(run, view.graph);
  markSuggestion(view);
}

export function offerRuns(runs, choose) {
  const box = byId("run");
  byId("run-choice").hidden = runs.length < 2;
  box.replaceChildren(...runs.map((run) => html("option", { value: run.index }, runName(run))));
  box.addEventListener("change", () => choose(Number(box.value)));
}

export function offerGraphs(choose) {
  byId("graph").addEventListener("change", (event) => choose(event.target.value));
}

function showGraphChoice(run, graph) {
  byId("graph-choice").hidden = run.num_graphs < 2;
  byId("graph").max = run.num_graphs - 1;
  byId("graph").value = graph;
}

export function showSuggestions(suggestions, address, visit) {
  const nav = byId("suggestions");
  nav.hidden = suggestions.length === 0;
  const chips = suggestions.map((each) => {
    const [kind, ...rest] = each.why.split(":");
    const link = {
      href: address(each),
      title: each.why,
      "data-graph": each.graph,
      "data-node": each.node,
      onclick: follow(() => visit(each)),
    };
    const place = each.node === null ? `graph ${each.graph}` : shorten(nodeName(each.name), 24);
    const words = html("span", { class: "sr" }, rest.length ? `: ${rest.join(":")}` : "");
    return html("li", {}, html("a", link, html("strong", {}, place), " ", html("span", {}, kind), words));
  });
  nav.replaceChildren(
    html("span", { class: "muted", id: "suggestions-title" }, "Worth a look"),
    html("ul", { "aria-labelledby": "suggestions-title" }, chips),
  );
}

/** Without scrolling the page, as scrollIntoView would. */
function inView(list, chip) {
  const [left, right] = [chip.offsetLeft, chip.offsetLeft + chip.offsetWidth];
  if (left < list.scrollLeft || right > list.scrollLeft + list.clientWidth) list.scrollLeft = left - 40;
}

function markSuggestion(view) {
  for (const chip of byId("suggestions").querySelectorAll("a")) {
    const here =
      chip.dataset.graph === String(view.graph) &&
      (chip.dataset.node ?? null) === (view.node === null ? null : String(view.node));
    chip.setAttribute("aria-current", here);
    if (here) inView(chip.closest("ul"), chip);
  }
}

export function showProblems(problems) {
  const banner = byId("banner");
  banner.hidden = problems.length === 0;
  if (!problems.length) return;
  const which = problems.length === 1 ? "One run" : `${problems.length} runs`;
  const list = html("ul", {}, problems.map((text) => html("li", {}, text)));
  const close = () => {
    banner.hidden = true;
  };
  banner.replaceChildren(
    html("div", {}, html("strong", {}, `${which} could not be opened.`), list),
    button({ class: "icon", "aria-label": "Close this message", onclick: close }, "×"),
  );
}

/** A button that opens a small list of other buttons. */
export function makeMenu(button, items) {
  const show = (open) => {
    items.hidden = !open;
    button.setAttribute("aria-expanded", open);
  };
  button.addEventListener("click", () => show(items.hidden));
  items.addEventListener("click", () => show(false));
  document.addEventListener("click", (event) => {
    if (!button.parentElement.contains(event.target)) show(false);
  });
  button.parentElement.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || items.hidden) return;
    show(false);
    button.focus();
  });
  button.parentElement.addEventListener("focusout", (event) => {
    if (event.relatedTarget && !button.parentElement.contains(event.relatedTarget)) show(false);
  });
}

export function announce(text) {
  byId("announce").textContent = text;
}
