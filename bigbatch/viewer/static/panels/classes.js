// The list of classes: colour, kept, dropped, fraction. A click or the arrow keys choose the class shown.

import { buttonsIn, byId, make, setText } from "../ui/dom.js";
import { count, percent, short } from "../ui/formatting.js";
import { classColour } from "../map/palette.js";
/** @import { App, Topic } from "../state/app.js" */

/** @typedef {ReturnType<ClassList["makeRow"]>} ClassRow */

export class ClassList {
  /** @type {Topic[]} */
  topics = ["decision", "settings", "class", "document"];

  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.list = byId("class-list");
    /** @type {"kept" | "dropped" | "fraction" | null} */
    this.sort = null;
    this.shown = app.classShown; // the page opens at its top

    this.rows = [-1, ...app.document.classes.keys()].map((index) => this.makeRow(index));
    this.list.append(...this.rows.map((row) => row.element));
    this.list.addEventListener("keydown", (event) => this.onKeyDown(event));
    for (const button of buttonsIn(document, ".class-head [data-sort]")) {
      button.addEventListener("click", () => this.sortBy(button));
    }
  }

  /** @param {number} index */
  makeRow(index) {
    const { app } = this;
    const name = index < 0 ? "all classes" : app.document.classes[index];
    const cells = { kept: make("span.number"), dropped: make("span.number"), fraction: make("span.number.fraction") };
    const bar = make("i");
    const element = make(
      "div.class-row",
      { id: `class-${index}`, data: { class: index }, on: { click: () => this.toggle(index) } },
      make("span.class-name", {}, make("i.swatch"), name),
      cells.kept,
      cells.dropped,
      cells.fraction,
      make("i.bar", {}, bar)
    );
    if (index >= 0) element.style.setProperty("--class", classColour(index));
    element.setAttribute("role", "option");
    return { index, element, cells, bar, name };
  }

  /** A second click shows all again. @param {number} index */
  toggle(index) {
    this.app.showClass(this.app.classShown === index ? -1 : index);
  }

  render() {
    const { app } = this;
    const { document } = app;
    for (const { index, element, cells, bar, name } of this.rows) {
      const { kept, dropped, fraction } = document.counts(index);
      setText(cells.kept, count(kept));
      setText(cells.dropped, count(dropped));
      setText(cells.fraction, (100 * fraction).toFixed(1));
      bar.style.width = `${100 * fraction}%`;
      const eps = index < 0 ? "" : `, eps ${short(document.settings.eps[index])}`;
      const label = `${name}: ${count(kept)} kept, ${count(dropped)} dropped, ${percent(fraction)}${eps}`;
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
      byId(`class-${app.classShown}`).scrollIntoView({ block: "nearest" });
    }
  }

  /** @param {KeyboardEvent} event */
  onKeyDown(event) {
    const last = this.rows.length - 1;
    const now = this.rows.findIndex((row) => row.index === this.app.classShown);
    /** @type {Record<string, number>} */
    const places = { ArrowDown: Math.min(now + 1, last), ArrowUp: Math.max(now - 1, 0), Home: 0, End: last };
    if (!(event.key in places)) return;
    event.preventDefault();
    event.stopPropagation();
    this.app.showClass(this.rows[places[event.key]].index);
  }

  /**
   * By a column, largest first; a second click puts the classes' own order back.
   * @param {HTMLElement} button
   */
  sortBy(button) {
    const column = /** @type {"kept" | "dropped" | "fraction"} */ (button.dataset.sort);
    this.sort = this.sort === column ? null : column;
    for (const other of buttonsIn(document, ".class-head [data-sort]")) {
      other.classList.toggle("sorted", other.dataset.sort === this.sort);
    }
    /** @param {ClassRow} row */
    const value = (row) => (this.sort ? -this.app.document.counts(row.index)[this.sort] : row.index);
    const [all, ...rest] = this.rows.toSorted((a, b) => (a.index < 0 ? -1 : b.index < 0 ? 1 : value(a) - value(b)));
    this.rows = [all, ...rest];
    this.list.append(...this.rows.map((row) => row.element));
  }
}
