// The neighbourhood as SVG: every node is a link that a mouse, a finger, a keyboard or a screen reader can follow.

import { influence, picture } from "./colours.js";
import { button, follow, html, many, nodeTitle, reducedMotion, svg } from "./dom.js";
import { drawLabels } from "./labels.js";
import { largestShare, layout } from "./layout.js";
import { DIRECTIONS, showTip, towards } from "./pointing.js";
import { nodeFacts, placeTitle, verdict } from "./words.js";
import { drag, select, zoom, zoomIdentity } from "./vendor/d3.js";

const MOVE = 450; // milliseconds
const FADED = 0.16;

export class Graph {
  constructor({ visit, address }) {
    this.visit = visit;
    this.address = address;
    this.reach = null;
    this.moved = false;
    this.backdrop = svg("rect", { width: "100%", height: "100%", class: "ground" });
    this.rings = svg("g", { fill: "none", "aria-hidden": "true" });
    [this.edges, this.faded, this.near] = ["edges", "edges-faded", "edges-near"].map((name) =>
      svg("path", { class: name, fill: "none", "aria-hidden": "true" }),
    );
    this.nodes = svg("g", { class: "nodes" });
    this.world = svg("g", { class: "world" }, this.rings, this.faded, this.edges, this.near, this.nodes);
    this.labels = svg("g", {
      class: "labels",
      "aria-hidden": "true",
      "font-family": "system-ui, sans-serif",
      "pointer-events": "none",
    });
    this.svg = svg("svg", { class: "graph", role: "group" }, this.backdrop, this.world, this.labels);
    this.tip = html("div", { class: "tip", "aria-hidden": "true", hidden: true });
    const tool = (label, text, act) =>
      button({ class: "icon", "aria-label": label, title: label, onclick: act }, text);
    this.buttons = html(
      "div",
      { class: "zoom", role: "group", "aria-label": "Zoom" },
      tool("Zoom in", "+", () => this.zoomBy(1.35)),
      tool("Zoom out", "−", () => this.zoomBy(1 / 1.35)),
      tool("Show all", "⤢", () => this.fit(true)),
    );
    this.element = html("div", { class: "picture" }, this.svg, this.buttons, this.tip);
    this.transform = zoomIdentity;
    this.zooming = zoom()
      .scaleExtent([0.08, 8])
      .filter((event) => this.wanted(event))
      .on("zoom", (event) => {
        this.transform = event.transform;
        if (event.sourceEvent) this.moved = true;
        this.world.setAttribute("transform", event.transform);
        this.hideTip();
        this.later(() => this.write());
      });
    select(this.svg).call(this.zooming).on("dblclick.zoom", null);
    this.svg.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.resized()).observe(this.element);
    // Paper has another size than the screen, and is laid out without telling: the whole picture is scaled.
    addEventListener("beforeprint", () => {
      const { width, height } = this.size();
      if (width) this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    });
    addEventListener("afterprint", () => this.svg.removeAttribute("viewBox"));
  }

  /** Where the page scrolls, wheel and one finger scroll it; Ctrl or two fingers zoom. */
  wanted(event) {
    const scrolls = document.documentElement.scrollHeight > innerHeight + 1;
    if (event.type === "wheel") return event.ctrlKey || event.metaKey || !scrolls;
    if (event.type.startsWith("touch")) return event.touches.length > 1 || !scrolls;
    return !event.button && !event.ctrlKey;
  }

  later(act) {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = null;
      act();
    });
  }

  size() {
    const { offsetLeft: left, offsetTop: top, offsetWidth, offsetHeight } = this.buttons;
    const buttons = { left, top, right: left + offsetWidth, bottom: top + offsetHeight };
    return { width: this.element.clientWidth, height: this.element.clientHeight, buttons };
  }

  resized() {
    if (!this.plan) return;
    if (this.moved) this.write();
    else this.fit(false);
  }

  // ------------------------------------------------------------------------------------------------- contents
  update(answer) {
    const before = new Map((this.plan?.points ?? []).map((point) => [point.node, point]));
    const focused = this.svg.contains(document.activeElement);
    this.answer = answer;
    this.plan = layout(answer);
    this.neighbours = this.plan.points.map(() => []);
    for (const [one, other] of answer.edges) {
      this.neighbours[one].push(other);
      this.neighbours[other].push(one);
    }
    this.svg.setAttribute(
      "aria-label",
      `${placeTitle(answer)}: ${many(answer.nodes.length, "node")} and ${many(answer.edges.length, "edge")}; ` +
        "arrow keys move, Enter asks about a node",
    );
    this.rings.replaceChildren(...this.plan.rings.map(({ radius }) => svg("circle", { r: radius })));
    this.elements = this.plan.points.map((point) => this.node(point));
    this.nodes.replaceChildren(...[...this.elements].reverse()); // the asked node on top
    this.hideTip();
    this.moved = false;
    this.paint();
    this.fit(false);
    this.move(before);
    if (focused && this.elements.length) this.elements[0].focus({ preventScroll: true });
  }

  node(point) {
    const answer = this.answer;
    const graphs = answer.node === null;
    const own = answer.decision.predicted;
    point.alike = graphs || !point.predicted || point.place === 0 || verdict(point.predicted, own) !== "wrong";
    const r = point.r;
    const shape = point.alike
      ? svg("circle", { class: "shape", r })
      : svg("path", { class: "shape", d: `M0,${-1.2 * r}L${1.2 * r},0L0,${1.2 * r}L${-1.2 * r},0Z` });
    const link = svg(
      "a",
      {
        class: "node",
        "data-node": point.node,
        tabindex: point.place === 0 ? 0 : -1,
        draggable: "false",
        href: graphs ? null : this.address(point),
        role: graphs ? "img" : null,
        "aria-label": `${nodeTitle(point.name)}: ${nodeFacts(point, answer).join(", ")}`,
      },
      svg("circle", { class: "hit", r: r + 5, fill: "none", "pointer-events": "all" }),
      shape,
      point.place === 0 && !graphs ? svg("circle", { class: "asked", r: r + 4, fill: "none" }) : null,
    );
    link.addEventListener("mouseenter", () => this.point(point));
    link.addEventListener("mouseleave", () => this.hideTip());
    link.addEventListener("focus", () => {
      for (const other of this.elements) other.setAttribute("tabindex", other === link ? 0 : -1);
      if (link.matches(":focus-visible")) this.point(point);
    });
    link.addEventListener("blur", () => this.hideTip());
    const visit = () => !graphs && point.place !== 0 && this.visit(point);
    link.addEventListener("click", follow(visit));
    select(link).call(
      drag()
        .container(this.world)
        .subject(() => point)
        .on("drag", (event) => {
          [point.x, point.y] = [event.x, event.y];
          this.hideTip();
          this.place();
          this.write();
        }),
    );
    return link;
  }

  /** Colours and fading, as the theme and the depth want them. */
  paint() {
    if (!this.plan) return;
    const colours = picture();
    const { points, rings } = this.plan;
    const largest = largestShare(points, this.answer.node !== null);
    this.backdrop.setAttribute("fill", colours.ground);
    this.edges.setAttribute("stroke", colours.edge);
    this.faded.setAttribute("stroke", colours.edge);
    this.faded.setAttribute("stroke-opacity", FADED);
    this.near.setAttribute("stroke", colours.ink);
    [...this.rings.children].forEach((circle, i) => {
      const out = rings[i].hop === null || this.outOfReach(rings[i].hop);
      circle.setAttribute("stroke", colours.ring);
      circle.setAttribute("stroke-dasharray", out ? "3 6" : "none");
    });
    points.forEach((point, i) => {
      const shape = this.elements[i].querySelector(".shape");
      shape.setAttribute("fill", influence(point.share, largest));
      shape.setAttribute("stroke", colours.outline);
      shape.setAttribute("stroke-width", point.alike ? 1 : 1.5);
      this.elements[i].querySelector(".asked")?.setAttribute("stroke", colours.ink);
      const out = this.outOfReach(point.hop);
      this.elements[i].classList.toggle("out", out);
      this.elements[i].setAttribute("opacity", out ? FADED + 0.06 : 1);
    });
    this.place();
    this.write();
  }

  outOfReach(hop) {
    return this.reach !== null && hop !== null && hop > this.reach;
  }

  setReach(reach) {
    this.reach = reach;
    this.paint();
  }

  // ------------------------------------------------------------------------------------------------- positions
  /** From where nodes stood before to where they stand now. */
  move(before) {
    cancelAnimationFrame(this.moving);
    const { points } = this.plan;
    if (reducedMotion() || before.size === 0) return;
    const start = performance.now();
    const from = points.map((point) => before.get(point.node) ?? { x: point.x * 0.6, y: point.y * 0.6 });
    const goal = points.map(({ x, y }) => ({ x, y }));
    this.labels.setAttribute("visibility", "hidden");
    const step = (now) => {
      const part = Math.min(1, Math.max(0, (now - start) / MOVE));
      const eased = 1 - (1 - part) ** 3;
      points.forEach((point, i) => {
        point.x = from[i].x + (goal[i].x - from[i].x) * eased;
        point.y = from[i].y + (goal[i].y - from[i].y) * eased;
      });
      this.place();
      if (part < 1) {
        this.moving = requestAnimationFrame(step);
      } else {
        this.labels.removeAttribute("visibility");
        this.write();
      }
    };
    step(start);
  }

  place() {
    const { points } = this.plan;
    const lines = { seen: [], out: [] };
    for (const [one, other] of this.answer.edges) {
      const out = this.outOfReach(points[one].hop) || this.outOfReach(points[other].hop);
      (out ? lines.out : lines.seen).push(line(points[one], points[other]));
    }
    this.edges.setAttribute("d", lines.seen.join(""));
    this.faded.setAttribute("d", lines.out.join(""));
    points.forEach((point, i) =>
      this.elements[i].setAttribute("transform", `translate(${point.x.toFixed(1)},${point.y.toFixed(1)})`),
    );
  }

  write() {
    if (this.plan) drawLabels(this.labels, this.plan, this.transform, this.size(), this.reach);
  }

  fit(gently) {
    const { width, height } = this.size();
    if (!this.plan || !width || !height) return;
    this.moved = false;
    const { points, radius, rings } = this.plan;
    const [wide, high] = rings.length
      ? [radius, radius]
      : ["x", "y"].map((axis) => Math.max(30, ...points.map((point) => Math.abs(point[axis]) + point.r)) + 24);
    const scale = Math.min(width / (2 * wide), height / (2 * high), 2.3);
    const goal = zoomIdentity.translate(width / 2, height / 2).scale(scale);
    const target = gently && !reducedMotion() ? select(this.svg).transition().duration(250) : select(this.svg);
    this.zooming.transform(target, goal);
    if (!gently) this.write();
  }

  zoomBy(factor) {
    this.moved = true;
    this.zooming.scaleBy(reducedMotion() ? select(this.svg) : select(this.svg).transition().duration(180), factor);
  }

  // -------------------------------------------------------------------------------------------------- pointing
  point(point) {
    const near = this.neighbours[point.place].map((other) => line(point, this.plan.points[other]));
    this.near.setAttribute("d", near.join(""));
    showTip(this.tip, point, this.answer, this.transform, this.size());
  }

  hideTip() {
    this.tip.hidden = true;
    this.near.setAttribute("d", "");
  }

  key(event) {
    const current = this.elements.indexOf(document.activeElement);
    if (current < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    let next = event.key === "Home" || event.key === "Escape" ? 0 : null;
    const direction = DIRECTIONS[event.key];
    if (direction) next = towards(this.plan.points, this.neighbours, current, direction);
    if (next === null) return;
    event.preventDefault();
    this.elements[next].focus({ preventScroll: true });
    this.elements[next].scrollIntoView?.({ block: "nearest", inline: "nearest" });
  }
}

const line = (one, other) =>
  `M${one.x.toFixed(1)},${one.y.toFixed(1)}L${other.x.toFixed(1)},${other.y.toFixed(1)}`;
