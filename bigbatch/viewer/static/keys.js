// Every shortcut in one table: what the keyboard does, and what the overlay says of it.

import { at, make } from "./dom.js";

const PAN_STEP = 60;

/**
 * @param {import("./app.js").App} app
 * @param {Object} parts  maps, gallery, exporting, toggleTheme, openTab
 */
export function shortcuts(app, { maps, gallery, exporting, toggleTheme, openTab }) {
  const map = () => maps[app.active];
  const act = (action) => () => app.override(action);
  const pan = (dx, dy) => () => map().pan(dx * PAN_STEP, dy * PAN_STEP);
  return [
    { group: "Samples", keys: ["n"], does: "next in the gallery", run: () => gallery.step(1) },
    { group: "Samples", keys: ["p"], does: "previous in the gallery", run: () => gallery.step(-1) },
    { group: "Samples", keys: ["x"], does: "select it, or not", run: () => toggleSelected(app) },
    { group: "Samples", keys: ["k"], does: "keep the selection, or the sample", run: act("keep") },
    { group: "Samples", keys: ["d"], does: "drop it", run: act("drop") },
    { group: "Samples", keys: ["r"], does: "reset it: leave it to the filter", run: act("reset") },
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
    { group: "Page", keys: ["g"], does: "go to the gallery", run: () => (openTab("gallery"), at("gallery").focus()) },
    { group: "Page", keys: ["c"], does: "go to the classes", run: () => at("class-list").focus() },
    { group: "Page", keys: ["s"], does: "go to the eps slider", run: () => at("eps").focus() },
    { group: "Page", keys: ["o"], does: "go to the map", run: () => map().overlay.focus() },
    { group: "Page", keys: ["w"], does: "write a reason", run: () => writeReason(app) },
    { group: "Page", keys: ["e"], does: "export", run: () => exporting.toggle(true) },
    { group: "Page", keys: ["t"], does: "light or dark", run: toggleTheme },
    { group: "Page", keys: ["Tab"], does: "from one part to the next", run: null },
    { group: "Page", keys: ["?"], does: "this list", run: () => at("shortcuts").showModal() },
  ];
}

/** Listen everywhere; fields that take letters keep them. */
export function listen(list) {
  const byKey = new Map(list.flatMap((entry) => (entry.run ? entry.keys.map((key) => [key, entry.run]) : [])));
  document.addEventListener("keydown", (event) => {
    if (at("shortcuts").open || event.altKey) return;
    const control = event.ctrlKey || event.metaKey;
    if (isWriting(event.target)) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (takesArrows(event.target) && event.key.startsWith("Arrow")) return;
    const key = /^[a-z]$/i.test(event.key) ? withShift(event.key, event.shiftKey) : event.key;
    const run = byKey.get(control ? `ctrl+${key}` : key);
    if (!run) return;
    event.preventDefault();
    run();
  });
  fillOverlay(list);
  at("help").addEventListener("click", () => at("shortcuts").showModal());
}

/** Capital where shift is down, whatever the caps lock. */
function withShift(letter, shift) {
  return shift ? letter.toUpperCase() : letter.toLowerCase();
}

function isWriting(target) {
  return target.matches("input[type=text], input[type=number], select");
}

/** Sliders, and rows of buttons, go by arrows themselves. */
function takesArrows(target) {
  return target.matches("input[type=range], [role=radio], [role=tab], [role=option]");
}

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

function fillOverlay(list) {
  const keyNames = (keys) => keys.flatMap((key) => [make("kbd", {}, NAMES[key] ?? key), " "]);
  const row = ({ keys, does }) => make("li", {}, make("span", {}, ...keyNames(keys)), does);
  const rows = (group) => list.filter((entry) => entry.group === group).map(row);
  const section = (group) => make("section", {}, make("h3", {}, group), make("ul", {}, ...rows(group)));
  const close = make("button.icon", { ariaLabel: "Close", on: { click: () => at("shortcuts").close() } }, "×");
  at("shortcuts").replaceChildren(
    make("header", {}, make("h2", { id: "shortcuts-title" }, "Keyboard"), close),
    make("div.columns", {}, ...["Samples", "Map", "Page"].map(section)),
    make("p.hint", {}, MOUSE)
  );
}

function toggleSelected(app) {
  if (app.focus >= 0) app.select([app.focus], app.selected[app.focus] ? "remove" : "add");
}

function clear(app) {
  if (app.selectedCount) app.select([]);
  else if (app.focus >= 0) app.setFocus(-1);
  else app.showClass(-1);
}

function writeReason(app) {
  if (app.selectedCount) at("reason").focus();
  else app.notices.tell("Select samples first: the reason is written beside them.");
}
