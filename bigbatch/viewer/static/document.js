// One filter's result as the page holds it: columns fetched once, settings, and what they decide.

import { OVERRIDE, PAPER, decide, epsOfFraction, merged, sortedByClass } from "./decide.js";

/**
 * @typedef {Object} Settings
 * @property {"fraction" | "paper" | "manual"} mode
 * @property {number} min_samples
 * @property {number} drop
 * @property {boolean} per_class
 * @property {Float64Array} eps  of each class; NaN for a class without points
 */

const OPTIONAL = { prediction: Int32Array, confidence: Float32Array, loss: Float32Array };

export class Document {
  /** @param {import("./api.js").Api} api @param {Object} about  an entry of /api/documents */
  constructor(api, about) {
    this.api = api;
    this.id = about.id;
    this.name = about.name;
    this.samples = about.samples;
    /** @type {string[]} */
    this.classes = about.classes;
    this.about = about;
    this.revision = about.revision;
    this.settings = readSettings(about.settings);
    this.dropped = new Uint8Array(this.samples);
    this.droppedOfClass = new Uint32Array(this.classes.length);
    this.log = { entries: [], can_undo: false, can_redo: false };
    /** @type {string | null} why the settings on the screen are not the ones that are saved */
    this.unsaved = null;
    this.prediction = this.confidence = this.loss = null;
  }

  /** Fetch all columns. */
  async load() {
    const fetchColumn = async (name, Type) => new Type(await this.api.bytes(`${this.id}/columns/${name}`));
    const optional = Object.entries(OPTIONAL).filter(([name]) => this.about.columns.includes(name));
    const [position, label, lookedAt, override, epsStar] = await Promise.all([
      fetchColumn("position", Float32Array),
      fetchColumn("label", Uint16Array),
      fetchColumn("looked_at", Uint8Array),
      fetchColumn("override", Int8Array),
      this.fetchEpsStar(this.settings.min_samples),
      ...optional.map(async ([name, Type]) => {
        this[name] = await fetchColumn(name, Type);
      }),
    ]);
    Object.assign(this, { position, label, lookedAt, override });
    this.setEpsStar(epsStar);
    this.numbers = new Uint32Array(this.samples);
    for (let sample = 0; sample < this.samples; sample++) this.numbers[sample] = sample;
    this.samplesOfClass = new Uint32Array(this.classes.length);
    for (const own of label) this.samplesOfClass[own]++;
    this.decide();
  }

  async fetchEpsStar(minSamples, signal) {
    return new Float64Array(await this.api.bytes(`${this.id}/columns/eps_star?min_samples=${minSamples}`, signal));
  }

  setEpsStar(epsStar) {
    this.epsStar = epsStar;
    this.sorted = null;
    this.sortedAll = null;
  }

  /** eps* in ascending order: of each class, made when it is first asked for. */
  sortedEpsStar() {
    this.sorted ??= sortedByClass(this, this.classes.length);
    return this.sorted;
  }

  /** eps* of all classes in ascending order. */
  sortedEpsStarOfAll() {
    this.sortedAll ??= merged(this.sortedEpsStar());
    return this.sortedAll;
  }

  /** Let the mode fill in eps: manual leaves it as it stands. */
  fillEps() {
    const { mode, drop, per_class: perClass } = this.settings;
    if (mode === "paper") this.settings.eps = this.everywhere(PAPER.eps);
    if (mode === "fraction") {
      this.settings.eps = epsOfFraction(this.sortedEpsStar(), () => this.sortedEpsStarOfAll(), drop, perClass);
    }
  }

  /** One eps for every class that has points. */
  everywhere(eps) {
    return Float64Array.from(this.settings.eps, (old) => (Number.isNaN(old) ? NaN : eps));
  }

  decide() {
    decide(this, this.settings.eps, this.dropped, this.droppedOfClass);
  }

  /** Settings as the server takes them. */
  settingsAsJson() {
    return { ...this.settings, eps: Array.from(this.settings.eps, (eps) => (Number.isFinite(eps) ? eps : null)) };
  }

  /** What is known of one sample's fate, in words. */
  fateOf(sample) {
    const by = this.override[sample];
    if (by === OVERRIDE.keep) return { dropped: false, words: "kept by you" };
    if (by === OVERRIDE.drop) return { dropped: true, words: "dropped by you" };
    if (!this.lookedAt[sample]) return { dropped: true, words: "dropped by an earlier filter" };
    const dropped = this.dropped[sample] === 1;
    return { dropped, words: dropped ? "dropped by the filter" : "kept by the filter" };
  }

  /** Kept and dropped of a class, or of all (-1). */
  counts(index = -1) {
    const dropped = index < 0 ? this.droppedOfClass.reduce((sum, count) => sum + count, 0) : this.droppedOfClass[index];
    const total = index < 0 ? this.samples : this.samplesOfClass[index];
    return { total, dropped, kept: total - dropped, share: total ? dropped / total : 0 };
  }
}

/** @returns {Settings} */
export function readSettings(given) {
  return { ...given, eps: Float64Array.from(given.eps, (eps) => eps ?? NaN) };
}
