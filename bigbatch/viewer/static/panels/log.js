// The log of all overrides, the newest first.

import { buttonById, byId, make } from "../ui/dom.js";
import { count } from "../ui/formatting.js";
/** @import { App, Topic } from "../state/app.js" */
/** @import { LogEntry } from "../state/document.js" */

const EMPTY = "No sample is overridden. What you keep, drop or reset is listed here with its time and reason.";
const PARTICIPLES = { keep: "kept", drop: "dropped", reset: "reset" };

export class OverrideLog {
  /** @type {Topic[]} */
  topics = ["log", "document"];

  /** @param {App} app */
  constructor(app) {
    this.app = app;
    buttonById("undo").addEventListener("click", () => app.undo());
    buttonById("redo").addEventListener("click", () => app.redo());
  }

  render() {
    const { log } = this.app.document;
    buttonById("undo").disabled = !log.can_undo;
    buttonById("redo").disabled = !log.can_redo;
    const rows = log.entries.toReversed().map((entry) => this.makeRow(entry));
    byId("log-panel").replaceChildren(rows.length ? make("ol.log", {}, ...rows) : make("p.hint", {}, EMPTY));
  }

  /** @param {LogEntry} entry */
  makeRow({ at: when, action, count: samples, reason, undone, in_source: inSource }) {
    const time = new Date(when);
    const words = `${PARTICIPLES[action]} ${count(samples)} ${samples === 1 ? "sample" : "samples"}`;
    return make(
      "li",
      { className: undone ? "undone" : "", data: { action } },
      make("b", {}, words),
      undone ? " (undone)" : "",
      inSource ? " (in the file)" : "",
      make("time", { dateTime: when, title: time.toString() }, time.toLocaleTimeString("en-GB")),
      reason ? make("q", {}, reason) : ""
    );
  }
}
