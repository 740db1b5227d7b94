// The small panels: header, tools of the map, selection bar, tooltip, tabs, theme.

import { at, make, say } from "./dom.js";
import { choose, radios } from "./controls.js";
import { remember, remembered } from "./memory.js";
import { count, percent } from "./numbers.js";

/** Name, dataset and totals. */
export class Header {
  topics = ["decision", "document", "saved"];

  constructor(app) {
    this.app = app;
  }

  render() {
    const { document: shown, documents } = this.app;
    const { kept, dropped, share } = shown.counts();
    const names = documents.map((one) => one.name).join(" and ");
    const dataset = shown.about.dataset.includes(":") ? "" : ` · ${shown.about.dataset}`; // a file has no name for it
    say(at("about"), `${names}${dataset} · ${count(shown.samples)} samples`);
    at("about").title = `${names}\n${shown.about.network ?? ""}`;
    document.title = `${names} · bigbatch view`;
    const totals = at("totals");
    totals.dataset.kept = String(kept);
    totals.dataset.dropped = String(dropped);
    totals.replaceChildren(
      make("span.kept", {}, make("b", {}, count(kept)), " kept"),
      make("span.dropped", {}, make("b", {}, count(dropped)), ` dropped (${percent(share)})`)
    );
  }
}

/** Pointer, zoom and colours. */
export class Toolbar {
  topics = ["tool", "look", "decision"];

  constructor(app, maps) {
    this.app = app;
    const map = () => maps[app.active];
    radios(at("tool"), (button) => app.setTool(button.dataset.tool));
    at("zoom-in").addEventListener("click", () => map().zoom(1.4));
    at("zoom-out").addEventListener("click", () => map().zoom(1 / 1.4));
    at("fit").addEventListener("click", () => map().fit());
    at("colour-by").addEventListener("change", () => this.colourBy(at("colour-by").value));
    at("drop-look").addEventListener("change", () => app.setLook({ dropLook: at("drop-look").value }));
  }

  render(changed) {
    choose(at("tool"), (button) => button.dataset.tool === this.app.tool);
    at("drop-look").options[0].textContent = this.app.theme === "dark" ? "white" : "black";
    if (changed.has("decision") && this.app.colourBy === "cluster") this.fetchSoon();
  }

  async colourBy(what) {
    if (what === "cluster") await this.fetchClusters();
    this.app.setLook({ colourBy: what });
  }

  /** Clusters change with eps; they are asked for when the slider rests. */
  fetchSoon() {
    clearTimeout(this.resting);
    this.resting = setTimeout(async () => {
      if (await this.fetchClusters()) this.app.changed("look");
    }, 200);
  }

  /** True where some document got new ones. */
  async fetchClusters() {
    const { app } = this;
    let anyNew = false;
    for (const document of app.documents) {
      const { min_samples, eps } = document.settingsAsJson();
      const key = JSON.stringify([min_samples, eps]);
      if (document.clustersOf === key) continue;
      try {
        document.clusters = new Int32Array(await app.api.postForBytes(`${document.id}/clusters`, { min_samples, eps }));
        document.clustersOf = key;
        anyNew = true;
      } catch (problem) {
        app.report(problem);
      }
    }
    return anyNew;
  }
}

/** How many are selected, and what to do with them. */
export class SelectionBar {
  topics = ["selection", "decision"];

  constructor(app) {
    this.app = app;
    for (const button of at("selection").querySelectorAll("[data-action]")) {
      button.addEventListener("click", () => app.override(button.dataset.action));
    }
    at("reason").addEventListener("input", () => (app.reason = at("reason").value));
    at("selection-clear").addEventListener("click", () => app.select([]));
  }

  render() {
    const { selectedCount, selected, document } = this.app;
    at("selection").hidden = selectedCount === 0;
    if (at("reason").value !== this.app.reason) at("reason").value = this.app.reason;
    if (!selectedCount) return;
    let dropped = 0;
    for (let i = 0; i < selected.length; i++) dropped += selected[i] & document.dropped[i];
    say(at("selection-count"), `${count(selectedCount)} selected, ${count(dropped)} dropped`);
  }
}

/** A sample's picture and class beside the pointer. */
export class Tooltip {
  topics = ["hover"];

  constructor(app, thumbnails) {
    this.app = app;
    this.thumbnails = thumbnails;
    this.canvas = make("canvas");
    this.words = make("span");
    at("tooltip").append(this.canvas, this.words);
  }

  render() {
    const { hover, pointer, document } = this.app;
    const tooltip = at("tooltip");
    tooltip.hidden = hover < 0 || !pointer;
    if (tooltip.hidden) return;
    const pictures = this.thumbnails[this.app.active];
    this.canvas.hidden = !pictures.any;
    if (pictures.any) pictures.draw(hover, this.canvas);
    say(this.words, `${document.classes[document.label[hover]]}\n${document.fateOf(hover).words}`);
    const place = pointer.map.pixelOf(hover) ?? [pointer.x, pointer.y];
    const [x, y] = [pointer.map.element.offsetLeft + place[0], pointer.map.element.offsetTop + place[1]];
    const leftwards = x > tooltip.offsetParent.clientWidth - tooltip.offsetWidth - 24;
    const upwards = y > tooltip.offsetParent.clientHeight - tooltip.offsetHeight - 24;
    const [dx, dy] = [leftwards ? -tooltip.offsetWidth - 14 : 14, upwards ? -tooltip.offsetHeight - 14 : 14];
    tooltip.style.transform = `translate(${x + dx}px, ${y + dy}px)`;
  }
}

const TABS = { gallery: "Gallery", compare: "Compare", summary: "Table", log: "Log", accuracy: "Accuracy" };

/** The tabs of the side panel; returns how to open one. */
export function makeTabs(app) {
  const names = Object.keys(TABS).filter((name) => name !== "compare" || app.documents.length > 1);
  const open = (name) => {
    for (const other of names) {
      at(`${other}-panel`).hidden = other !== name;
      at(`tab-${other}`).setAttribute("aria-selected", String(other === name));
      at(`tab-${other}`).tabIndex = other === name ? 0 : -1;
    }
    app.changed("tab");
  };
  for (const name of names) {
    const about = { id: `tab-${name}`, aria: { controls: `${name}-panel` }, on: { click: () => open(name) } };
    const button = make("button", about, TABS[name]);
    button.setAttribute("role", "tab");
    at("tabs").append(button);
  }
  at("tabs").addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const shown = [...at("tabs").children].filter((button) => !button.hidden);
    const next = shown[(shown.indexOf(document.activeElement) + step + shown.length) % shown.length];
    next.focus();
    next.click();
  });
  open("gallery");
  return open;
}

/** Light or dark as the system has it, until somebody chooses; returns how to change it. */
export function makeTheme(app) {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const set = () => {
    app.theme = remembered("bigbatch.theme") ?? (system.matches ? "dark" : "light");
    document.documentElement.dataset.theme = app.theme;
    app.changed("look");
  };
  const toggle = () => {
    remember("bigbatch.theme", app.theme === "dark" ? "light" : "dark");
    set();
  };
  system.addEventListener("change", set);
  at("theme").addEventListener("click", toggle);
  set();
  return toggle;
}
