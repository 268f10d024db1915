// Sentences and names that several parts of the page use.

import { className, many, nodeName, nodeTitle, percent, shorten, signed } from "./dom.js";

export const MARKS = { right: "✓", wrong: "✗", "partly right": "◐" };

export const placeName = (answer) => (answer.node === null ? `graph ${answer.graph}` : nodeName(answer.name));
export const placeTitle = (answer) => (answer.node === null ? `Graph ${answer.graph}` : nodeTitle(answer.name));

/** Some of the classes, and how many more there are. */
export function classList(names, most = 3, longest = 60) {
  if (names.length === 0) return "no label";
  const shown = names
    .slice(0, most)
    .map((name) => shorten(className(name), longest))
    .join(", ");
  return names.length > most ? `${shown} +${names.length - most}` : shown;
}

/** "right", "wrong" or "partly right"; null: the truth is not known. */
export function verdict(predicted, truth) {
  if (truth === null || truth === undefined) return null;
  const common = predicted.filter((name) => truth.includes(name)).length;
  if (common === predicted.length && common === truth.length) return "right";
  return common > 0 ? "partly right" : "wrong";
}

/** What there is to say about a node, in the order of importance. */
export function nodeFacts(point, answer) {
  const away =
    answer.node === null
      ? null
      : point.hop === null
        ? "no path"
        : point.hop === 0
          ? "the asked node"
          : `${many(point.hop, "hop")} away`;
  const side = `${point.share > 0 ? "for" : "against"} ${shorten(className(answer.decision.class), 40)}`;
  return [
    away,
    point.share
      ? `${percent(Math.abs(point.share))} of the influence, ${side} (adds ${signed(point.contribution)})`
      : "no influence",
    point.predicted ? `predicted ${classList(point.predicted, 3, 40)}` : null,
    point.predicted && point.truth ? `truly ${classList(point.truth, 3, 40)}` : null,
    point.part ? `in the ${point.part} part` : null,
  ].filter(Boolean);
}

/** "depth 3: sees 4 hops"; at the end, why it is as good as infinity. */
export function depthWords(answer, run, index) {
  const { depth } = answer.by_depth[index];
  if (depth === null) return `${run.title} has a fixed depth`;
  if (index === answer.by_depth.length - 1) {
    const bound = Math.max(0, ...run.layers.map((layer) => layer.truncation_bound ?? 0));
    const error = bound > 0 ? `: what is left out is at most ${bound.toExponential(0)}` : "";
    return `∞ (${many(depth, "step")} ${depth === 1 ? "suffices" : "suffice"}${error})`;
  }
  const hops = answer.reach[index];
  return `depth ${depth}: sees ${hops === null ? "everything" : hops === 0 ? "only itself" : many(hops, "hop")}`;
}

/** "class 3 (61 %)": what is said at an entry of by_depth; of several labels, how many, and the explained one. */
export function saidAt(answer, run, index) {
  const { classes, decision } = answer;
  const { predicted, probabilities } = answer.by_depth[index];
  const shown = (name, place) =>
    `${shorten(className(name), 28)}${place >= 0 ? ` (${percent(probabilities[place])})` : ""}`;
  if (!run.multi_label)
    return shown(
      predicted[0],
      classes.findIndex((each) => run.classes[each] === predicted[0]),
    );
  const labels = predicted.length === 0 ? "no label" : many(predicted.length, "label");
  return `${labels}; ${shown(decision.class, classes.indexOf(decision.target))}`;
}

export function radiusWords({ radius, hops }) {
  if (radius === null) return "The influence does not end within the hops shown.";
  const farthest = hops.length - 1;
  return radius === 0
    ? "95 % of the influence is the node's own."
    : `95 % of the influence lies within ${many(radius, "hop")}; the farthest node is ${farthest} away.`;
}

export function titleOf(answer, data) {
  const { class: name, probability } = answer.decision;
  const said = `${shorten(className(name), 40)} ${percent(probability)}`;
  return `${placeTitle(answer)}: ${said} · ${data} · pprgnn explore`;
}
