// Around the map: the toolbar, the bar of the selection, and the tooltip beside the pointer.

import { buttonsIn, byId, inputById, make, selectById, setText } from "../ui/dom.js";
import { count } from "../ui/formatting.js";
import { checkRadio, makeRadioGroup } from "../ui/radios.js";
/** @import { DroppedStyle } from "../map/palette.js" */
/** @import { MapPanel } from "../map/panel.js" */
/** @import { Action, App, Tool, Topic } from "../state/app.js" */
/** @import { Thumbnails } from "../ui/thumbnails.js" */

/** Pointer, zoom and colours. */
export class Toolbar {
  /** @type {Topic[]} */
  topics = ["tool", "appearance", "decision"];

  /** @param {App} app @param {MapPanel[]} maps */
  constructor(app, maps) {
    this.app = app;
    const map = () => maps[app.active];
    makeRadioGroup(byId("tool"), (button) => app.setTool(/** @type {Tool} */ (button.dataset.tool)));
    byId("zoom-in").addEventListener("click", () => map().zoom(1.4));
    byId("zoom-out").addEventListener("click", () => map().zoom(1 / 1.4));
    byId("fit").addEventListener("click", () => map().fit());
    selectById("colour-by").addEventListener("change", () => this.colourPoints());
    selectById("dropped-style").addEventListener("change", () => this.styleDropped());
  }

  /** @param {Set<Topic>} changed */
  render(changed) {
    checkRadio(byId("tool"), (button) => button.dataset.tool === this.app.tool);
    selectById("dropped-style").options[0].textContent = this.app.theme === "dark" ? "white" : "black";
    if (changed.has("decision") && this.app.colourBy === "cluster") this.scheduleFetch();
  }

  async colourPoints() {
    const colourBy = /** @type {"class" | "cluster"} */ (selectById("colour-by").value);
    if (colourBy === "cluster") await this.fetchClusters();
    const chosen = selectById("colour-by").value; // perhaps another one since
    const possible = colourBy === "class" || this.app.documents.every((document) => document.clusters);
    if (chosen === colourBy && possible) this.app.setAppearance({ colourBy });
    else if (chosen === colourBy) selectById("colour-by").value = this.app.colourBy;
  }

  styleDropped() {
    const style = /** @type {DroppedStyle} */ (selectById("dropped-style").value);
    this.app.setAppearance({ droppedStyle: style });
  }

  /** Fetch the clusters, which depend on eps, when the slider rests. */
  scheduleFetch() {
    clearTimeout(this.resting);
    this.resting = setTimeout(async () => {
      if (await this.fetchClusters()) this.app.invalidate("appearance");
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
        document.clustersWanted = key;
        const clusters = new Int32Array(await app.api.postForBytes(`${document.id}/clusters`, { min_samples, eps }));
        if (document.clustersWanted !== key) continue; // a later request has other settings
        Object.assign(document, { clusters, clustersOf: key });
        anyNew = true;
      } catch (problem) {
        app.reportProblem(problem);
      }
    }
    return anyNew;
  }
}

/** How many are selected, and what to do with them. */
export class SelectionBar {
  /** @type {Topic[]} */
  topics = ["selection", "decision"];

  /** @param {App} app */
  constructor(app) {
    this.app = app;
    for (const button of buttonsIn(byId("selection"), "[data-action]")) {
      button.addEventListener("click", () => app.override(/** @type {Action} */ (button.dataset.action)));
    }
    inputById("reason").addEventListener("input", () => (app.reason = inputById("reason").value));
    byId("selection-clear").addEventListener("click", () => app.select([]));
  }

  render() {
    const { selectedCount, selected, document } = this.app;
    byId("selection").hidden = selectedCount === 0;
    if (inputById("reason").value !== this.app.reason) inputById("reason").value = this.app.reason;
    if (!selectedCount) return;
    let dropped = 0;
    for (let i = 0; i < selected.length; i++) dropped += selected[i] & document.dropped[i];
    setText(byId("selection-count"), `${count(selectedCount)} selected, ${count(dropped)} dropped`);
  }
}

/** A sample's picture and class beside the pointer. */
export class Tooltip {
  /** @type {Topic[]} */
  topics = ["hover"];

  /** @param {App} app @param {Thumbnails[]} thumbnails */
  constructor(app, thumbnails) {
    this.app = app;
    this.thumbnails = thumbnails;
    this.canvas = make("canvas");
    this.words = make("span");
    byId("tooltip").append(this.canvas, this.words);
  }

  render() {
    const { hover, pointer, document } = this.app;
    const tooltip = byId("tooltip");
    tooltip.hidden = hover < 0 || !pointer;
    if (hover < 0 || !pointer) return;
    const pictures = this.thumbnails[this.app.active];
    this.canvas.hidden = !pictures.available;
    if (pictures.available) pictures.draw(hover, this.canvas);
    setText(this.words, `${document.classes[document.label[hover]]}\n${document.decisionOf(hover).words}`);
    const place = pointer.map.pixelOf(hover) ?? [pointer.x, pointer.y];
    const [x, y] = [pointer.map.element.offsetLeft + place[0], pointer.map.element.offsetTop + place[1]];
    const { clientWidth, clientHeight } = tooltip.offsetParent ?? tooltip;
    const leftwards = x > clientWidth - tooltip.offsetWidth - 24;
    const upwards = y > clientHeight - tooltip.offsetHeight - 24;
    const [dx, dy] = [leftwards ? -tooltip.offsetWidth - 14 : 14, upwards ? -tooltip.offsetHeight - 14 : 14];
    tooltip.style.transform = `translate(${x + dx}px, ${y + dy}px)`;
  }
}
