// What the page knows, what a person can do to it, and the one place that says in which order panels are drawn.

import { Gone, Refused } from "./api.js";
import { OVERRIDE, PAPER } from "./decide.js";
import { readSettings } from "./document.js";
import { count } from "./numbers.js";

const MOST_SAMPLES_BY_NAME = 2000; // more travel as a bitmask

/**
 * @typedef {Object} Panel
 * @property {string[]} topics  what it shows; it is drawn again when one of them has changed
 * @property {(changed: Set<string>) => void} render
 */

export class App {
  /**
   * @param {import("./api.js").Api} api
   * @param {import("./document.js").Document[]} documents  of one dataset
   * @param {import("./notices.js").Notices} notices
   */
  constructor(api, documents, notices) {
    this.api = api;
    this.documents = documents;
    this.notices = notices;
    /** the document that controls, gallery and log belong to */
    this.active = 0;
    /** what maps and galleries of all documents share */
    this.selected = new Uint8Array(documents[0].samples);
    this.selectedCount = 0;
    /** why the selection is kept or dropped, as it stands beside it */
    this.reason = "";
    this.focus = -1;
    this.hover = -1;
    this.classShown = -1;
    this.colourBy = "class";
    this.dropLook = "dark";
    this.tool = "pan";
    this.theme = "light";
    /** the sample that an override was just made for: the gallery goes on from its place */
    this.acted = -1;
    /** @type {Panel[]} */
    this.panels = [];
    this.dirty = new Set();
    for (const document of documents) document.pending = Promise.resolve();
  }

  get document() {
    return this.documents[this.active];
  }

  // ---- drawing

  /** Something has changed: draw what shows it, once, at the next frame. */
  changed(...topics) {
    if (this.dirty.size === 0) requestAnimationFrame(() => this.frame());
    for (const topic of topics) this.dirty.add(topic);
  }

  frame() {
    const started = performance.now();
    const changed = this.dirty;
    this.dirty = new Set();
    if (changed.has("decision")) for (const document of this.documents) document.decide();
    for (const panel of this.panels) {
      if (panel.topics.some((topic) => changed.has(topic))) panel.render(changed);
    }
    performance.clearMeasures("change");
    performance.measure("change", { start: started, detail: [...changed] });
  }

  // ---- looking

  setActive(index) {
    if (index === this.active) return;
    this.active = index;
    this.changed("document", "decision", "log", "class", "focus");
  }

  showClass(index) {
    this.classShown = index;
    this.changed("class");
  }

  setFocus(sample) {
    if (sample === this.focus) return;
    this.focus = sample;
    this.changed("focus");
  }

  setHover(sample) {
    if (sample === this.hover) return;
    this.hover = sample;
    this.changed("hover");
  }

  setTool(tool) {
    this.tool = tool;
    this.changed("tool");
  }

  setLook(look) {
    Object.assign(this, look);
    this.changed("look");
  }

  /** @param {number[]} samples @param {"replace" | "add" | "remove"} how */
  select(samples, how = "replace") {
    if (how === "replace") this.selected.fill(0);
    for (const sample of samples) this.selected[sample] = how === "remove" ? 0 : 1;
    this.selectedCount = this.selected.reduce((sum, bit) => sum + bit, 0);
    if (this.selectedCount === 0) this.reason = ""; // nobody sees it any more, so it is no reason for what comes next
    this.changed("selection");
  }

  // ---- settings of the filter

  /** Change settings on the screen at once; `save` when the hand is off the slider. */
  set(change) {
    const { document } = this;
    Object.assign(document.settings, change);
    document.fillEps();
    this.changed("decision", "settings");
  }

  /** An eps for the class shown, or for all: from now on by hand. */
  setEps(eps) {
    const { document, classShown } = this;
    const all = classShown < 0 ? document.everywhere(eps) : document.settings.eps.slice();
    if (classShown >= 0) all[classShown] = eps;
    this.set({ mode: "manual", eps: all });
  }

  async setMode(mode) {
    if (mode === "paper" && this.document.settings.min_samples !== PAPER.min_samples) {
      if (!(await this.fetchMinSamples(PAPER.min_samples))) return;
    }
    this.set({ mode });
    this.save();
  }

  /** Another min_samples is another eps* column; the paper's mode has none but 5. */
  async setMinSamples(minSamples) {
    const { settings } = this.document;
    if (!(await this.fetchMinSamples(minSamples))) return;
    this.set(settings.mode === "paper" && minSamples !== PAPER.min_samples ? { mode: "manual" } : {});
    this.save();
  }

  /** False where a newer wish has overtaken this one, or the server could not answer. */
  async fetchMinSamples(minSamples) {
    const { document } = this;
    document.fetching?.abort();
    const fetching = new AbortController();
    document.fetching = fetching;
    try {
      const epsStar = await document.fetchEpsStar(minSamples, fetching.signal);
      document.setEpsStar(epsStar);
      document.settings.min_samples = minSamples;
      return true;
    } catch (problem) {
      if (fetching.signal.aborted) return false;
      this.report(problem);
      this.changed("settings");
      return false;
    }
  }

  /** Send the settings; of several wishes made while one is under way only the last is sent. */
  save(document = this.document) {
    if (document.saveWaits) return document.pending;
    document.saveWaits = true;
    return this.write(document, async () => {
      document.saveWaits = false;
      try {
        const { revision } = await this.api.post(`${document.id}/settings`, document.settingsAsJson());
        document.unsaved = null;
        await this.advance(document, revision, { settings: false });
      } catch (problem) {
        document.unsaved = problem.message;
        throw problem;
      } finally {
        this.changed("saved");
      }
    });
  }

  // ---- overrides

  /** The samples that keep, drop and reset are for: the selection, or else the one in focus. */
  targets() {
    if (this.selectedCount === 0) return this.focus < 0 ? [] : [this.focus];
    const samples = [];
    for (let i = 0; i < this.selected.length; i++) if (this.selected[i]) samples.push(i);
    return samples;
  }

  /** @param {"keep" | "drop" | "reset"} action */
  override(action, samples = this.targets()) {
    const { document } = this;
    const reason = this.reason.trim();
    if (samples.length === 0) {
      this.notices.tell("Select samples or step to one first: then keep, drop or reset them.");
      return Promise.resolve();
    }
    return this.write(document, async () => {
      const body = { action, reason, ...named(samples, document.samples) };
      const { revision } = await this.api.post(`${document.id}/overrides`, body);
      const value = OVERRIDE[action] ?? OVERRIDE.none;
      for (const sample of samples) document.override[sample] = value;
      this.acted = samples.length === 1 ? samples[0] : -1;
      const done = { keep: "kept", drop: "dropped", reset: "left to the filter again" }[action];
      this.notices.tell(`${count(samples.length)} ${samples.length === 1 ? "sample" : "samples"} ${done}`);
      this.changed("decision", "overrides");
      await this.advance(document, revision);
      await this.fetchLog(document);
    });
  }

  undo() {
    return this.step("undo");
  }

  redo() {
    return this.step("redo");
  }

  step(direction) {
    const { document } = this;
    return this.write(document, async () => {
      if (!document.log[`can_${direction}`]) {
        this.notices.tell(`There is nothing to ${direction}.`);
        return;
      }
      const { revision } = await this.api.post(`${document.id}/${direction}`);
      await this.advance(document, revision);
      await this.fetchOverrides(document);
      this.notices.tell(direction === "undo" ? "Undone" : "Done again");
    });
  }

  // ---- keeping in step with the server

  /** One write after another, so that revisions come in order; a problem is told and harms no later one. */
  write(document, send) {
    document.pending = document.pending.then(send).catch((problem) => this.report(problem));
    return document.pending;
  }

  /** Our own write made `revision`. Where it is not the next one, somebody else has written in between. */
  async advance(document, revision, { settings = true } = {}) {
    const alone = revision === document.revision + 1;
    document.revision = revision;
    const ownToSend = document.saveWaits || document.unsaved !== null;
    if (!alone) await this.refresh(document, { settings: settings && !ownToSend });
  }

  /** Fetch what another tab may have changed. */
  async refresh(document, { settings = true } = {}) {
    const { documents } = await this.api.get("documents");
    const about = documents.find((entry) => entry.id === document.id);
    if (settings) {
      document.revision = about.revision; // else left behind, so that settings newer than our own are heard of
      const changed = readSettings(about.settings);
      if (changed.min_samples !== document.settings.min_samples) {
        document.setEpsStar(await document.fetchEpsStar(changed.min_samples));
      }
      document.settings = changed;
    }
    await this.fetchOverrides(document);
    this.changed("decision", "settings");
  }

  async fetchOverrides(document) {
    document.override = new Int8Array(await this.api.bytes(`${document.id}/columns/override`));
    this.changed("decision", "overrides");
    await this.fetchLog(document);
  }

  async fetchLog(document) {
    document.log = await this.api.get(`${document.id}/overrides`);
    this.changed("log");
  }

  /** A problem in words: a server that is gone or new has a banner of its own. */
  report(problem) {
    if (problem instanceof Gone) this.notices.gone();
    else if (problem instanceof Refused && problem.status === 401) this.notices.restarted();
    else if (problem instanceof Refused) this.notices.tell(problem.message, "problem");
    else throw problem;
  }
}

/** A list of samples, or for many a bitmask: sample i is bit i % 8 of byte i / 8. */
function named(samples, total) {
  if (samples.length <= MOST_SAMPLES_BY_NAME) return { samples: Array.from(samples) };
  const bytes = new Uint8Array(Math.ceil(total / 8));
  for (const sample of samples) bytes[sample >> 3] |= 1 << (sample & 7);
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return { bits: btoa(text) };
}
