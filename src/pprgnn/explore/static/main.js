// The page as a whole: what the address says is what is shown, and every act of the reader changes the address.

import { ApiError, explain, fetchRuns } from "./api.js";
import { longestHop, ownPlace } from "./charts.js";
import { watchTheme } from "./colours.js";
import { byId, html, large } from "./dom.js";
import { savePng, saveSvg } from "./export.js";
import { makeKeys } from "./keys.js";
import { announce, makeMenu, markSuggestion, offerGraphs, offerRuns, runName, showGraphChoice, showProblems, showRun, showSuggestions } from "./page.js";
import { Pane } from "./pane.js";
import { makeSearch } from "./search.js";
import { readAddress, samePlace, sameView, writeAddress } from "./state.js";
import { Transport } from "./transport.js";
import { depthWords, placeName, titleOf } from "./words.js";

const PATIENCE = 150; // milliseconds before waiting is shown
const SLOTS = 6; // classes with a colour of their own
const LIMIT = innerWidth < 700 ? 70 : 150; // nodes in the picture

let runs = [];
let suggestions = [];
let state = { main: null, pinned: null, depth: null };
let request = null;
let depths = [];

const holder = byId("panes");
const panes = { main: makePane("main"), pinned: makePane("pinned") };
const transport = new Transport((place) => goDepth(place));
const runOf = (view) => runs.find((run) => String(run.index) === String(view.run));
const at = (place) => ({ graph: place.graph, node: place.node, name: null, target: null });
const comparing = () => state.pinned !== null && !sameView(state.main, state.pinned);

const shownPanes = () => [panes.main, panes.pinned].filter((pane) => pane.element.isConnected && pane.answer);

function makePane(which) {
  return new Pane({
    visit: (point) => visit(which, point),
    address: (point) => addressOf(which, point),
    explainClass: (target) => go({ ...state, [which]: { ...state[which], target } }),
    choosePlace: (place) => goDepth(place),
  });
}

// --------------------------------------------------------------------------------------------------- going places
/** The same node under two runs stays together; otherwise a pane moves alone. */
function moved(which, place) {
  const graph = place.graph ?? state[which].graph;
  const there = { ...at({ ...place, graph }), run: state[which].run };
  const next = { ...state, [which]: there };
  const other = which === "main" ? "pinned" : "main";
  if (state.pinned && samePlace(state.main, state.pinned) && String(state.main.run) !== String(state.pinned.run)) {
    next[other] = { ...there, run: state[other].run };
  }
  return next;
}

const visit = (which, place) => go(moved(which, place));
const addressOf = (which, place) => (state.main ? writeAddress(moved(which, place)) : "#");

function go(next) {
  transport.pause();
  history.pushState(null, "", writeAddress(next));
  return show(next);
}

async function show(next) {
  state = next;
  request?.abort();
  request = new AbortController();
  const { signal } = request;
  const views = comparing() ? ["main", "pinned"] : ["main"];
  holder.setAttribute("aria-busy", "true");
  const slow = setTimeout(() => holder.classList.add("loading"), PATIENCE);
  const answers = await Promise.all(views.map((which) => explain(state[which], LIMIT, signal).catch((error) => error)));
  clearTimeout(slow);
  if (signal.aborted) return;
  const broken = answers.find((answer) => answer instanceof Error && !(answer instanceof ApiError));
  if (broken) throw broken;
  holder.classList.remove("loading");
  holder.setAttribute("aria-busy", "false");
  render(views, answers);
}

// ------------------------------------------------------------------------------------------------------- rendering
function render(views, answers) {
  const good = answers.filter((answer) => !(answer instanceof Error));
  holder.classList.toggle("compare", views.length > 1);
  holder.replaceChildren(...views.map((which) => panes[which].element));
  depths = [...new Set(good.flatMap((answer) => answer.by_depth.map(({ depth }) => depth)).filter((depth) => depth !== null))].sort((one, other) => one - other);
  const shared = { depths, longest: Math.max(0, ...good.map(longestHop)), slotOf: slots(good), compared: views.length > 1 };
  views.forEach((which, i) => {
    if (answers[i] instanceof Error) return fail(panes[which], answers[i]);
    // From now on the address names the node by its number, whatever was asked for.
    state[which] = { ...state[which], run: answers[i].run, graph: answers[i].graph, node: answers[i].node, name: null };
    panes[which].update(answers[i], runOf(answers[i]), shared);
    return null;
  });
  views.forEach((which) => panes[which].buttons.replaceChildren(...buttonsOf(which, views.length > 1)));
  transport.set(depths, placeOfDepth());
  showDepth();
  head(answers[0]);
}

function head(answer) {
  const run = runOf(state.main) ?? runs[0];
  byId("run").value = run.index;
  showRun(run);
  showGraphChoice(run, state.main.graph);
  markSuggestion(state.main);
  if (answer instanceof Error) {
    document.title = `Nothing to show · ${run.data} · pprgnn explore`;
    return;
  }
  history.replaceState(null, "", writeAddress(state));
  document.title = titleOf(answer, run.data);
  announce(`${large(placeName(answer))}: ${panes.main.says(transport.last)}`);
}

/** Colours for the classes with the highest probabilities, the same ones in both panes. */
function slots(answers) {
  const highest = new Map();
  for (const answer of answers) {
    const final = answer.by_depth.at(-1).probabilities;
    answer.classes.forEach((each, i) => highest.set(each, Math.max(highest.get(each) ?? 0, final[i])));
  }
  const order = [...highest.keys()].sort((one, other) => highest.get(other) - highest.get(one) || one - other);
  const slot = new Map(order.slice(0, SLOTS).map((each, i) => [each, i]));
  return (each) => slot.get(each) ?? "rest";
}

function buttonsOf(which, compared) {
  const button = (label, act, attributes = {}) => html("button", { type: "button", onclick: act, ...attributes }, label);
  if (compared) {
    const other = which === "main" ? "pinned" : "main";
    return [button("×", () => go({ ...state, main: state[other], pinned: null }), { class: "icon", "aria-label": "Close this side", title: "Close this side" })];
  }
  const others = runs.filter((run) => String(run.index) !== String(state.main.run));
  const versus = others.length === 0 ? null : html("select", { "aria-label": "Compare with another run", onchange: (event) => go({ ...state, pinned: { ...state.main, run: Number(event.target.value) } }) },
    html("option", { value: "", selected: true, disabled: true }, "Compare…"), others.map((run) => html("option", { value: run.index }, runName(run))));
  const pinned = state.pinned !== null;
  return [versus, button(pinned ? "Pinned" : "Pin", togglePin, { class: "pin", "aria-pressed": pinned, title: pinned ? "Now choose another node: both are shown side by side" : "Keep this one to compare it with the next" })].filter(Boolean);
}

function togglePin() {
  if (!state.main) return;
  state = { ...state, pinned: state.pinned ? null : { ...state.main } };
  go(state);
  announce(state.pinned ? "Pinned; choose another node to compare." : "No longer pinned.");
}

function fail(pane, error) {
  const start = html("button", { type: "button", onclick: () => (runs.length ? go(startView()) : location.assign("/")) }, "Go to the start view");
  const again = html("button", { type: "button", onclick: () => show(state) }, "Try again");
  const back = html("button", { type: "button", onclick: () => history.back() }, "Back");
  pane.fail(error.message, ...(error.status === 0 ? [again] : history.length > 1 ? [back, start] : [start]));
}

// ---------------------------------------------------------------------------------------------------------- depth
function placeOfDepth() {
  if (state.depth === null) return depths.length - 1;
  const place = depths.findLastIndex((depth) => depth <= Number(state.depth));
  return place < 0 ? 0 : place;
}

function goDepth(place) {
  state = { ...state, depth: place >= depths.length - 1 ? null : depths[place] };
  history.replaceState(null, "", writeAddress(state));
  transport.go(place);
  showDepth();
}

function showDepth() {
  const place = transport.place;
  const shown = shownPanes();
  for (const pane of shown) pane.showDepth(place);
  const leading = shown.find((pane) => pane.answer.by_depth.length > 1) ?? shown[0];
  if (!leading) return;
  const words = depthWords(leading.answer, leading.run, ownPlace(leading.answer, depths, place));
  transport.describe(large(words), shown.map((pane) => pane.says(place)).join(" | "));
}

// ----------------------------------------------------------------------------------------------------------- start
function startView() {
  const first = suggestions[0] ?? { graph: 0, node: runs[0].task === "graph" ? null : 0 };
  return { main: { ...at(first), run: runs[0].index }, pinned: null, depth: null };
}

function fromAddress() {
  const { main, pinned, run, depth } = readAddress(location.search);
  if (main) return { main, pinned, depth };
  const start = startView();
  return { ...start, main: { ...start.main, run: run ?? start.main.run }, depth };
}

function exported() {
  const shown = shownPanes();
  const drawings = shown.map((pane) => {
    const { graph, answer, run } = pane;
    const depth = depthWords(answer, run, ownPlace(answer, depths, transport.place)).split(/[:(]/)[0].trim();
    return { graph, answer, run, words: `${run.data}, ${placeName(answer)}: ${pane.says(transport.place)}, ${shown.length > 1 ? `${run.title}, ` : ""}${depth}` };
  });
  const name = shown.map(({ answer, run }) => `${run.data}-${answer.node === null ? answer.graph : answer.name}`).join("-and-");
  return [drawings, document.title, name.replace(/[^\w.-]+/g, "_").slice(0, 80) || "picture"];
}

async function copyLink() {
  const button = byId("copy");
  const done = await navigator.clipboard.writeText(location.href).then(() => true, () => false);
  button.textContent = done ? "Copied" : "Copy it from the address bar";
  announce(button.textContent);
  setTimeout(() => { button.textContent = "Copy link"; }, 2000);
}

function repaint() {
  for (const pane of Object.values(panes)) pane.repaint();
}

function connect() {
  watchTheme(byId("theme"), repaint);
  makeMenu(byId("export"), byId("export-items"));
  byId("export-svg").addEventListener("click", () => saveSvg(...exported()));
  byId("export-png").addEventListener("click", () => savePng(...exported()));
  byId("copy").addEventListener("click", copyLink);
  byId("help-open").addEventListener("click", () => byId("help").showModal());
  makeKeys({ transport, togglePin, graphs: () => shownPanes().map((pane) => pane.graph) });
  addEventListener("popstate", () => {
    transport.pause();
    if (runs.length) show(fromAddress());
  });
}

async function boot() {
  panes.main.element.classList.add("empty");
  holder.replaceChildren(panes.main.element);
  const slow = setTimeout(() => holder.classList.add("loading"), PATIENCE);
  let problems = [];
  try {
    ({ runs, suggestions, problems } = await fetchRuns());
  } catch (error) {
    holder.setAttribute("aria-busy", "false");
    return fail(panes.main, error);
  } finally {
    clearTimeout(slow);
    holder.classList.remove("loading");
  }
  showProblems(problems);
  if (!runs.length) return fail(panes.main, new ApiError("No run could be opened; the message above says why.", 0));
  offerRuns(runs, (run) => go({ ...state, main: { ...state.main, run } }));
  offerGraphs((graph) => visit("main", { graph, node: runOf(state.main).task === "graph" ? null : 0 }));
  showSuggestions(suggestions, (each) => addressOf("main", each), (each) => visit("main", each));
  makeSearch({
    where: () => ({ run: state.main.run, graph: state.main.graph }), visit: (hit) => visit("main", hit), suggestions,
    ask: (text) => go({ ...state, main: { ...state.main, ...(runOf(state.main)?.task === "graph" ? { graph: text, node: null } : { node: null, name: text }), target: null } }),
  });
  return show(fromAddress());
}

connect();
boot();
