// The depth slider below the page, for one pane or two.

import { byId } from "./dom.js";

const PAUSE = 650; // milliseconds between two depths while playing

/** `moved(place)` is told whenever the slider stands elsewhere. */
export class Transport {
  constructor(moved) {
    this.moved = moved;
    [this.bar, this.slider, this.button, this.text] = ["transport", "depth", "play", "depth-text"].map(byId);
    this.slider.addEventListener("input", () => {
      this.pause();
      this.moved(Number(this.slider.value));
    });
    this.button.addEventListener("click", () => this.toggle());
  }

  get place() {
    return Number(this.slider.value);
  }

  get last() {
    return Number(this.slider.max);
  }

  /** Offer these depths and stand at this place. */
  set(depths, place) {
    this.bar.hidden = depths.length < 2;
    this.slider.max = Math.max(0, depths.length - 1);
    this.go(place);
  }

  go(place) {
    this.slider.value = Math.max(0, Math.min(this.last, place));
    this.bar.style.setProperty("--part", `${(100 * this.place) / Math.max(1, this.last)}%`);
  }

  step(by) {
    if (this.bar.hidden) return;
    this.pause();
    this.moved(Math.max(0, Math.min(this.last, this.place + by)));
  }

  describe(words, says) {
    this.slider.setAttribute("aria-valuetext", `${words}. ${says}`);
    this.text.replaceChildren(
      Object.assign(document.createElement("span"), { textContent: words }),
      Object.assign(document.createElement("strong"), { textContent: says }),
    );
  }

  toggle() {
    if (this.bar.hidden) return;
    if (this.timer) {
      this.pause();
      return;
    }
    if (this.place === this.last) this.moved(0);
    this.button.classList.add("playing");
    this.button.setAttribute("aria-label", "Pause");
    this.timer = setInterval(() => {
      if (this.place < this.last) this.moved(this.place + 1);
      if (this.place >= this.last) this.pause();
    }, PAUSE);
  }

  pause() {
    clearInterval(this.timer);
    this.timer = null;
    this.button.classList.remove("playing");
    this.button.setAttribute("aria-label", "Play the depths from 0 to infinity");
  }
}
