// Every keyboard shortcut in one table, which the overlay lists.

import { byId, inputById, make, targetOf } from "./dom.js";
/** @import { MapPanel } from "../map/panel.js" */
/** @import { ExportMenu } from "../panels/export.js" */
/** @import { Gallery } from "../panels/gallery.js" */
/** @import { Action, App } from "../state/app.js" */

const PAN_STEP = 60;

/**
 * @typedef {Object} Shortcut
 * @property {string} group
 * @property {string[]} keys
 * @property {string} does
 * @property {(() => unknown) | null} run  null where the browser does it
 *
 * @typedef {Object} Targets  what the keys act on
 * @property {MapPanel[]} maps
 * @property {Gallery} gallery
 * @property {ExportMenu} exportMenu
 * @property {() => void} toggleTheme
 * @property {(name: string) => void} openTab
 */

/**
 * Every shortcut of the page.
 * @param {App} app
 * @param {Targets} targets
 * @returns {Shortcut[]}
 */
export function makeShortcuts(app, { maps, gallery, exportMenu, toggleTheme, openTab }) {
  const map = () => maps[app.active];
  /** @param {Action} action */
  const act = (action) => () => app.override(action);
  /** @param {number} dx @param {number} dy */
  const pan = (dx, dy) => () => map().pan(dx * PAN_STEP, dy * PAN_STEP);
  return [
    { group: "Samples", keys: ["n"], does: "next in the gallery", run: () => gallery.step(1) },
    { group: "Samples", keys: ["p"], does: "previous in the gallery", run: () => gallery.step(-1) },
    { group: "Samples", keys: ["x"], does: "select or deselect it", run: () => toggleSelected(app) },
    { group: "Samples", keys: ["k"], does: "keep the selection, or the sample", run: act("keep") },
    { group: "Samples", keys: ["d"], does: "drop it", run: act("drop") },
    { group: "Samples", keys: ["r"], does: "reset it to the filter's decision", run: act("reset") },
    { group: "Samples", keys: ["a"], does: "select all that the gallery shows", run: () => app.select(gallery.list) },
    { group: "Samples", keys: ["Escape"], does: "clear selection, then sample, then class", run: () => clear(app) },
    { group: "Samples", keys: ["u", "ctrl+z"], does: "undo", run: () => app.undo() },
    { group: "Samples", keys: ["U", "ctrl+Z", "ctrl+y"], does: "redo", run: () => app.redo() },
    { group: "Map", keys: ["m"], does: "pointer moves the map", run: () => app.setTool("pan") },
    { group: "Map", keys: ["l"], does: "pointer draws a lasso", run: () => app.setTool("lasso") },
    { group: "Map", keys: ["b"], does: "pointer draws a box", run: () => app.setTool("box") },
    { group: "Map", keys: ["+", "="], does: "zoom in", run: () => map().zoom(1.4) },
    { group: "Map", keys: ["-"], does: "zoom out", run: () => map().zoom(1 / 1.4) },
    { group: "Map", keys: ["0"], does: "fit all points", run: () => map().fit() },
    { group: "Map", keys: ["ArrowLeft"], does: "move left", run: pan(1, 0) },
    { group: "Map", keys: ["ArrowRight"], does: "move right", run: pan(-1, 0) },
    { group: "Map", keys: ["ArrowUp"], does: "move up", run: pan(0, 1) },
    { group: "Map", keys: ["ArrowDown"], does: "move down", run: pan(0, -1) },
    { group: "Page", keys: ["g"], does: "go to the gallery", run: () => (openTab("gallery"), byId("gallery").focus()) },
    { group: "Page", keys: ["c"], does: "go to the classes", run: () => byId("class-list").focus() },
    { group: "Page", keys: ["s"], does: "go to the eps slider", run: () => inputById("eps").focus() },
    { group: "Page", keys: ["o"], does: "go to the map", run: () => map().overlay.focus() },
    { group: "Page", keys: ["w"], does: "write a reason", run: () => writeReason(app) },
    { group: "Page", keys: ["e"], does: "export", run: () => exportMenu.toggle(true) },
    { group: "Page", keys: ["t"], does: "light or dark theme", run: toggleTheme },
    { group: "Page", keys: ["Tab"], does: "next part of the page", run: null },
    { group: "Page", keys: ["?"], does: "this list", run: () => overlay().showModal() },
  ];
}

/** Listen everywhere; fields that take letters keep them. @param {Shortcut[]} list */
export function listenToKeys(list) {
  /** @type {Map<string, () => unknown>} */
  const byKey = new Map();
  for (const { keys, run } of list) if (run) for (const key of keys) byKey.set(key, run);
  document.addEventListener("keydown", (event) => {
    if (overlay().open || event.altKey) return;
    const control = event.ctrlKey || event.metaKey;
    const target = targetOf(event);
    if (isWriting(target)) {
      if (event.key === "Escape") target.blur();
      return;
    }
    if (takesArrows(target) && event.key.startsWith("Arrow")) return;
    const key = /^[a-z]$/i.test(event.key) ? withShift(event.key, event.shiftKey) : event.key;
    const run = byKey.get(control ? `ctrl+${key}` : key);
    if (!run) return;
    event.preventDefault();
    run();
  });
  fillOverlay(list);
  byId("help").addEventListener("click", () => overlay().showModal());
}

function overlay() {
  return /** @type {HTMLDialogElement} */ (byId("shortcuts"));
}

/** Capital where shift is down, whatever the caps lock. @param {string} letter @param {boolean} shift */
function withShift(letter, shift) {
  return shift ? letter.toUpperCase() : letter.toLowerCase();
}

/** @param {Element} target */
function isWriting(target) {
  return target.matches("input[type=text], input[type=number], select");
}

/** Sliders, and rows of buttons, go by arrows themselves. @param {Element} target */
function takesArrows(target) {
  return target.matches("input[type=range], [role=radio], [role=tab], [role=option]");
}

/** @type {Record<string, string>} */
const NAMES = {
  ArrowLeft: "←",
  ArrowRight: "→",
  ArrowUp: "↑",
  ArrowDown: "↓",
  Escape: "Esc",
  U: "shift u",
  "ctrl+z": "ctrl z",
  "ctrl+Z": "ctrl shift z",
  "ctrl+y": "ctrl y",
};
const MOUSE =
  "Mouse: wheel zooms, double click zooms in, shift-drag adds a lasso to the selection, alt-drag takes it away. " +
  "In gallery and lists the arrow keys step; with shift they select.";

/** @param {Shortcut[]} list */
function fillOverlay(list) {
  /** @param {string[]} keys */
  const keyNames = (keys) => keys.flatMap((key) => [make("kbd", {}, NAMES[key] ?? key), " "]);
  /** @param {Shortcut} shortcut */
  const row = ({ keys, does }) => make("li", {}, make("span", {}, ...keyNames(keys)), does);
  /** @param {string} group */
  const rows = (group) => list.filter((entry) => entry.group === group).map(row);
  /** @param {string} group */
  const section = (group) => make("section", {}, make("h3", {}, group), make("ul", {}, ...rows(group)));
  const close = make("button.icon", { ariaLabel: "Close", on: { click: () => overlay().close() } }, "×");
  overlay().replaceChildren(
    make("header", {}, make("h2", { id: "shortcuts-title" }, "Keyboard"), close),
    make("div.columns", {}, ...["Samples", "Map", "Page"].map(section)),
    make("p.hint", {}, MOUSE)
  );
}

/** @param {App} app */
function toggleSelected(app) {
  if (app.focus >= 0) app.select([app.focus], app.selected[app.focus] ? "remove" : "add");
}

/** @param {App} app */
function clear(app) {
  if (app.selectedCount) app.select([]);
  else if (app.focus >= 0) app.setFocus(-1);
  else app.showClass(-1);
}

/** @param {App} app */
function writeReason(app) {
  if (app.selectedCount) inputById("reason").focus();
  else app.notices.show("Select samples first: the reason is written beside them.");
}
