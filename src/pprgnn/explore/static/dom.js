// Small helpers to make elements and to write numbers and names.

const SVG = "http://www.w3.org/2000/svg";

export function fill(element, attributes, children = []) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const html = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);
export const button = (attributes, ...children) => html("button", { type: "button", ...attributes }, ...children);
/** Heads are [text, class]; without any, the table has no head. */
export const table = (attributes, heads, rows) => {
  const head = ([text, kind]) => (text ? html("th", { scope: "col", class: kind }, text) : html("td"));
  return html(
    "table",
    attributes,
    heads.length ? html("thead", {}, html("tr", {}, heads.map(head))) : null,
    html("tbody", {}, rows),
  );
};
export const numberCell = (text, kind) => html("td", { class: kind ? `number ${kind}` : "number" }, text);
/** What a click on a link does, unless it asks for a new tab or window, as with all links. */
export const follow = (act) => (event) => {
  if (event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  act();
};
const measuring = document.createElement("canvas").getContext("2d");
export function textWidth(text, weight = 400) {
  measuring.font = `${weight} 12px system-ui, sans-serif`;
  return measuring.measureText(text).width;
}
export const byId = (id) => document.getElementById(id);
export const reducedMotion = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

export const count = (number) => number.toLocaleString("en");
export const many = (number, word) => `${count(number)} ${word}${number === 1 ? "" : "s"}`;

/** 0.4172 as "42 %"; small ones keep a digit, so that they do not look like nothing. */
export function percent(share) {
  const value = 100 * Math.abs(share);
  const sign = share < 0 && value >= 0.005 ? "−" : "";
  if (value === 0) return "0 %";
  if (value < 0.05) return `${sign}<0.1 %`;
  if (value < 9.95) return `${sign}${value.toFixed(1)} %`;
  return value > 99.5 && value < 100
    ? `${sign}${value.toFixed(1)} %`.replace("100.0", ">99.9")
    : `${sign}${value.toFixed(0)} %`;
}

/** A score with its sign: "+1.24", "−0.03", "+4e-6". */
export function signed(value) {
  const size = Math.abs(value);
  const text = size === 0 || size >= 0.005 ? size.toFixed(2) : size.toExponential(0);
  return `${value < 0 ? "−" : "+"}${text}`;
}

/** Data sets often only number their classes and nodes; a bare number says nothing. */
export const className = (name) => (/^-?\d+$/.test(name) ? `class ${name}` : name);
export const nodeName = (name) => (/^\d+$/.test(name) ? `node ${name}` : name);
/** At the head of a line; a name that is a word stays as it is. */
export const nodeTitle = (name) => (/^\d+$/.test(name) ? `Node ${name}` : name);
export const large = (text) => text.charAt(0).toUpperCase() + text.slice(1);

export const shorten = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
