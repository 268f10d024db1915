// What is shown, as an address: ?run=0&graph=0&node=17&target=3&all=1&depth=4&with=1.0.17.3.1

/** A view is what one pane shows: {run, graph, node, name, target, all}; on graph tasks node stays null. */
export function readAddress(search) {
  const query = new URLSearchParams(search);
  if (![..."node graph name".split(" ")].some((key) => query.has(key))) {
    return { main: null, pinned: null, run: query.get("run"), depth: query.get("depth") };
  }
  const main = {
    run: query.get("run") ?? "0",
    graph: query.get("graph") ?? "0",
    node: query.get("node"),
    name: query.get("name"),
    target: query.get("target"),
    all: query.get("all"),
  };
  return { main, pinned: readPinned(query.get("with")), run: main.run, depth: query.get("depth") };
}

function readPinned(text) {
  if (!text) return null;
  const [run, graph, node = null, target = null, all = null] = text.split(".").map((part) => part || null);
  return { run, graph: graph ?? "0", node, name: null, target, all };
}

export function writeAddress({ main, pinned, depth }) {
  const query = new URLSearchParams();
  for (const key of ["run", "graph", "node", "name", "target", "all"]) {
    if (main[key] !== null && main[key] !== undefined) query.set(key, main[key]);
  }
  if (depth !== null && depth !== undefined) query.set("depth", depth);
  if (pinned)
    query.set(
      "with",
      ["run", "graph", "node", "target", "all"]
        .map((key) => pinned[key] ?? "")
        .join(".")
        .replace(/\.+$/, ""),
    );
  return `?${query}`;
}

/** Numbers and strings count as the same: one comes from the server, the other from the address. */
const same = (one, other) =>
  (one ?? null) === (other ?? null) || (one != null && other != null && String(one) === String(other));
const samePlace = (one, other) =>
  same(one.graph, other.graph) && same(one.node, other.node) && same(one.name, other.name);
export const sameView = (one, other) =>
  samePlace(one, other) && same(one.run, other.run) && same(one.target, other.target);

export const other = (which) => (which === "main" ? "pinned" : "main");
export const at = ({ graph, node }) => ({ graph, node, name: null, target: null, all: null });

/** After a pane went to another place: the same node under two runs stays together, others move alone. */
export function moved(state, which, place) {
  const there = { ...at({ ...place, graph: place.graph ?? state[which].graph }), run: state[which].run };
  const next = { ...state, [which]: there };
  const { main, pinned } = state;
  if (pinned && samePlace(main, pinned) && !same(main.run, pinned.run)) {
    next[other(which)] = { ...there, run: state[other(which)].run };
  }
  return next;
}
