// The list of classes: colour, kept, dropped, share. A click or the arrow keys choose the class shown.

import { at, make, say } from "./dom.js";
import { count, percent, short } from "./numbers.js";
import { classColour } from "./palette.js";

export class ClassList {
  topics = ["decision", "settings", "class", "document"];

  /** @param {import("./app.js").App} app */
  constructor(app) {
    this.app = app;
    this.list = at("class-list");
    this.sort = null;
    this.rows = [-1, ...app.document.classes.keys()].map((index) => this.makeRow(index));
    this.list.append(...this.rows.map((row) => row.element));
    this.list.addEventListener("keydown", (event) => this.step(event));
    for (const button of document.querySelectorAll(".class-head [data-sort]")) {
      button.addEventListener("click", () => this.sortBy(button));
    }
  }

  makeRow(index) {
    const { app } = this;
    const name = index < 0 ? "all classes" : app.document.classes[index];
    const cells = { kept: make("span.number"), dropped: make("span.number"), share: make("span.number.share") };
    const bar = make("i");
    const element = make(
      "div.class-row",
      { id: `class-${index}`, data: { class: index }, on: { click: () => this.toggle(index) } },
      make("span.class-name", {}, make("i.swatch"), name),
      cells.kept,
      cells.dropped,
      cells.share,
      make("i.bar", {}, bar)
    );
    if (index >= 0) element.style.setProperty("--class", classColour(index));
    element.setAttribute("role", "option");
    return { index, element, cells, bar, name };
  }

  /** A second click shows all again. */
  toggle(index) {
    this.app.showClass(this.app.classShown === index ? -1 : index);
  }

  render() {
    const { app } = this;
    const { document } = app;
    for (const { index, element, cells, bar, name } of this.rows) {
      const { kept, dropped, share } = document.counts(index);
      say(cells.kept, count(kept));
      say(cells.dropped, count(dropped));
      say(cells.share, (100 * share).toFixed(1));
      bar.style.width = `${100 * share}%`;
      const eps = index < 0 ? "" : `, eps ${short(document.settings.eps[index])}`;
      const label = `${name}: ${count(kept)} kept, ${count(dropped)} dropped, ${percent(share)}${eps}`;
      if (element.title !== label) {
        element.title = label;
        element.setAttribute("aria-label", label);
      }
      element.classList.toggle("lost", kept === 0 && dropped > 0);
      element.setAttribute("aria-selected", String(index === app.classShown));
    }
    this.list.setAttribute("aria-activedescendant", `class-${app.classShown}`);
    if (this.shown !== app.classShown) {
      this.shown = app.classShown;
      this.list.querySelector(`#class-${CSS.escape(String(app.classShown))}`).scrollIntoView({ block: "nearest" });
    }
  }

  step(event) {
    const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const ends = { Home: 0, End: this.rows.length - 1 };
    if (!move && !(event.key in ends)) return;
    event.preventDefault();
    event.stopPropagation();
    const now = this.rows.findIndex((row) => row.index === this.app.classShown);
    const next = move ? Math.max(0, Math.min(this.rows.length - 1, now + move)) : ends[event.key];
    this.app.showClass(this.rows[next].index);
  }

  /** By a column, largest first; a second click puts the classes' own order back. */
  sortBy(button) {
    this.sort = this.sort === button.dataset.sort ? null : button.dataset.sort;
    for (const other of document.querySelectorAll(".class-head [data-sort]")) {
      other.classList.toggle("sorted", other.dataset.sort === this.sort);
    }
    const value = (row) => (this.sort ? -this.app.document.counts(row.index)[this.sort] : row.index);
    const [all, ...rest] = this.rows.toSorted((a, b) => (a.index < 0 ? -1 : b.index < 0 ? 1 : value(a) - value(b)));
    this.rows = [all, ...rest];
    this.list.append(...this.rows.map((row) => row.element));
  }
}
