// The tabs of the side panel.

import { buttonsIn, byId, make } from "./dom.js";
/** @import { App } from "../state/app.js" */

/** @type {Record<string, string>} */
const TABS = { gallery: "Gallery", compare: "Compare", summary: "Table", log: "Log", accuracy: "Accuracy" };

/** The tabs of the side panel; returns how to open one. @param {App} app */
export function makeTabs(app) {
  const names = Object.keys(TABS).filter((name) => name !== "compare" || app.documents.length > 1);
  /** @param {string} name */
  const open = (name) => {
    for (const other of names) {
      byId(`${other}-panel`).hidden = other !== name;
      byId(`tab-${other}`).setAttribute("aria-selected", String(other === name));
      byId(`tab-${other}`).tabIndex = other === name ? 0 : -1;
    }
    app.invalidate("tab");
  };
  for (const name of names) {
    const about = { id: `tab-${name}`, aria: { controls: `${name}-panel` }, on: { click: () => open(name) } };
    const button = make("button", about, TABS[name]);
    button.setAttribute("role", "tab");
    byId("tabs").append(button);
  }
  byId("tabs").addEventListener("keydown", (event) => {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (!step) return;
    event.preventDefault();
    const shown = buttonsIn(byId("tabs")).filter((button) => !button.hidden);
    const now = shown.findIndex((button) => button === document.activeElement);
    const next = shown[(now + step + shown.length) % shown.length];
    next.focus();
    next.click();
  });
  open("gallery");
  return open;
}
