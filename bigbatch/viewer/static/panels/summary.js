// The reduction table, like Table I of Gahlot et al. 2020: what fraction of the samples each network's filter keeps.

import { byId, make } from "../ui/dom.js";
import { count, percent, short } from "../ui/formatting.js";
/** @import { App, Topic } from "../state/app.js" */
/** @import { FilterDocument } from "../state/document.js" */

export class SummaryTable {
  /** @type {Topic[]} */
  topics = ["decision", "settings", "document", "tab", "overrides"];

  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.panel = byId("summary-panel");
  }

  render() {
    if (this.panel.hidden) return;
    const notes = this.app.document.about.notes.map((note) => make("p.hint", {}, note));
    const copy = make("button", { on: { click: () => this.copyMarkdown() } }, "Copy as Markdown");
    this.panel.replaceChildren(...this.tables().map(([head, rows]) => makeTable(head, rows)), copy, ...notes);
  }

  /** Head and rows: of all documents, then of the active one's classes. @returns {[string[], string[][]][]} */
  tables() {
    const { documents, document } = this.app;
    const ofClasses = document.classes.map((name, index) => classRow(document, name, index));
    return [
      [["network", "kept", "samples", "dropped"], documents.map(documentRow)],
      [["class", "kept", "dropped", "%", "eps"], ofClasses],
    ];
  }

  async copyMarkdown() {
    const texts = this.tables().map(([head, rows]) => toMarkdown(head, rows));
    await navigator.clipboard.writeText(texts.join("\n\n"));
    this.app.notices.show("The table is on the clipboard.");
  }
}

/** @param {FilterDocument} document */
function documentRow(document) {
  const { kept, dropped, fraction } = document.counts();
  return [document.about.network || document.name, percent(1 - fraction, 2), count(kept), count(dropped)];
}

/** @param {FilterDocument} document @param {string} name @param {number} index */
function classRow(document, name, index) {
  const { kept, dropped, fraction } = document.counts(index);
  return [name, count(kept), count(dropped), (100 * fraction).toFixed(2), short(document.settings.eps[index])];
}

/**
 * A table whose first column is text and whose other ones are numbers.
 * @param {string[]} head
 * @param {string[][]} rows
 */
export function makeTable(head, rows) {
  /** @param {string[]} cells @param {"th" | "td"} tag */
  const line = (cells, tag) => make("tr", {}, ...cells.map((cell) => make(tag, {}, cell)));
  return make(
    "table.numbers",
    {},
    make("thead", {}, line(head, "th")),
    make("tbody", {}, ...rows.map((row) => line(row, "td")))
  );
}

/** @param {string[]} head @param {string[][]} rows */
function toMarkdown(head, rows) {
  /** @param {string[]} cells */
  const line = (cells) => `| ${cells.join(" | ")} |`;
  return [line(head), line(head.map((_, i) => (i ? "---:" : "---"))), ...rows.map(line)].join("\n");
}
