// Pictures of the samples that are dropped (or kept, overridden, selected), as many rows as can be seen.

import { byId, make, selectById, setText, targetOf } from "../ui/dom.js";
import { count, short } from "../ui/formatting.js";
import { sortAscending, sortDescending } from "../state/sorting.js";
import { classColour } from "../map/palette.js";
/** @import { Action, App, Topic } from "../state/app.js" */
/** @import { Thumbnails } from "../ui/thumbnails.js" */
/** @import { FilterDocument } from "../state/document.js" */

const CELL = { width: 62, height: 76 };
const LIVE_UP_TO = 200_000; // of more samples the gallery follows when the slider rests
const REST_MS = 150;

/**
 * @typedef {Object} Cell
 * @property {HTMLElement} element
 * @property {HTMLElement} picture
 * @property {HTMLElement} words
 * @property {number} sample
 * @property {FilterDocument | null} of
 *
 * @typedef {Object} Sort
 * @property {string} name
 * @property {(document: FilterDocument) => Float64Array | Float32Array | Uint32Array | null} column
 * @property {(values: any) => Uint32Array} order  the samples in the order of their values
 */

/** @type {Record<string, Sort>} */
const SORTS = {
  eps_star: { name: "eps* ↓", column: (document) => document.epsStar, order: sortDescending },
  eps_star_up: { name: "eps* ↑", column: (document) => document.epsStar, order: sortAscending },
  loss: { name: "loss ↓", column: (document) => document.loss, order: sortDescending },
  confidence: { name: "confidence ↑", column: (document) => document.confidence, order: sortAscending },
  sample: { name: "number", column: (document) => document.numbers, order: (numbers) => numbers },
};

/** @type {Topic[]} what changes the list of samples */
const LIST_TOPICS = ["decision", "overrides", "class", "document"];

export class Gallery {
  /** @type {Topic[]} */
  topics = ["decision", "overrides", "class", "focus", "selection", "drawn", "document", "tab"];

  /** @param {App} app @param {Thumbnails[]} thumbnails */
  constructor(app, thumbnails) {
    this.app = app;
    this.thumbnails = thumbnails;
    this.element = byId("gallery");
    this.space = byId("gallery-space");
    /** @type {Uint32Array} the samples shown, in order */
    this.list = new Uint32Array(0);
    /** @type {Cell[]} */
    this.cells = [];
    this.stale = false;
    /** @type {string | null} what was listed before the selection */
    this.showAfterwards = null;
    /** @type {{column: unknown, name: string, rows: Uint32Array} | null} */
    this.ordered = null;
    this.hint = this.element.appendChild(make("p.hint"));
    this.makeSorts();
    for (const id of ["gallery-show", "gallery-sort"]) byId(id).addEventListener("change", () => this.updateList());
    this.element.addEventListener("scroll", () => this.drawCells());
    this.element.addEventListener("keydown", (event) => this.onKeyDown(event));
    this.element.addEventListener("click", (event) => this.onClick(event));
    this.element.addEventListener("pointerover", (event) => app.setHover(this.sampleOf(event)));
    this.element.addEventListener("pointerleave", () => app.setHover(-1));
    new ResizeObserver(() => this.drawCells()).observe(this.element);
  }

  makeSorts() {
    for (const [name, sort] of Object.entries(SORTS)) {
      const known = this.app.documents.every((document) => sort.column(document) !== null);
      if (known) selectById("gallery-sort").append(make("option", { value: name }, sort.name));
    }
  }

  get pictures() {
    return this.thumbnails[this.app.active];
  }

  /** @param {Set<Topic>} changed */
  render(changed) {
    if (changed.has("selection")) this.followSelection(changed.has("drawn"));
    if (byId("gallery-panel").hidden) {
      this.stale = true;
      return;
    }
    const affects = LIST_TOPICS.some((topic) => changed.has(topic));
    if (affects || this.stale || (changed.has("selection") && selectById("gallery-show").value === "selected")) {
      clearTimeout(this.resting);
      // a slider moves on, but the next key is for the sample that the list shows next
      const live = this.app.document.samples <= LIVE_UP_TO || changed.has("overrides");
      if (!live) this.resting = setTimeout(() => this.updateList(), REST_MS);
      else this.updateList();
    } else this.drawCells();
    if (changed.has("focus")) this.revealFocus();
  }

  /**
   * List the samples that were just selected on the map; afterwards, what was listed before.
   * @param {boolean} drawn
   */
  followSelection(drawn) {
    const show = selectById("gallery-show");
    if (drawn && this.app.selectedCount > 0 && show.value !== "selected") {
      this.showAfterwards = show.value;
      show.value = "selected";
    } else if (this.app.selectedCount === 0 && this.showAfterwards) {
      show.value = this.showAfterwards;
      this.showAfterwards = null;
      this.stale = true;
    }
  }

  /** Update which samples are listed, and in which order. */
  updateList() {
    const { app } = this;
    const before = app.lastOverridden < 0 ? -1 : this.list.indexOf(app.lastOverridden);
    this.stale = false;
    this.list = this.listSamples();
    setText(byId("gallery-count"), count(this.list.length));
    this.focusNext(before);
    this.drawCells();
  }

  /**
   * Where an override has taken the sample in focus off the list, the one that came after it is next.
   * @param {number} before
   */
  focusNext(before) {
    const { app } = this;
    if (before < 0 || app.focus !== app.lastOverridden || this.list.includes(app.focus) || !this.list.length) return;
    app.lastOverridden = -1;
    app.setFocus(this.list[Math.min(before, this.list.length - 1)]);
  }

  listSamples() {
    const { app } = this;
    const { document, classShown } = app;
    /** @type {Record<string, (i: number) => boolean>} */
    const conditions = {
      dropped: (i) => document.dropped[i] === 1,
      kept: (i) => document.dropped[i] === 0,
      overridden: (i) => document.override[i] >= 0,
      selected: (i) => app.selected[i] === 1,
    };
    const belongs = conditions[selectById("gallery-show").value];
    const found = new Uint32Array(document.samples);
    let members = 0;
    for (const i of this.sortedSamples()) {
      if ((classShown < 0 || document.label[i] === classShown) && belongs(i)) found[members++] = i;
    }
    return found.slice(0, members);
  }

  /** All samples in the order chosen: made once for a column. */
  sortedSamples() {
    const name = selectById("gallery-sort").value;
    const column = SORTS[name].column(this.app.document);
    if (this.ordered?.column !== column || this.ordered.name !== name) {
      this.ordered = { column, name, rows: SORTS[name].order(column) };
    }
    return this.ordered.rows;
  }

  get across() {
    return Math.max(1, Math.floor(this.element.clientWidth / CELL.width));
  }

  /** Fill the cells that can be seen; those out of sight are used again. */
  drawCells() {
    const { element, across, list } = this;
    this.space.style.height = `${Math.ceil(list.length / across) * CELL.height}px`;
    const first = Math.max(0, Math.floor(element.scrollTop / CELL.height) - 1) * across;
    const shown = Math.min(list.length - first, (Math.ceil(element.clientHeight / CELL.height) + 3) * across);
    while (this.cells.length < shown) this.cells.push(this.makeCell());
    for (const [i, cell] of this.cells.entries()) {
      cell.element.hidden = i >= shown;
      if (i < shown) this.fillCell(cell, first + i, across);
    }
    if (this.app.focus >= 0) element.setAttribute("aria-activedescendant", `sample-${this.app.focus}`);
    else element.removeAttribute("aria-activedescendant");
    this.updateEmptyHint();
  }

  updateEmptyHint() {
    this.hint.hidden = this.list.length > 0;
    const show = selectById("gallery-show").value;
    const nothing = show === "selected" ? "Nothing is selected: draw a lasso or a box." : `No sample is ${show} here.`;
    setText(this.hint, nothing);
  }

  /** @returns {Cell} */
  makeCell() {
    const picture = this.pictures.available ? make("canvas") : make("div.plain");
    const words = make("span");
    // for the mouse alone: keys k and d do the same, and an option may hold no other control for screen readers
    /** @param {string} action @param {string} sign */
    const button = (action, sign) =>
      make("button", { tabIndex: -1, title: action, data: { action }, aria: { hidden: true } }, sign);
    const element = make("div.cell", {}, picture, words, button("keep", "✓"), button("drop", "×"));
    element.setAttribute("role", "option");
    this.space.append(element);
    return { element, picture, words, sample: -1, of: null };
  }

  /** @param {Cell} cell @param {number} place @param {number} across */
  fillCell(cell, place, across) {
    const { app } = this;
    const { document } = app;
    const sample = this.list[place];
    const { element } = cell;
    const [x, y] = [(place % across) * CELL.width, Math.floor(place / across) * CELL.height];
    element.style.transform = `translate(${x}px, ${y}px)`;
    element.setAttribute("aria-selected", String(app.selected[sample] === 1));
    element.classList.toggle("focus", sample === app.focus);
    element.dataset.override = ["none", "drop", "keep"][document.override[sample] + 1];
    setText(cell.words, this.captionOf(sample));
    // a picture that could not be fetched is asked for again
    const { picture } = cell;
    if (picture instanceof HTMLCanvasElement && picture.dataset.drawn !== String(sample)) {
      this.pictures.draw(sample, picture);
    }
    if (cell.sample === sample && cell.of === document) return;
    Object.assign(cell, { sample, of: document });
    element.id = `sample-${sample}`;
    element.dataset.sample = String(sample);
    const name = document.classes[document.label[sample]];
    element.setAttribute("aria-label", `sample ${sample}, ${name}, eps* ${short(document.epsStar[sample])}`);
    element.style.setProperty("--class", classColour(document.label[sample]));
    if (!this.pictures.available) setText(picture, name);
  }

  /** @param {number} sample */
  captionOf(sample) {
    const sort = selectById("gallery-sort").value;
    const value = SORTS[sort].column(this.app.document)?.[sample] ?? NaN;
    return sort === "sample" ? String(value) : short(value);
  }

  // ---- stepping

  /** @param {MouseEvent} event */
  onClick(event) {
    const sample = this.sampleOf(event);
    if (sample < 0) return;
    const action = targetOf(event).dataset.action;
    if (action) this.app.override(/** @type {Action} */ (action), [sample]);
    else if (event.shiftKey && this.list.includes(this.app.focus)) this.selectTo(sample);
    else if (event.ctrlKey || event.metaKey) this.app.select([sample], this.app.selected[sample] ? "remove" : "add");
    this.app.setFocus(sample);
  }

  /** Everything from the sample in focus to this one. @param {number} sample */
  selectTo(sample) {
    const ends = [this.list.indexOf(this.app.focus), this.list.indexOf(sample)].toSorted((a, b) => a - b);
    this.app.select(this.list.subarray(ends[0], ends[1] + 1), "add");
  }

  /** @param {Event} event */
  sampleOf(event) {
    const cell = targetOf(event).closest(".cell");
    return cell instanceof HTMLElement ? Number(cell.dataset.sample) : -1;
  }

  /** @param {KeyboardEvent} event */
  onKeyDown(event) {
    const rows = Math.max(1, Math.floor(this.element.clientHeight / CELL.height));
    /** @type {Record<string, number>} */
    const steps = {
      ArrowRight: 1,
      ArrowLeft: -1,
      ArrowDown: this.across,
      ArrowUp: -this.across,
      PageDown: rows * this.across,
      PageUp: -rows * this.across,
      Home: -Infinity,
      End: Infinity,
    };
    if (!(event.key in steps) || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation();
    this.step(steps[event.key], event.shiftKey);
  }

  /** Go some samples on in the gallery's order; with shift, select them on the way. @param {number} steps */
  step(steps, selecting = false) {
    const { app, list } = this;
    if (!list.length) return;
    const now = list.indexOf(app.focus);
    const next = now < 0 ? 0 : Math.max(0, Math.min(list.length - 1, now + steps));
    if (selecting && now >= 0) app.select(list.subarray(Math.min(now, next), Math.max(now, next) + 1), "add");
    app.setFocus(list[next]);
  }

  revealFocus() {
    const place = this.list.indexOf(this.app.focus);
    if (place < 0) return;
    const top = Math.floor(place / this.across) * CELL.height;
    const { scrollTop, clientHeight } = this.element;
    if (top < scrollTop) this.element.scrollTop = top;
    else if (top + CELL.height > scrollTop + clientHeight) this.element.scrollTop = top + CELL.height - clientHeight;
    this.drawCells();
  }
}
