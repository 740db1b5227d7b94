// The state of the page, the actions that change it, and the loop that draws the panels.

import { ServerUnreachable, RequestError } from "../server/api.js";
import { OVERRIDE, PAPER } from "./decision.js";
import { readSettings } from "./document.js";
import { count } from "../ui/formatting.js";
/** @import { DroppedStyle, Theme } from "../map/palette.js" */
/** @import { MapPanel } from "../map/panel.js" */
/** @import { Api } from "../server/api.js" */
/** @import { Notices } from "../ui/notices.js" */
/** @import { About, FilterDocument, Settings } from "./document.js" */

const MOST_SAMPLES_BY_NAME = 2000; // more travel as a bitmask

/**
 * @typedef {"accuracy" | "appearance" | "class" | "decision" | "document" | "drawn" | "focus" | "hover" | "log"
 *   | "neighbours" | "overrides" | "saved" | "selection" | "settings" | "tab" | "tool"} Topic
 * @typedef {"keep" | "drop" | "reset"} Action
 * @typedef {"pan" | "lasso" | "box"} Tool
 *
 * @typedef {Object} Panel
 * @property {Topic[]} topics  what it shows; it is drawn again when one of them has changed
 * @property {(changed: Set<Topic>) => void} render
 */

export class App {
  /**
   * @param {Api} api
   * @param {FilterDocument[]} documents  of one dataset
   * @param {Notices} notices
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
    /** the reason that is typed beside the selection */
    this.reason = "";
    this.focus = -1;
    this.hover = -1;
    this.classShown = -1;
    /** @type {"class" | "cluster"} */
    this.colourBy = "class";
    /** @type {DroppedStyle} */
    this.droppedStyle = "dark";
    /** @type {Tool} */
    this.tool = "pan";
    /** @type {Theme} */
    this.theme = "light";
    /** @type {{map: MapPanel, x: number, y: number} | null} where the pointer is */
    this.pointer = null;
    /** @type {{of: string, samples: number[]} | null} the nearest samples of the one on the card */
    this.neighbours = null;
    /** @type {MapPanel[]} */
    this.maps = [];
    /** the sample that an override was just made for: the gallery goes on from its place */
    this.lastOverridden = -1;
    /** @type {Panel[]} */
    this.panels = [];
    /** @type {Set<Topic>} */
    this.dirty = new Set();
  }

  get document() {
    return this.documents[this.active];
  }

  // ---- drawing

  /** Mark topics as changed: panels that show them are drawn once, at the next frame. @param {...Topic} topics */
  invalidate(...topics) {
    if (this.dirty.size === 0) requestAnimationFrame(() => this.renderFrame());
    for (const topic of topics) this.dirty.add(topic);
  }

  renderFrame() {
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

  /** @param {number} index */
  setActive(index) {
    if (index === this.active) return;
    this.active = index;
    this.invalidate("document", "decision", "log", "class", "focus");
  }

  /** @param {number} index */
  showClass(index) {
    this.classShown = index;
    this.invalidate("class");
  }

  /** @param {number} sample */
  setFocus(sample) {
    if (sample === this.focus) return;
    this.focus = sample;
    this.invalidate("focus");
  }

  /** @param {number} sample */
  setHover(sample) {
    if (sample === this.hover) return;
    this.hover = sample;
    this.invalidate("hover");
  }

  /** @param {Tool} tool */
  setTool(tool) {
    this.tool = tool;
    this.invalidate("tool");
  }

  /** @param {Partial<Pick<App, "colourBy" | "droppedStyle">>} appearance */
  setAppearance(appearance) {
    Object.assign(this, appearance);
    this.invalidate("appearance");
  }

  /** @param {Iterable<number>} samples @param {"replace" | "add" | "remove"} how */
  select(samples, how = "replace") {
    if (how === "replace") this.selected.fill(0);
    for (const sample of samples) this.selected[sample] = how === "remove" ? 0 : 1;
    this.selectedCount = this.selected.reduce((sum, bit) => sum + bit, 0);
    if (this.selectedCount === 0) this.reason = ""; // hidden now, so it must not apply to the next override
    this.invalidate("selection");
  }

  // ---- settings of the filter

  /**
   * Change settings on the screen at once; `save` when the slider is released.
   * @param {Partial<Settings>} change
   */
  changeSettings(change, document = this.document) {
    Object.assign(document.settings, change);
    document.fillEps();
    this.invalidate("decision", "settings");
  }

  /** An eps for the class shown, or for all: from now on by hand. @param {number} eps */
  setEps(eps) {
    const { document, classShown } = this;
    const all = classShown < 0 ? document.sameEpsForAll(eps) : document.settings.eps.slice();
    if (classShown >= 0) all[classShown] = eps;
    this.changeSettings({ mode: "manual", eps: all });
  }

  /** @param {Settings["mode"]} mode */
  async setMode(mode) {
    const { document } = this; // another may be active when the server answers
    if (mode === "paper" && document.settings.min_samples !== PAPER.min_samples) {
      if (!(await this.fetchMinSamples(PAPER.min_samples))) return;
    } else document.fetching?.abort(); // a mode that was chosen before and is still waiting
    this.changeSettings({ mode }, document);
    this.save(document);
  }

  /**
   * Another min_samples is another eps* column; the paper's mode has none but 5.
   * @param {number} minSamples
   */
  async setMinSamples(minSamples) {
    const { document } = this;
    if (!(await this.fetchMinSamples(minSamples))) return;
    const leavesPaper = document.settings.mode === "paper" && minSamples !== PAPER.min_samples;
    this.changeSettings(leavesPaper ? { mode: "manual" } : {}, document);
    this.save(document);
  }

  /**
   * False where a newer request has replaced this one, or the server did not answer.
   * @param {number} minSamples
   */
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
      this.reportProblem(problem);
      this.invalidate("settings");
      return false;
    }
  }

  /** Send the settings; of several changes made during one request only the last is sent. */
  save(document = this.document) {
    if (document.saveWaits) return document.pending;
    document.saveWaits = true;
    return this.enqueueWrite(document, async () => {
      document.saveWaits = false;
      try {
        const { revision } = await this.api.post(`${document.id}/settings`, document.settingsAsJson());
        document.unsaved = null;
        await this.acceptRevision(document, revision, { settings: false });
      } catch (problem) {
        document.unsaved = problem instanceof Error ? problem.message : String(problem);
        throw problem;
      } finally {
        this.invalidate("saved");
      }
    });
  }

  // ---- overrides

  /** The samples that keep, drop and reset are for: the selection, or else the one in focus. */
  targets() {
    if (this.dirty.has("overrides")) this.renderFrame(); // a key in the same frame: the gallery has to go on first
    if (this.selectedCount === 0) return this.focus < 0 ? [] : [this.focus];
    /** @type {number[]} */
    const samples = [];
    for (let i = 0; i < this.selected.length; i++) if (this.selected[i]) samples.push(i);
    return samples;
  }

  /** @param {Action} action */
  override(action, samples = this.targets()) {
    const { document } = this;
    const reason = this.reason.trim();
    if (samples.length === 0) {
      this.notices.show("Select samples or step to one first: then keep, drop or reset them.");
      return Promise.resolve();
    }
    // on the screen at once, so that the next key is for the next sample; sent in the order of the keys
    const change = { value: action === "reset" ? OVERRIDE.none : OVERRIDE[action], samples };
    document.unconfirmed.push(change);
    for (const sample of samples) document.override[sample] = change.value;
    this.lastOverridden = samples.length === 1 ? samples[0] : -1;
    const done = { keep: "kept", drop: "dropped", reset: "reset to the filter" }[action];
    this.notices.show(`${count(samples.length)} ${samples.length === 1 ? "sample" : "samples"} ${done}`);
    this.invalidate("decision", "overrides");
    return this.enqueueWrite(document, async () => {
      let revision;
      try {
        const body = { action, reason, ...encodeSamples(samples, document.samples) };
        ({ revision } = await this.api.post(`${document.id}/overrides`, body));
      } catch (problem) {
        document.unconfirmed.shift();
        document.setSavedOverride(document.savedOverride); // as it was
        this.invalidate("decision", "overrides");
        throw problem;
      }
      document.unconfirmed.shift();
      for (const sample of samples) document.savedOverride[sample] = change.value;
      Object.assign(document.log, { can_undo: true, can_redo: false });
      await this.acceptRevision(document, revision);
      if (document.writes === 1) await this.fetchLog(document); // after the last of several
    });
  }

  undo() {
    return this.undoOrRedo("undo");
  }

  redo() {
    return this.undoOrRedo("redo");
  }

  /** @param {"undo" | "redo"} direction */
  undoOrRedo(direction) {
    const { document } = this;
    return this.enqueueWrite(document, async () => {
      if (!(direction === "undo" ? document.log.can_undo : document.log.can_redo)) {
        this.notices.show(`There is nothing to ${direction}.`);
        return;
      }
      const { revision } = await this.api.post(`${document.id}/${direction}`);
      await this.acceptRevision(document, revision);
      await this.fetchOverrides(document);
      this.notices.show(direction === "undo" ? "Undone" : "Redone");
    });
  }

  // ---- keeping in step with the server

  /**
   * Send writes one after another, so that revisions are in order; a failed write does not stop later ones.
   * @param {FilterDocument} document
   * @param {() => Promise<void>} send
   */
  enqueueWrite(document, send) {
    document.writes += 1;
    document.pending = document.pending
      .then(send)
      .catch((problem) => this.reportProblem(problem))
      .finally(() => (document.writes -= 1));
    return document.pending;
  }

  /**
   * Accept the revision of our own write. Where it is not the next one, another tab has written in between.
   * @param {FilterDocument} document
   * @param {number} revision
   */
  async acceptRevision(document, revision, { settings = true } = {}) {
    const alone = revision === document.revision + 1;
    document.revision = revision;
    const ownToSend = document.saveWaits || document.unsaved !== null;
    if (!alone) await this.refresh(document, { settings: settings && !ownToSend });
  }

  /** Fetch what another tab may have changed. @param {FilterDocument} document */
  async refresh(document, { settings = true } = {}) {
    const { documents } = await this.api.getJson("documents");
    /** @type {About} */
    const about = documents.find((/** @type {About} */ entry) => entry.id === document.id);
    if (settings) {
      document.revision = about.revision; // else left behind, so that settings newer than our own are heard of
      const changed = readSettings(about.settings);
      if (changed.min_samples !== document.settings.min_samples) {
        document.setEpsStar(await document.fetchEpsStar(changed.min_samples));
      }
      document.settings = changed;
    }
    await this.fetchOverrides(document);
    this.invalidate("decision", "settings");
  }

  /** @param {FilterDocument} document */
  async fetchOverrides(document) {
    document.setSavedOverride(new Int8Array(await this.api.getBytes(`${document.id}/columns/override`)));
    this.invalidate("decision", "overrides");
    await this.fetchLog(document);
  }

  /** @param {FilterDocument} document */
  async fetchLog(document) {
    document.log = await this.api.getJson(`${document.id}/overrides`);
    this.invalidate("log");
  }

  /** A problem in words: a server that is gone or new has a banner of its own. @param {unknown} problem */
  reportProblem(problem) {
    if (problem instanceof ServerUnreachable) this.notices.showUnreachable();
    else if (problem instanceof RequestError && problem.status === 401) this.notices.showRestarted();
    else if (problem instanceof RequestError) this.notices.show(problem.message, "problem");
    else throw problem;
  }
}

/**
 * A list of samples, or for many a bitmask: sample i is bit i % 8 of byte i / 8.
 * @param {number[]} samples
 * @param {number} total
 */
function encodeSamples(samples, total) {
  if (samples.length <= MOST_SAMPLES_BY_NAME) return { samples };
  const bytes = new Uint8Array(Math.ceil(total / 8));
  for (const sample of samples) bytes[sample >> 3] |= 1 << (sample & 7);
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return { bits: btoa(text) };
}
