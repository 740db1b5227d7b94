// Every override that a person made, the newest first.

import { at, make } from "./dom.js";
import { count } from "./numbers.js";

const EMPTY = "Nothing is overridden. What you keep, drop or reset is written down here with its time and reason.";
const DONE = { keep: "kept", drop: "dropped", reset: "reset" };

export class Log {
  topics = ["log", "document"];

  /** @param {import("./app.js").App} app */
  constructor(app) {
    this.app = app;
    at("undo").addEventListener("click", () => app.undo());
    at("redo").addEventListener("click", () => app.redo());
  }

  render() {
    const { log } = this.app.document;
    at("undo").disabled = !log.can_undo;
    at("redo").disabled = !log.can_redo;
    const rows = log.entries.toReversed().map((entry) => this.row(entry));
    at("log-panel").replaceChildren(rows.length ? make("ol.log", {}, ...rows) : make("p.hint", {}, EMPTY));
  }

  row({ at: when, action, count: samples, reason, undone, in_source: inSource }) {
    const time = new Date(when);
    const words = `${DONE[action]} ${count(samples)} ${samples === 1 ? "sample" : "samples"}`;
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
