// Small pictures of samples, by sample number: from atlas pages, or one by one where there are very many pages.

import { context2d } from "./dom.js";
/** @import { FilterDocument } from "../state/document.js" */

const MOST_PAGES_HELD = 16; // 16 MB each once decoded
const MOST_SINGLES_HELD = 600;

export class Thumbnails {
  /** @param {FilterDocument} document */
  constructor(document) {
    this.document = document;
    this.layout = document.about.images;
    /** @type {Map<number, Promise<ImageBitmap>>} a page's or a sample's picture */
    this.cache = new Map();
  }

  get available() {
    return this.layout !== null;
  }

  /**
   * Draw a sample into a canvas now or when its picture is here, unless the canvas has another sample by then.
   * @param {number} sample
   * @param {HTMLCanvasElement} canvas
   */
  async draw(sample, canvas) {
    canvas.dataset.sample = String(sample);
    if (canvas.dataset.drawn !== canvas.dataset.sample) blank(canvas); // no picture of another sample
    if (!this.layout) return;
    const { width, height, per_page: perPage, across, pages } = this.layout;
    const single = pages > MOST_PAGES_HELD;
    const place = sample % perPage;
    const [x, y] = single ? [0, 0] : [(place % across) * width, Math.floor(place / across) * height];
    const picture = await this.picture(single ? sample : Math.floor(sample / perPage), single).catch(() => null);
    if (!picture || canvas.dataset.sample !== String(sample)) return;
    const [w, h] = single ? [picture.width, picture.height] : [width, height];
    canvas.width = w;
    canvas.height = h;
    context2d(canvas).drawImage(picture, x, y, w, h, 0, 0, w, h);
    canvas.dataset.drawn = String(sample);
  }

  /** Fetched once, the longest unused is let go. @param {number} key @param {boolean} single */
  picture(key, single) {
    const found = this.cache.get(key) ?? this.fetch(key, single);
    this.cache.delete(key);
    this.cache.set(key, found);
    const most = single ? MOST_SINGLES_HELD : MOST_PAGES_HELD;
    const [oldest] = this.cache.keys();
    if (this.cache.size > most) this.cache.delete(oldest);
    return found;
  }

  /** @param {number} key @param {boolean} single @returns {Promise<ImageBitmap>} */
  fetch(key, single) {
    const { api, id } = this.document;
    const made = api.getBlob(`${id}/${single ? "image" : "atlas"}/${key}`).then((blob) => createImageBitmap(blob));
    made.catch(() => this.cache.delete(key)); // fetched again next time
    return made;
  }
}

/** @param {HTMLCanvasElement} canvas */
function blank(canvas) {
  context2d(canvas).clearRect(0, 0, canvas.width, canvas.height);
  delete canvas.dataset.drawn;
}
