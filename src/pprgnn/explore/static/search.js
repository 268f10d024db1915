// The search box: type, walk through what was found with the arrow keys, Enter goes there.

import { ApiError, search } from "./api.js";
import { byId, html, nodeName } from "./dom.js";
import { classList, verdict } from "./words.js";

const WAIT = 120; // milliseconds after the last key

/** `where()` gives {run, graph}; `visit(hit)` goes to a node, `ask(text)` to whatever has that name. */
export function makeSearch({ where, visit, ask, suggestions }) {
  const [input, list, status] = ["query", "hits", "hits-count"].map(byId);
  let [hits, active, timer, request] = [[], -1, null, null];

  function mark(place) {
    active = place;
    [...list.children].forEach((item, i) => {
      if (hits.length) item.setAttribute("aria-selected", i === place);
    });
    if (place >= 0) {
      input.setAttribute("aria-activedescendant", `hit-${place}`);
      list.children[place].scrollIntoView({ block: "nearest" });
    } else {
      input.removeAttribute("aria-activedescendant");
    }
  }

  function open(items, words) {
    list.replaceChildren(...items);
    list.hidden = items.length === 0;
    input.setAttribute("aria-expanded", !list.hidden);
    status.textContent = words;
    mark(-1);
  }

  function close() {
    clearTimeout(timer);
    request?.abort();
    hits = [];
    open([], "");
  }

  function take(hit) {
    close();
    input.value = "";
    input.blur();
    visit(hit);
  }

  const item = (hit, place, ...words) =>
    html(
      "li",
      {
        id: `hit-${place}`,
        role: "option",
        "aria-selected": "false",
        onmousedown: (event) => event.preventDefault(),
        onclick: () => take(hit),
      },
      html("span", { class: "hit-name" }, hit.node === null ? `graph ${hit.graph}` : nodeName(hit.name)),
      ...words,
    );

  function found(hit, place) {
    const right = verdict(hit.predicted, hit.truth);
    const truth =
      right && right !== "right"
        ? html("span", { class: "mark wrong" }, `${right}, is ${classList(hit.truth, 2, 40)}`)
        : right
          ? html("span", { class: "mark right" }, "right")
          : null;
    return item(
      hit,
      place,
      html("span", {}, classList(hit.predicted, 2, 40)),
      truth,
      hit.part ? html("span", { class: "muted" }, hit.part) : null,
    );
  }

  function offer() {
    hits = suggestions;
    open(
      hits.map((hit, place) => item(hit, place, html("span", { class: "muted" }, hit.why))),
      hits.length ? `${hits.length} worth a look` : "",
    );
  }

  async function look() {
    const text = input.value.trim();
    request?.abort();
    if (!text) return offer();
    request = new AbortController();
    try {
      const answer = await search({ q: text, ...where(), limit: 20 }, request.signal);
      hits = answer.results;
      const rows = hits.map(found);
      if (answer.more) rows.push(html("li", { class: "muted", role: "presentation" }, "There are more; type on."));
      if (!hits.length)
        rows.push(html("li", { class: "muted", role: "presentation" }, `Nothing is called “${text}”.`));
      return open(
        rows,
        hits.length ? `${hits.length}${answer.more ? " and more" : ""} found` : `Nothing is called ${text}.`,
      );
    } catch (error) {
      if (!(error instanceof ApiError)) {
        if (error.name === "AbortError") return null;
        throw error;
      }
      hits = [];
      return open([html("li", { class: "muted", role: "presentation" }, error.message)], error.message);
    }
  }

  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(look, WAIT);
  });
  input.addEventListener("focus", () => {
    input.select();
    look();
  });
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && hits.length) {
      event.preventDefault();
      mark(active < 0 ? (step > 0 ? 0 : hits.length - 1) : (active + step + hits.length) % hits.length);
    } else if (event.key === "Enter") {
      const text = input.value.trim();
      const exact = hits.find((hit) => String(hit.name ?? hit.graph).toLowerCase() === text.toLowerCase());
      if (active >= 0) take(hits[active]);
      else if (exact) take(exact);
      else if (text && hits.length && status.textContent) take(hits[0]);
      else if (text) {
        close();
        input.value = "";
        input.blur();
        ask(text);
      }
    } else if (event.key === "Escape") {
      if (list.hidden) input.blur();
      close();
    }
  });
}
