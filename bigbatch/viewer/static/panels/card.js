// One sample: image, label, prediction, why it is kept or dropped, and its nearest neighbours.

import { ServerUnreachable, RequestError } from "../server/api.js";
import { byId, make } from "../ui/dom.js";
import { percent, short } from "../ui/formatting.js";
import { classColour } from "../map/palette.js";
/** @import { Action, App, Topic } from "../state/app.js" */
/** @import { FilterDocument } from "../state/document.js" */
/** @import { Thumbnails } from "../ui/thumbnails.js" */

const NEIGHBOURS = 8;
const PAUSE_MS = 90; // a pointer that only passes asks for no neighbours

/** @typedef {{sample: number, distance: number}} Neighbour */

export class SampleCard {
  /** @type {Topic[]} */
  topics = ["focus", "hover", "decision", "document", "overrides"];

  /** @param {App} app @param {Thumbnails[]} thumbnails */
  constructor(app, thumbnails) {
    this.app = app;
    this.thumbnails = thumbnails;
    this.element = byId("card");
    this.sample = -1;
    /** @type {string | null} document and sample that the card shows */
    this.shown = null;
    this.near = make("div.near");
    /** @type {HTMLCanvasElement | null} */
    this.large = null;
    /** @type {Map<string, Promise<Neighbour[]>>} */
    this.neighbours = new Map();
    this.buttons = [
      this.makeButton("keep", "Keep (k)"),
      this.makeButton("drop", "Drop (d)"),
      this.makeButton("reset", "Reset to the filter's decision (r)"),
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
    this.buttons[2].disabled = document.override[sample] < 0;
    const parts = [this.makePicture(sample), this.makeFacts(sample), this.actions, this.near];
    // the buttons stay where they are, so that they keep the keyboard's focus
    if (this.actions.parentNode) for (const [i, part] of parts.entries()) replaceChild(this.element, i, part);
    else this.element.replaceChildren(...parts);
    if (!isNew) return;
    this.shown = key;
    clearTimeout(this.pause);
    this.pause = setTimeout(() => {
      if (this.large && this.pictures.layout?.shrunk) this.pictures.drawFullSize(sample, this.large);
      this.showNeighbours(sample, this.near, key);
    }, PAUSE_MS);
  }

  get pictures() {
    return this.thumbnails[this.app.active];
  }

  /** @param {number} sample */
  makePicture(sample) {
    if (!this.pictures.available) return make("div.no-picture", {}, "no image");
    if (this.large?.dataset.sample !== String(sample)) {
      this.large = make("canvas.large", { ariaLabel: `Image of sample ${sample}` });
      this.large.setAttribute("role", "img");
    }
    if (!this.large.dataset.drawn) this.pictures.draw(sample, this.large);
    return this.large;
  }

  /** @param {number} sample */
  makeFacts(sample) {
    const { document } = this.app;
    const label = document.label[sample];
    const fate = document.decisionOf(sample);
    const swatch = make("i.swatch");
    swatch.style.setProperty("--class", classColour(label));
    const pairs = this.factRows(sample).map(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]);
    return make(
      "div.facts",
      {},
      make("h2", {}, swatch, document.classes[label], make("small", {}, `sample ${sample}`)),
      make("p.fate", { data: { dropped: fate.dropped } }, fate.words),
      make("dl", {}, ...pairs.flat())
    );
  }

  /** @param {number} sample */
  factRows(sample) {
    const { document } = this.app;
    /** @type {[string, string | Node][]} */
    const rows = [];
    const predicted = document.prediction?.[sample] ?? -1;
    if (predicted >= 0) {
      const right = predicted === document.label[sample];
      const sure = document.confidence ? ` ${percent(document.confidence[sample], 0)}` : "";
      const words = make("span", { className: right ? "right" : "wrong" }, `${document.classes[predicted]}${sure}`);
      rows.push(["predicted", words]);
    }
    if (document.considered[sample]) {
      const eps = document.settings.eps[document.label[sample]];
      const sign = eps < document.epsStar[sample] ? ">" : "≤";
      rows.push(["eps*", `${short(document.epsStar[sample])} ${sign} eps ${short(eps)}`]);
    }
    if (document.loss && !Number.isNaN(document.loss[sample])) rows.push(["loss", short(document.loss[sample])]);
    return rows;
  }

  /** @param {Action} action @param {string} title */
  makeButton(action, title) {
    const act = () => this.app.override(action, [this.sample]);
    return make("button", { title, data: { action }, on: { click: act } }, action[0].toUpperCase() + action.slice(1));
  }

  /** @param {number} sample @param {HTMLElement} row @param {string} key */
  async showNeighbours(sample, row, key) {
    const { app } = this;
    const { document } = app;
    const found = await this.fetchNeighbours(document, sample, key);
    if (this.shown !== key || !found) return;
    row.replaceChildren(...found.map((near) => this.makeNeighbour(document, near)));
    app.neighbours = { of: document.id, samples: found.map((near) => near.sample) };
    app.invalidate("neighbours");
  }

  /** @param {FilterDocument} document @param {number} sample @param {string} key */
  async fetchNeighbours(document, sample, key) {
    if (!document.considered[sample]) return [];
    if (!this.neighbours.has(key)) {
      if (this.neighbours.size > 500) this.neighbours.clear();
      this.neighbours.set(key, this.app.api.getJson(`${document.id}/neighbours/${sample}?count=${NEIGHBOURS}`));
    }
    try {
      return await this.neighbours.get(key);
    } catch (problem) {
      this.neighbours.delete(key);
      if (problem instanceof ServerUnreachable || problem instanceof RequestError) return null; // the banner says so
      throw problem;
    }
  }

  /** @param {FilterDocument} document @param {Neighbour} neighbour */
  makeNeighbour(document, { sample, distance }) {
    const label = document.label[sample];
    const name = document.classes[label];
    const decision = document.decisionOf(sample).words;
    const words = `nearest: sample ${sample}, ${name}, ${decision}, distance ${short(distance)}`;
    const look = () => this.app.setFocus(sample);
    const button = make("button.thumb", { title: words, ariaLabel: words, on: { click: look } });
    button.style.setProperty("--class", classColour(label));
    button.classList.toggle("dropped", document.dropped[sample] === 1);
    if (this.pictures.available) {
      const canvas = make("canvas");
      this.pictures.draw(sample, canvas);
      button.append(canvas);
    } else button.append(name);
    return button;
  }
}

/**
 * Make a node the i-th child, in the place of the one that is there.
 * @param {Element} parent
 * @param {number} i
 * @param {Node} node
 */
function replaceChild(parent, i, node) {
  if (parent.children[i] !== node) parent.children[i].replaceWith(node);
}
