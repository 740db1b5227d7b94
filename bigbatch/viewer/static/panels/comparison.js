// Two filters of one dataset: what they agree on, class by class. A click selects those samples in both maps.

import { byId, make } from "../ui/dom.js";
import { jaccard, overlap } from "../state/decision.js";
import { count } from "../ui/formatting.js";
import { makeTable } from "./summary.js";
/** @import { App, Topic } from "../state/app.js" */

/** In the order of `overlap`'s rows. */
const GROUPS = ["kept by both", "kept by A only", "kept by B only", "dropped by both"];

export class Comparison {
  /** @type {Topic[]} */
  topics = ["decision", "class", "tab"];

  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.panel = byId("compare-panel");
  }

  render() {
    if (this.panel.hidden) return;
    const { documents, classShown } = this.app;
    const [a, b] = documents;
    const rows = overlap(a.label, a.dropped, b.dropped, a.classes.length);
    const all = rows.reduce((sum, row) => sum.map((value, i) => value + row[i]), [0, 0, 0, 0]);
    const shown = classShown < 0 ? all : rows[classShown];
    const name = classShown < 0 ? "all classes" : `class ${a.classes[classShown]}`;
    this.panel.replaceChildren(
      make("p.hint", {}, `A is ${a.name}, B is ${b.name}.`),
      make("h3", {}, `Overlap of ${name}`),
      makeTerm("Jaccard of what is kept", "jaccard-kept", jaccard(shown[0], shown[1], shown[2])),
      makeTerm("Jaccard of what is dropped", "jaccard-dropped", jaccard(shown[3], shown[1], shown[2])),
      make("div.groups", {}, ...GROUPS.map((group, i) => this.makeButton(group, i, shown[i]))),
      this.makeClassTable(rows, a.classes)
    );
  }

  /** @param {string} group @param {number} index @param {number} samples */
  makeButton(group, index, samples) {
    const select = () => this.app.select(this.samplesOf(index));
    const about = { data: { group: index }, title: "Select them in both maps", on: { click: select } };
    return make("button", about, make("b", {}, count(samples)), ` ${group}`);
  }

  /** @param {number} group */
  samplesOf(group) {
    const { documents, classShown } = this.app;
    const [a, b] = documents;
    const found = [];
    for (let i = 0; i < a.samples; i++) {
      if ((classShown < 0 || a.label[i] === classShown) && 2 * a.dropped[i] + b.dropped[i] === group) found.push(i);
    }
    return found;
  }

  /** @param {number[][]} rows @param {string[]} classes */
  makeClassTable(rows, classes) {
    const head = ["class", "both", "only A", "only B", "neither", "Jaccard"];
    return makeTable(
      head,
      rows.map((row, index) => [classes[index], ...row.map(count), jaccard(row[0], row[1], row[2]).toFixed(3)])
    );
  }
}

/** @param {string} name @param {string} id @param {number} value */
function makeTerm(name, id, value) {
  return make("dl.overlap", {}, make("dt", {}, name), make("dd", { id }, value.toFixed(3)));
}
