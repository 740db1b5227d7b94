// The export menu: lists and copies are written by the server, pictures of the map by the page.

import { at, make } from "./dom.js";
import { asPng, asSvg } from "./picture.js";

const KINDS = [
  { kind: "kept", name: "Kept list", about: ".npz with manifest, for training" },
  { kind: "csv", name: "CSV", about: "every sample with its fate" },
  { kind: "copy", name: "Filtered copy", about: "the kept images themselves" },
  { picture: asPng, ending: "png", name: "Map as PNG", about: "with legend, for a paper" },
  { picture: asSvg, ending: "svg", name: "Map as SVG", about: "with legend, for a paper" },
];

export class Export {
  /** @param {import("./app.js").App} app @param {import("./map.js").MapPanel[]} maps */
  constructor(app, maps) {
    this.app = app;
    this.maps = maps;
    this.menu = at("export-menu");
    this.button = at("export");
    this.items = KINDS.map((choice) => this.makeItem(choice));
    this.menu.append(...this.items);
    this.button.addEventListener("click", () => this.toggle(this.menu.hidden));
    this.menu.addEventListener("keydown", (event) => this.key(event));
    document.addEventListener("pointerdown", (event) => {
      if (!this.menu.hidden && !event.target.closest(".menu")) this.toggle(false);
    });
  }

  makeItem(choice) {
    const words = [make("b", {}, choice.name), make("small", {}, choice.about)];
    const item = make("button", { tabIndex: -1, data: { kind: choice.kind ?? choice.ending } }, ...words);
    item.setAttribute("role", "menuitem");
    item.addEventListener("click", () => {
      this.toggle(false);
      this.button.focus();
      if (choice.kind) this.write(choice);
      else this.draw(choice);
    });
    return item;
  }

  toggle(open) {
    this.menu.hidden = !open;
    this.button.setAttribute("aria-expanded", String(open));
    if (open) this.items[0].focus();
  }

  key(event) {
    const now = this.items.indexOf(document.activeElement);
    const next = { ArrowDown: now + 1, ArrowUp: now - 1, Home: 0, End: this.items.length - 1 }[event.key];
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

  /** Written by the server beside the source; small ones are offered as downloads, too. */
  async write({ kind, name }) {
    const { app } = this;
    const { document } = app;
    await document.pending; // what was changed a moment ago is part of it
    if (document.unsaved !== null) {
      app.notices.tell(`What is on the screen is not saved (${document.unsaved}): change it, then export.`, "problem");
      return;
    }
    app.notices.tell(`${name}: writing …`);
    try {
      const { files, folder } = await app.api.post(`${document.id}/export`, { kind });
      app.notices.tell(`${name}: ${files.join(", ")} in ${folder}`);
      if (kind === "csv") await this.download(document, files[0]);
    } catch (problem) {
      app.report(problem);
    }
  }

  async download(document, file) {
    save(await this.app.api.blob(`${document.id}/exports/${encodeURIComponent(file)}`), file);
  }

  async draw({ picture, ending }) {
    const { app } = this;
    const stem = app.document.name.replace(/\.npz$/, "");
    save(await picture(this.maps[app.active]), `${stem}-map.${ending}`);
    app.notices.tell(`${stem}-map.${ending} is among your downloads.`);
  }
}

function save(blob, name) {
  const link = make("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
