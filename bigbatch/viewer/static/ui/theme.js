// The light and the dark theme.

import { byId } from "./dom.js";
import { loadItem, storeItem } from "./storage.js";
/** @import { App } from "../state/app.js" */

/** Light or dark as the system has it, until somebody chooses; returns how to change it. @param {App} app */
export function makeTheme(app) {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const set = () => {
    const stored = loadItem("bigbatch.theme") ?? (system.matches ? "dark" : "light");
    app.theme = stored === "dark" ? "dark" : "light";
    document.documentElement.dataset.theme = app.theme;
    app.invalidate("appearance");
  };
  const toggle = () => {
    storeItem("bigbatch.theme", app.theme === "dark" ? "light" : "dark");
    set();
  };
  system.addEventListener("change", set);
  byId("theme").addEventListener("click", toggle);
  set();
  return toggle;
}
