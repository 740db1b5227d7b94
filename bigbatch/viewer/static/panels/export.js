// The export menu: lists and copies are written by the server, pictures of the map by the page.

import { byId, make, targetOf } from "../ui/dom.js";
import { renderPng, renderSvg } from "../map/figure.js";
/** @import { MapPanel } from "../map/panel.js" */
/** @import { App } from "../state/app.js" */
/** @import { FilterDocument } from "../state/document.js" */

/**
 * @typedef {Object} Choice  of the menu: a `kind` is written by the server, a `render` by the page
 * @property {string} name
 * @property {string} about
 * @property {string} [kind]
 * @property {(map: MapPanel) => Promise<Blob>} [render]
 * @property {string} [ending]
 */

/** @type {Choice[]} */
const CHOICES = [
  { kind: "kept", name: "Kept list", about: ".npz with manifest, for training" },
  { kind: "csv", name: "CSV", about: "one row per sample" },
  { kind: "copy", name: "Filtered copy", about: "the kept images themselves" },
  { render: renderPng, ending: "png", name: "Map as PNG", about: "with legend, for a paper" },
  { render: renderSvg, ending: "svg", name: "Map as SVG", about: "with legend, for a paper" },
];

export class ExportMenu {
  /** @param {App} app @param {MapPanel[]} maps */
  constructor(app, maps) {
    this.app = app;
    this.maps = maps;
    this.menu = byId("export-menu");
    this.button = byId("export");
    this.items = CHOICES.map((choice) => this.makeItem(choice));
    this.menu.append(...this.items);
    this.button.addEventListener("click", () => this.toggle(this.menu.hidden));
    this.menu.addEventListener("keydown", (event) => this.onKeyDown(event));
    document.addEventListener("pointerdown", (event) => {
      if (!this.menu.hidden && !targetOf(event).closest(".menu")) this.toggle(false);
    });
  }

  /** @param {Choice} choice */
  makeItem(choice) {
    const words = [make("b", {}, choice.name), make("small", {}, choice.about)];
    const item = make("button", { tabIndex: -1, data: { kind: choice.kind ?? choice.ending } }, ...words);
    item.setAttribute("role", "menuitem");
    item.addEventListener("click", () => {
      this.toggle(false);
      this.button.focus();
      if (choice.kind) this.exportFile(choice.kind, choice.name);
      if (choice.render && choice.ending) this.exportFigure(choice.render, choice.ending);
    });
    return item;
  }

  /** @param {boolean} open */
  toggle(open) {
    this.menu.hidden = !open;
    this.button.setAttribute("aria-expanded", String(open));
    if (open) this.items[0].focus();
  }

  /** @param {KeyboardEvent} event */
  onKeyDown(event) {
    const now = this.items.findIndex((item) => item === document.activeElement);
    /** @type {Record<string, number>} */
    const places = { ArrowDown: now + 1, ArrowUp: now - 1, Home: 0, End: this.items.length - 1 };
    const next = places[event.key];
    if (event.key === "Escape") {
      this.toggle(false);
      this.button.focus();
    } else if (event.key === "Tab") {
      this.toggle(false);
      return;
    } else if (next !== undefined) this.items[(next + this.items.length) % this.items.length].focus();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /**
   * Written by the server beside the source; small ones are offered as downloads, too.
   * @param {string} kind
   * @param {string} name
   */
  async exportFile(kind, name) {
    const { app } = this;
    const { document } = app;
    await document.pending; // what was changed a moment ago is part of it
    if (document.unsaved !== null) {
      app.notices.show(`These settings are not saved (${document.unsaved}): change it, then export.`, "problem");
      return;
    }
    app.notices.show(`${name}: writing …`);
    try {
      const { files, folder } = await app.api.post(`${document.id}/export`, { kind });
      app.notices.show(`${name}: ${files.join(", ")} in ${folder}`);
      if (kind === "csv") await this.download(document, files[0]);
    } catch (problem) {
      app.reportProblem(problem);
    }
  }

  /** @param {FilterDocument} document @param {string} file */
  async download(document, file) {
    saveBlob(await this.app.api.getBlob(`${document.id}/exports/${encodeURIComponent(file)}`), file);
  }

  /** @param {(map: MapPanel) => Promise<Blob>} render @param {string} ending */
  async exportFigure(render, ending) {
    const { app } = this;
    const stem = app.document.name.replace(/\.npz$/, "");
    saveBlob(await render(this.maps[app.active]), `${stem}-map.${ending}`);
    app.notices.show(`${stem}-map.${ending} is among your downloads.`);
  }
}

/** @param {Blob} blob @param {string} name */
function saveBlob(blob, name) {
  const link = make("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
