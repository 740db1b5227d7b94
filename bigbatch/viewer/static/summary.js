// The reduction table, like Table I of Gahlot et al. 2020: what share of the samples each network's filter keeps.

import { at, make } from "./dom.js";
import { count, percent, short } from "./numbers.js";

export class Summary {
  topics = ["decision", "settings", "document", "tab", "overrides"];

  /** @param {import("./app.js").App} app */
  constructor(app) {
    this.app = app;
    this.panel = at("summary-panel");
  }

  render() {
    if (this.panel.hidden) return;
    const notes = this.app.document.about.notes.map((note) => make("p.hint", {}, note));
    const copy = make("button", { on: { click: () => this.copy() } }, "Copy as Markdown");
    this.panel.replaceChildren(...this.tables().map(([head, rows]) => table(head, rows)), copy, ...notes);
  }

  /** Head and rows: of all documents, then of the active one's classes. */
  tables() {
    const { documents, document } = this.app;
    const ofClasses = document.classes.map((name, index) => classRow(document, name, index));
    return [
      [["network", "kept", "samples", "dropped"], documents.map(reductionRow)],
      [["class", "kept", "dropped", "%", "eps"], ofClasses],
    ];
  }

  async copy() {
    const texts = this.tables().map(([head, rows]) => markdown(head, rows));
    await navigator.clipboard.writeText(texts.join("\n\n"));
    this.app.notices.tell("The table is on the clipboard.");
  }
}

function reductionRow(document) {
  const { kept, dropped, share } = document.counts();
  return [document.about.network || document.name, percent(1 - share, 2), count(kept), count(dropped)];
}

function classRow(document, name, index) {
  const { kept, dropped, share } = document.counts(index);
  return [name, count(kept), count(dropped), (100 * share).toFixed(2), short(document.settings.eps[index])];
}

/** A table whose first column is text and whose other ones are numbers. */
export function table(head, rows) {
  const line = (cells, tag) => make("tr", {}, ...cells.map((cell) => make(tag, {}, cell)));
  return make(
    "table.numbers",
    {},
    make("thead", {}, line(head, "th")),
    make("tbody", {}, ...rows.map((row) => line(row, "td")))
  );
}

function markdown(head, rows) {
  const line = (cells) => `| ${cells.join(" | ")} |`;
  return [line(head), line(head.map((_, i) => (i ? "---:" : "---"))), ...rows.map(line)].join("\n");
}
