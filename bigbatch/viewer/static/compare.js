// Two filters of one dataset: what they agree on, class by class. A click selects those samples in both maps.

import { at, make } from "./dom.js";
import { jaccard, overlap } from "./decide.js";
import { count } from "./numbers.js";
import { table } from "./summary.js";

/** In the order of `overlap`'s rows. */
const GROUPS = ["kept by both", "kept by A only", "kept by B only", "dropped by both"];

export class Compare {
  topics = ["decision", "class", "tab"];

  /** @param {import("./app.js").App} app */
  constructor(app) {
    this.app = app;
    this.panel = at("compare-panel");
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
      term("Jaccard of what is kept", "jaccard-kept", jaccard(shown[0], shown[1], shown[2])),
      term("Jaccard of what is dropped", "jaccard-dropped", jaccard(shown[3], shown[1], shown[2])),
      make("div.groups", {}, ...GROUPS.map((group, i) => this.button(group, i, shown[i]))),
      this.byClass(rows, a.classes)
    );
  }

  button(group, index, samples) {
    const select = () => this.app.select(this.samplesOf(index));
    const about = { data: { group: index }, title: "Select them in both maps", on: { click: select } };
    return make("button", about, make("b", {}, count(samples)), ` ${group}`);
  }

  samplesOf(group) {
    const { documents, classShown } = this.app;
    const [a, b] = documents;
    const found = [];
    for (let i = 0; i < a.samples; i++) {
      if ((classShown < 0 || a.label[i] === classShown) && 2 * a.dropped[i] + b.dropped[i] === group) found.push(i);
    }
    return found;
  }

  byClass(rows, classes) {
    const head = ["class", "both", "only A", "only B", "neither", "Jaccard"];
    return table(
      head,
      rows.map((row, index) => [classes[index], ...row.map(count), jaccard(row[0], row[1], row[2]).toFixed(3)])
    );
  }
}

function term(name, id, value) {
  return make("dl.overlap", {}, make("dt", {}, name), make("dd", { id }, value.toFixed(3)));
}
