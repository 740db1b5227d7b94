// One sample: its picture, what it is, what the network takes it for, why it is dropped, and who is near it.

import { Gone, Refused } from "./api.js";
import { at, make } from "./dom.js";
import { percent, short } from "./numbers.js";
import { classColour } from "./palette.js";

const NEIGHBOURS = 8;
const PAUSE_MS = 90; // a pointer that only passes asks for no neighbours

export class Card {
  topics = ["focus", "hover", "decision", "document", "overrides"];

  /** @param {import("./app.js").App} app @param {import("./thumbnails.js").Thumbnails[]} thumbnails */
  constructor(app, thumbnails) {
    this.app = app;
    this.thumbnails = thumbnails;
    this.element = at("card");
    /** @type {Map<string, Promise<{sample: number, distance: number}[]>>} */
    this.neighbours = new Map();
    this.buttons = [
      this.makeButton("keep", "Keep (k)"),
      this.makeButton("drop", "Drop (d)"),
      this.makeButton("reset", "Leave it to the filter (r)"),
    ];
    this.actions = make("div.card-actions", {}, ...this.buttons);
  }

  render() {
    const { app } = this;
    const sample = app.hover >= 0 ? app.hover : app.focus;
    this.element.classList.toggle("empty", sample < 0);
    if (sample < 0) {
      const hint = "Point at a sample on the map or in the gallery to see it here. Click pins it.";
      this.element.replaceChildren(make("p.hint", {}, hint));
      this.shown = null;
      app.neighbours = null;
      return;
    }
    const { document } = app;
    const key = `${document.id}/${sample}`;
    const isNew = this.shown !== key;
    if (isNew) this.near = make("div.near", { ariaLabel: "Nearest on the map" });
    this.sample = sample;
    this.buttons.at(-1).disabled = document.override[sample] < 0;
    const parts = [this.picture(sample), this.facts(sample), this.actions, this.near];
    // the buttons stay where they are, so that they keep the keyboard's focus
    if (this.actions.parentNode) for (const [i, part] of parts.entries()) put(this.element, i, part);
    else this.element.replaceChildren(...parts);
    if (!isNew) return;
    this.shown = key;
    clearTimeout(this.pause);
    this.pause = setTimeout(() => this.showNeighbours(sample, this.near, key), PAUSE_MS);
  }

  get pictures() {
    return this.thumbnails[this.app.active];
  }

  picture(sample) {
    if (!this.pictures.any) return make("div.no-picture", {}, "no image");
    if (this.large?.dataset.sample !== String(sample)) {
      this.large = make("canvas.large", { ariaLabel: `Image of sample ${sample}` });
      this.large.setAttribute("role", "img");
    }
    if (!this.large.dataset.drawn) this.pictures.draw(sample, this.large);
    return this.large;
  }

  facts(sample) {
    const { document } = this.app;
    const label = document.label[sample];
    const fate = document.fateOf(sample);
    const swatch = make("i.swatch");
    swatch.style.setProperty("--class", classColour(label));
    const pairs = this.rows(sample).map(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]);
    return make(
      "div.facts",
      {},
      make("h2", {}, swatch, document.classes[label], make("small", {}, `sample ${sample}`)),
      make("p.fate", { data: { dropped: fate.dropped } }, fate.words),
      make("dl", {}, ...pairs.flat())
    );
  }

  rows(sample) {
    const { document } = this.app;
    const rows = [];
    const predicted = document.prediction?.[sample] ?? -1;
    if (predicted >= 0) {
      const right = predicted === document.label[sample];
      const sure = document.confidence ? ` ${percent(document.confidence[sample], 0)}` : "";
      const words = make("span", { className: right ? "right" : "wrong" }, `${document.classes[predicted]}${sure}`);
      rows.push(["predicted", words]);
    }
    if (document.lookedAt[sample]) {
      const eps = document.settings.eps[document.label[sample]];
      const sign = eps < document.epsStar[sample] ? ">" : "≤";
      rows.push(["eps*", `${short(document.epsStar[sample])} ${sign} eps ${short(eps)}`]);
    }
    if (document.loss && !Number.isNaN(document.loss[sample])) rows.push(["loss", short(document.loss[sample])]);
    return rows;
  }

  makeButton(action, title) {
    const act = () => this.app.override(action, [this.sample]);
    return make("button", { title, data: { action }, on: { click: act } }, action[0].toUpperCase() + action.slice(1));
  }

  async showNeighbours(sample, row, key) {
    const { app } = this;
    const { document } = app;
    const found = await this.fetchNeighbours(document, sample, key);
    if (this.shown !== key || !found) return;
    row.replaceChildren(...found.map((near) => this.neighbour(document, near)));
    app.neighbours = { of: document.id, samples: found.map((near) => near.sample) };
    app.changed("neighbours");
  }

  async fetchNeighbours(document, sample, key) {
    if (!document.lookedAt[sample]) return [];
    if (!this.neighbours.has(key)) {
      if (this.neighbours.size > 500) this.neighbours.clear();
      this.neighbours.set(key, this.app.api.get(`${document.id}/neighbours/${sample}?count=${NEIGHBOURS}`));
    }
    try {
      return await this.neighbours.get(key);
    } catch (problem) {
      this.neighbours.delete(key);
      if (problem instanceof Gone || problem instanceof Refused) return null; // the banner speaks of it
      throw problem;
    }
  }

  neighbour(document, { sample, distance }) {
    const label = document.label[sample];
    const name = document.classes[label];
    const words = `nearest: sample ${sample}, ${name}, ${document.fateOf(sample).words}, distance ${short(distance)}`;
    const look = () => this.app.setFocus(sample);
    const button = make("button.thumb", { title: words, ariaLabel: words, on: { click: look } });
    button.style.setProperty("--class", classColour(label));
    button.classList.toggle("dropped", document.dropped[sample] === 1);
    if (this.pictures.any) {
      const canvas = make("canvas");
      this.pictures.draw(sample, canvas);
      button.append(canvas);
    } else button.append(name);
    return button;
  }
}

/** Make a node the i-th child, in the place of the one that is there. */
function put(parent, i, node) {
  if (parent.children[i] !== node) parent.children[i].replaceWith(node);
}
