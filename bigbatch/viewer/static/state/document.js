// One filter's result as the page holds it: columns fetched once, settings, and what they decide.

import { OVERRIDE, PAPER, markDropped, epsForFraction, mergeSorted, sortEpsStarByClass } from "./decision.js";
/** @import { Series } from "../panels/accuracy.js" */
/** @import { Api } from "../server/api.js" */
/** @import { Action } from "./app.js" */

/**
 * @typedef {Object} Settings
 * @property {"fraction" | "paper" | "manual"} mode
 * @property {number} min_samples
 * @property {number} drop
 * @property {boolean} per_class
 * @property {Float64Array} eps  of each class; NaN for a class without points
 *
 * @typedef {Omit<Settings, "eps"> & {eps: (number | null)[]}} JsonSettings  as the server has them
 *
 * @typedef {Object} About  an entry of /api/documents
 * @property {string} id
 * @property {string} name
 * @property {number} samples
 * @property {string[]} classes
 * @property {string} dataset
 * @property {string | null} network
 * @property {number} revision
 * @property {JsonSettings} settings
 * @property {number} min_samples_max
 * @property {string[]} columns
 * @property {ImageLayout | null} images
 * @property {string[]} notes
 *
 * @typedef {Object} ImageLayout  how thumbnails lie on a sprite: row by row, in the order asked for
 * @property {number} width
 * @property {number} height
 * @property {number} across
 * @property {number} per_sprite
 * @property {boolean} shrunk  whether the images themselves are larger
 *
 * @typedef {Object} LogEntry  one override
 * @property {string} at
 * @property {Action} action
 * @property {number} count
 * @property {string} reason
 * @property {boolean} undone
 * @property {boolean} in_source
 */

export class FilterDocument {
  /** @param {Api} api @param {About} about */
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
    /** @type {{entries: LogEntry[], can_undo: boolean, can_redo: boolean}} */
    this.log = { entries: [], can_undo: false, can_redo: false };
    /** @type {string | null} why the settings on the screen are not the ones that are saved */
    this.unsaved = null;
    /** @type {Promise<void>} the last write that was sent */
    this.pending = Promise.resolve();
    /** writes that the server has not answered yet */
    this.writes = 0;
    this.saveWaits = false;
    /** @type {AbortController | null} of the request for another min_samples */
    this.fetching = null;
    /** @type {Series[]} */
    this.accuracy = [];
    /** @type {Int32Array | null} */
    this.clusters = null;
    /** @type {string | null} the settings that the clusters belong to */
    this.clustersOf = null;
    /** @type {string | null} the settings of the newest request for clusters */
    this.clustersWanted = null;
    this.position = new Float32Array(0);
    this.label = new Uint16Array(0);
    this.considered = new Uint8Array(0);
    /** of each sample, as on the screen */
    this.override = new Int8Array(0);
    /** of each sample, as the server has it */
    this.savedOverride = new Int8Array(0);
    /** @type {{value: number, samples: number[]}[]} overrides on the screen that the server has not confirmed */
    this.unconfirmed = [];
    /** @type {Float64Array} */
    this.epsStar = new Float64Array(0);
    /** @type {Int32Array | null} */
    this.prediction = null;
    /** @type {Float32Array | null} */
    this.confidence = null;
    /** @type {Float32Array | null} */
    this.loss = null;
    /** @type {Float64Array[] | null} */
    this.sorted = null;
    /** @type {Float64Array | null} */
    this.sortedAll = null;
    this.numbers = Uint32Array.from({ length: this.samples }, (_, sample) => sample);
    this.samplesOfClass = new Uint32Array(this.classes.length);
  }

  /** Fetch all columns. */
  async load() {
    const [position, label, considered, override, epsStar, prediction, confidence, loss] = await Promise.all([
      this.fetchColumn("position"),
      this.fetchColumn("label"),
      this.fetchColumn("considered"),
      this.fetchColumn("override"),
      this.fetchEpsStar(this.settings.min_samples),
      this.fetchOptionalColumn("prediction"),
      this.fetchOptionalColumn("confidence"),
      this.fetchOptionalColumn("loss"),
    ]);
    this.position = new Float32Array(position);
    this.label = new Uint16Array(label);
    this.considered = new Uint8Array(considered);
    this.setSavedOverride(new Int8Array(override));
    this.setEpsStar(epsStar);
    this.prediction = prediction && new Int32Array(prediction);
    this.confidence = confidence && new Float32Array(confidence);
    this.loss = loss && new Float32Array(loss);
    for (const own of this.label) this.samplesOfClass[own]++;
    this.decide();
  }

  /** @param {string} name */
  fetchColumn(name) {
    return this.api.getBytes(`${this.id}/columns/${name}`);
  }

  /** Null where the file has no such column. @param {string} name */
  async fetchOptionalColumn(name) {
    return this.about.columns.includes(name) ? this.fetchColumn(name) : null;
  }

  /** @param {number} minSamples @param {AbortSignal} [signal] */
  async fetchEpsStar(minSamples, signal) {
    return new Float64Array(await this.api.getBytes(`${this.id}/columns/eps_star?min_samples=${minSamples}`, signal));
  }

  /** @param {Float64Array} epsStar */
  setEpsStar(epsStar) {
    this.epsStar = epsStar;
    this.sorted = null;
    this.sortedAll = null;
  }

  /** eps* in ascending order: of each class, computed on first use. */
  sortedEpsStar() {
    this.sorted ??= sortEpsStarByClass(this, this.classes.length);
    return this.sorted;
  }

  /** eps* of all classes in ascending order. */
  sortedEpsStarOfAll() {
    this.sortedAll ??= mergeSorted(this.sortedEpsStar());
    return this.sortedAll;
  }

  /** Set eps by the mode; manual does not change it. */
  fillEps() {
    const { mode, drop, per_class: perClass } = this.settings;
    if (mode === "paper") this.settings.eps = this.sameEpsForAll(PAPER.eps);
    if (mode === "fraction") {
      this.settings.eps = epsForFraction(this.sortedEpsStar(), () => this.sortedEpsStarOfAll(), drop, perClass);
    }
  }

  /** One eps for every class that has points. @param {number} eps */
  sameEpsForAll(eps) {
    return Float64Array.from(this.settings.eps, (old) => (Number.isNaN(old) ? NaN : eps));
  }

  /** The server's overrides; those that are still on their way to it come on top. @param {Int8Array<ArrayBuffer>} saved */
  setSavedOverride(saved) {
    this.savedOverride = saved;
    this.override = saved.slice();
    for (const { value, samples } of this.unconfirmed) for (const sample of samples) this.override[sample] = value;
  }

  decide() {
    markDropped(this, this.settings.eps, this.dropped, this.droppedOfClass);
  }

  /** Settings as the server takes them. */
  settingsAsJson() {
    return { ...this.settings, eps: Array.from(this.settings.eps, (eps) => (Number.isFinite(eps) ? eps : null)) };
  }

  /** Whether a sample is dropped, and by what, as text. @param {number} sample */
  decisionOf(sample) {
    const by = this.override[sample];
    if (by === OVERRIDE.keep) return { dropped: false, words: "kept by you" };
    if (by === OVERRIDE.drop) return { dropped: true, words: "dropped by you" };
    if (!this.considered[sample]) return { dropped: true, words: "dropped by an earlier filter" };
    const dropped = this.dropped[sample] === 1;
    return { dropped, words: dropped ? "dropped by the filter" : "kept by the filter" };
  }

  /** Kept and dropped of a class, or of all (-1). */
  counts(index = -1) {
    const dropped = index < 0 ? this.droppedOfClass.reduce((sum, count) => sum + count, 0) : this.droppedOfClass[index];
    const total = index < 0 ? this.samples : this.samplesOfClass[index];
    return { total, dropped, kept: total - dropped, fraction: total ? dropped / total : 0 };
  }
}

/** @returns {Settings} @param {JsonSettings} given */
export function readSettings(given) {
  return { ...given, eps: Float64Array.from(given.eps, (eps) => eps ?? NaN) };
}
