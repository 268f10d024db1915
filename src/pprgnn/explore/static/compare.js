// What two panes have in common: depths, colours of classes, the scale of bars; and how one becomes two.

import { button, html } from "./dom.js";
import { longestHop } from "./charts.js";
import { runName } from "./page.js";
import { other } from "./state.js";

const SLOTS = 6; // classes with a colour of their own

/** Of one answer or two: {depths, longest, slotOf}. */
export function inCommon(answers) {
  const all = answers.flatMap((answer) => answer.by_depth.map(({ depth }) => depth));
  const depths = [...new Set(all.filter((depth) => depth !== null))].sort((one, two) => one - two);
  return { depths, longest: Math.max(0, ...answers.map(longestHop)), slotOf: slots(answers) };
}

/** Colours for the classes with the highest probabilities, the same ones in both panes. */
function slots(answers) {
  const highest = new Map();
  for (const answer of answers) {
    const final = answer.by_depth.at(-1).probabilities;
    answer.classes.forEach((each, i) => highest.set(each, Math.max(highest.get(each) ?? 0, final[i])));
  }
  const order = [...highest.keys()].sort((one, two) => highest.get(two) - highest.get(one) || one - two);
  const slot = new Map(order.slice(0, SLOTS).map((each, i) => [each, i]));
  return (each) => slot.get(each) ?? "rest";
}

/** To pin what is shown, or to see it under another run; with two panes, to close one. */
export function paneButtons(state, which, { runs, compared, go, togglePin }) {
  if (compared) {
    const close = () => go({ ...state, main: state[other(which)], pinned: null });
    const label = "Close this side";
    return [button({ class: "icon", "aria-label": label, title: label, onclick: close }, "×")];
  }
  const others = runs.filter((run) => String(run.index) !== String(state.main.run));
  const beside = (event) => go({ ...state, pinned: { ...state.main, run: Number(event.target.value) } });
  const choice = html(
    "select",
    { "aria-label": "Compare with another run", onchange: beside },
    html("option", { value: "", selected: true, disabled: true }, "Compare…"),
    others.map((run) => html("option", { value: run.index }, runName(run))),
  );
  const pinned = state.pinned !== null;
  const title = pinned
    ? "Choose another node: both are shown side by side"
    : "Keep this one, to compare it with the next";
  const words = pinned ? "Pinned" : "Pin";
  const pin = button({ class: "pin", "aria-pressed": String(pinned), title, onclick: togglePin }, words);
  return others.length ? [choice, pin] : [pin];
}
