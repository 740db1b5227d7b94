// Pictures of the samples that are dropped (or kept, overridden, selected), as many rows as can be seen.

import { at, make, say } from "./dom.js";
import { count, short } from "./numbers.js";
import { ascending, descending } from "./order.js";
import { classColour } from "./palette.js";

const CELL = { width: 62, height: 76 };
const LIVE_UP_TO = 200_000; // of more samples the gallery follows when the slider rests
const REST_MS = 150;

const SORTS = {
  eps_star: { name: "eps* ↓", column: (document) => document.epsStar, order: descending },
  eps_star_up: { name: "eps* ↑", column: (document) => document.epsStar, order: ascending },
  loss: { name: "loss ↓", column: (document) => document.loss, order: descending },
  confidence: { name: "confidence ↑", column: (document) => document.confidence, order: ascending },
  sample: { name: "number", column: (document) => document.numbers, order: (numbers) => numbers },
};

export class Gallery {
  topics = ["decision", "overrides", "class", "focus", "selection", "drawn", "document", "tab"];

  /** @param {import("./app.js").App} app @param {import("./thumbnails.js").Thumbnails[]} thumbnails */
  constructor(app, thumbnails) {
    this.app = app;
    this.thumbnails = thumbnails;
    this.element = at("gallery");
    this.space = at("gallery-space");
    /** @type {Uint32Array} the samples shown, in order */
    this.list = new Uint32Array(0);
    this.cells = [];
    this.makeSorts();
    for (const id of ["gallery-show", "gallery-sort"]) at(id).addEventListener("change", () => this.relist());
    this.element.addEventListener("scroll", () => this.drawCells());
    this.element.addEventListener("keydown", (event) => this.key(event));
    this.element.addEventListener("click", (event) => this.click(event));
    this.element.addEventListener("pointerover", (event) => app.setHover(this.sampleOf(event)));
    this.element.addEventListener("pointerleave", () => app.setHover(-1));
    new ResizeObserver(() => this.drawCells()).observe(this.element);
  }

  makeSorts() {
    for (const [name, sort] of Object.entries(SORTS)) {
      const known = this.app.documents.every((document) => sort.column(document) !== null);
      if (known) at("gallery-sort").append(make("option", { value: name }, sort.name));
    }
  }

  get pictures() {
    return this.thumbnails[this.app.active];
  }

  render(changed) {
    if (changed.has("selection")) this.followSelection(changed.has("drawn"));
    if (this.element.closest(".panel").hidden) {
      this.stale = true;
      return;
    }
    const affects = ["decision", "overrides", "class", "document"].some((topic) => changed.has(topic));
    if (affects || this.stale || (changed.has("selection") && at("gallery-show").value === "selected")) {
      clearTimeout(this.resting);
      if (this.app.document.samples > LIVE_UP_TO) this.resting = setTimeout(() => this.relist(), REST_MS);
      else this.relist();
    } else this.drawCells();
    if (changed.has("focus")) this.revealFocus();
  }

  /** What was just drawn around on the map is what a person wants to see; afterwards, what was shown before. */
  followSelection(drawn) {
    const show = at("gallery-show");
    if (drawn && this.app.selectedCount > 0 && show.value !== "selected") {
      this.showAfterwards = show.value;
      show.value = "selected";
    } else if (this.app.selectedCount === 0 && this.showAfterwards) {
      show.value = this.showAfterwards;
      this.showAfterwards = null;
      this.stale = true;
    }
  }

  /** Who is shown, in which order. */
  relist() {
    const { app } = this;
    const before = app.acted < 0 ? -1 : this.list.indexOf(app.acted);
    this.stale = false;
    this.list = this.members();
    say(at("gallery-count"), count(this.list.length));
    this.goOnFrom(before);
    this.drawCells();
  }

  /** Where an override has taken the sample in focus off the list, the one that came after it is next. */
  goOnFrom(before) {
    const { app } = this;
    if (before < 0 || app.focus !== app.acted || this.list.includes(app.focus) || !this.list.length) return;
    app.acted = -1;
    app.setFocus(this.list[Math.min(before, this.list.length - 1)]);
  }

  members() {
    const { app } = this;
    const { document, classShown } = app;
    const belongs = {
      dropped: (i) => document.dropped[i] === 1,
      kept: (i) => document.dropped[i] === 0,
      overridden: (i) => document.override[i] >= 0,
      selected: (i) => app.selected[i] === 1,
    }[at("gallery-show").value];
    const found = new Uint32Array(document.samples);
    let members = 0;
    for (const i of this.order()) {
      if ((classShown < 0 || document.label[i] === classShown) && belongs(i)) found[members++] = i;
    }
    return found.slice(0, members);
  }

  /** All samples in the order chosen: made once for a column. */
  order() {
    const name = at("gallery-sort").value;
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
      if (i < shown) this.fill(cell, first + i, across);
    }
    if (this.app.focus >= 0) element.setAttribute("aria-activedescendant", `sample-${this.app.focus}`);
    else element.removeAttribute("aria-activedescendant");
    this.empty();
  }

  empty() {
    this.hint ??= this.element.appendChild(make("p.hint"));
    this.hint.hidden = this.list.length > 0;
    const show = at("gallery-show").value;
    const nothing = show === "selected" ? "Nothing is selected: draw a lasso or a box." : `No sample is ${show} here.`;
    say(this.hint, nothing);
  }

  makeCell() {
    const canvas = this.pictures.any ? make("canvas") : make("div.plain");
    const words = make("span");
    // for the mouse alone: keys k and d do the same, and an option may hold no other control for screen readers
    const button = (action, sign) =>
      make("button", { tabIndex: -1, title: action, data: { action }, aria: { hidden: true } }, sign);
    const element = make("div.cell", {}, canvas, words, button("keep", "✓"), button("drop", "×"));
    element.setAttribute("role", "option");
    this.space.append(element);
    return { element, canvas, words, sample: -1 };
  }

  fill(cell, place, across) {
    const { app } = this;
    const { document } = app;
    const sample = this.list[place];
    const { element } = cell;
    const [x, y] = [(place % across) * CELL.width, Math.floor(place / across) * CELL.height];
    element.style.transform = `translate(${x}px, ${y}px)`;
    element.setAttribute("aria-selected", String(app.selected[sample] === 1));
    element.classList.toggle("focus", sample === app.focus);
    element.dataset.override = { "-1": "none", 0: "drop", 1: "keep" }[document.override[sample]];
    say(cell.words, this.wordsOf(sample));
    // a picture that could not be fetched is asked for again
    if (this.pictures.any && cell.canvas.dataset.drawn !== String(sample)) this.pictures.draw(sample, cell.canvas);
    if (cell.sample === sample && cell.of === document) return;
    Object.assign(cell, { sample, of: document });
    element.id = `sample-${sample}`;
    element.dataset.sample = String(sample);
    const name = document.classes[document.label[sample]];
    element.setAttribute("aria-label", `sample ${sample}, ${name}, eps* ${short(document.epsStar[sample])}`);
    element.style.setProperty("--class", classColour(document.label[sample]));
    if (!this.pictures.any) say(cell.canvas, name);
  }

  wordsOf(sample) {
    const sort = at("gallery-sort").value;
    const value = SORTS[sort].column(this.app.document)[sample];
    return sort === "sample" ? String(value) : short(value);
  }

  // ---- stepping

  click(event) {
    const sample = this.sampleOf(event);
    if (sample < 0) return;
    const action = event.target.dataset.action;
    if (action) this.app.override(action, [sample]);
    else if (event.shiftKey && this.list.includes(this.app.focus)) this.selectTo(sample);
    else if (event.ctrlKey || event.metaKey) this.app.select([sample], this.app.selected[sample] ? "remove" : "add");
    this.app.setFocus(sample);
  }

  /** Everything from the sample in focus to this one. */
  selectTo(sample) {
    const ends = [this.list.indexOf(this.app.focus), this.list.indexOf(sample)].toSorted((a, b) => a - b);
    this.app.select(this.list.subarray(ends[0], ends[1] + 1), "add");
  }

  sampleOf(event) {
    const cell = event.target.closest(".cell");
    return cell ? Number(cell.dataset.sample) : -1;
  }

  key(event) {
    const rows = Math.max(1, Math.floor(this.element.clientHeight / CELL.height));
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

  /** Go some samples on in the gallery's order; with shift, select them on the way. */
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
