// The page as a whole: what the address says is what is shown, and every act of the reader changes the address.

import { ApiError, explain, fetchRuns } from "./api.js";
import { ownPlace } from "./charts.js";
import { watchTheme } from "./colours.js";
import { inCommon, paneButtons } from "./compare.js";
import { button, byId, large } from "./dom.js";
import { drawings, savePng, saveSvg } from "./export.js";
import { makeKeys } from "./keys.js";
import { announce, makeMenu, offerGraphs, offerRuns, showHead, showProblems, showSuggestions } from "./page.js";
import { Pane } from "./pane.js";
import { makeSearch } from "./search.js";
import { at, moved, readAddress, sameView, writeAddress } from "./state.js";
import { Transport } from "./transport.js";
import { depthWords, placeTitle, titleOf } from "./words.js";

const PATIENCE = 150; // milliseconds before waiting is shown
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
const comparing = () => state.pinned !== null && !sameView(state.main, state.pinned);

const shownPanes = () => [panes.main, panes.pinned].filter((pane) => pane.element.isConnected && pane.answer);

function makePane(which) {
  return new Pane({
    visit: (point) => visit(which, point),
    address: (point) => addressOf(which, point),
    explainClass: (target) => go({ ...state, [which]: { ...state[which], target } }),
    followAll: () => go({ ...state, [which]: { ...state[which], all: 1 } }),
    choosePlace: (place) => goDepth(place),
  });
}

// -------------------------------------------------------------------------------------------- going places
const visit = (which, place) => go(moved(state, which, place));
const addressOf = (which, place) => writeAddress(moved(state, which, place));

function go(next) {
  transport.pause();
  history.pushState(null, "", writeAddress(next));
  return show(next);
}

async function show(next) {
  state = { ...next };
  request?.abort();
  request = new AbortController();
  const { signal } = request;
  const views = comparing() ? ["main", "pinned"] : ["main"];
  holder.setAttribute("aria-busy", "true");
  const slow = setTimeout(() => holder.classList.add("loading"), PATIENCE);
  const answers = await Promise.all(
    views.map((which) => explain(state[which], LIMIT, signal).catch((error) => error)),
  );
  clearTimeout(slow);
  if (signal.aborted) return;
  const broken = answers.find((answer) => answer instanceof Error && !(answer instanceof ApiError));
  if (broken) throw broken;
  holder.classList.remove("loading");
  holder.setAttribute("aria-busy", "false");
  render(views, answers);
}

// ------------------------------------------------------------------------------------------------ rendering
function render(views, answers) {
  const good = answers.filter((answer) => !(answer instanceof Error));
  holder.classList.toggle("compare", views.length > 1);
  const wanted = views.map((which) => panes[which].element);
  // Taking an element out, even for a moment, would lose the focus and the scroll position in it.
  if (wanted.some((element, i) => holder.children[i] !== element) || holder.children.length !== wanted.length)
    holder.replaceChildren(...wanted);
  const shared = { ...inCommon(good), compared: views.length > 1 };
  depths = shared.depths;
  views.forEach((which, i) => {
    if (answers[i] instanceof Error) return fail(panes[which], answers[i]);
    // From now on the address names the node by its number, whatever was asked for.
    const { run, graph, node } = answers[i];
    state[which] = { ...state[which], run, graph, node, name: null };
    panes[which].update(answers[i], runOf(answers[i]), shared);
    return null;
  });
  for (const which of views.filter((each) => panes[each].answer || shared.compared)) {
    panes[which].buttons.replaceChildren(
      ...paneButtons(state, which, { runs, compared: shared.compared, go, togglePin }),
    );
  }
  transport.set(depths, placeOfDepth());
  showDepth();
  head(answers[0]);
}

function head(answer) {
  const run = runOf(state.main) ?? runs[0];
  showHead(run, state.main);
  if (answer instanceof Error) {
    document.title = `Nothing to show · ${run.data} · pprgnn explore`;
    return;
  }
  history.replaceState(null, "", writeAddress(state));
  document.title = titleOf(answer, run.data);
  announce(`${placeTitle(answer)}: ${panes.main.says(transport.last)}`);
}

function togglePin() {
  if (!state.main) return;
  state = { ...state, pinned: state.pinned ? null : { ...state.main } };
  go(state);
  announce(state.pinned ? "Pinned; choose another node to compare." : "No longer pinned.");
}

function fail(pane, error) {
  const leave = () => (runs.length ? go(startView()) : location.assign("/"));
  const start = button({ onclick: leave }, "Go to the start view");
  const again = button({ onclick: () => show(state) }, "Try again");
  const back = button({ onclick: () => history.back() }, "Back");
  pane.fail(error.message, ...(error.status === 0 ? [again] : history.length > 1 ? [back, start] : [start]));
}

// --------------------------------------------------------------------------------------------------- depth
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

// ---------------------------------------------------------------------------------------------------- start
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

async function copyLink() {
  const copy = byId("copy");
  const copied = navigator.clipboard.writeText(location.href);
  copy.textContent = await copied.then(() => "Copied", () => "Copy it from the address bar");
  announce(copy.textContent);
  setTimeout(() => {
    copy.textContent = "Copy link";
  }, 2000);
}

function repaint() {
  for (const pane of Object.values(panes)) pane.repaint();
}

function connect() {
  watchTheme(byId("theme"), repaint);
  makeMenu(byId("export"), byId("export-items"));
  byId("export-svg").addEventListener("click", () => saveSvg(...drawings(shownPanes(), transport.place)));
  byId("export-png").addEventListener("click", () => savePng(...drawings(shownPanes(), transport.place)));
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
  let problems;
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
  if (!runs.length)
    return fail(panes.main, new ApiError("No run could be opened; the message above says why.", 0));
  offerRuns(runs, (run) => go({ ...state, main: { ...state.main, run } }));
  offerGraphs((graph) => visit("main", { graph, node: runs[0].task === "graph" ? null : 0 }));
  const address = (each) => writeAddress({ ...startView(), main: { ...at(each), run: runs[0].index } });
  showSuggestions(suggestions, address, (each) => visit("main", each));
  const graphs = runs[0].task === "graph";
  makeSearch({
    where: () => ({ run: runOf(state.main)?.index ?? 0, graph: graphs ? 0 : (panes.main.answer?.graph ?? 0) }),
    visit: (hit) => visit("main", hit),
    suggestions,
    ask: (text) => {
      const asked = graphs ? { graph: text, node: null } : { node: null, name: text };
      go({ ...state, main: { ...state.main, ...asked, target: null, all: null } });
    },
  });
  return show(fromAddress());
}

connect();
boot();
