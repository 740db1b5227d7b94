// Small pictures of samples, fetched as sprites: one image with the thumbnails of many samples.

import { context2d } from "./dom.js";
/** @import { FilterDocument } from "../state/document.js" */

const MOST_HELD = 4096; // thumbnails of at most 64 x 64 pixels: 64 MB

/** @typedef {{sprite: ImageBitmap, x: number, y: number}} Thumbnail */

export class Thumbnails {
  /** @param {FilterDocument} document */
  constructor(document) {
    this.document = document;
    this.layout = document.about.images;
    /** @type {Map<number, Thumbnail>} by sample, the longest unused first */
    this.held = new Map();
    /** @type {Map<HTMLCanvasElement, number>} canvases that wait for the thumbnail of a sample */
    this.wanted = new Map();
    /** @type {{samples: Set<number>, abort: AbortController} | null} the only request at a time */
    this.fetching = null;
    this.scheduled = false;
  }

  get available() {
    return this.layout !== null;
  }

  /**
   * Draw a sample into a canvas, now or when its thumbnail is here, unless the canvas has another sample by then.
   * @param {number} sample
   * @param {HTMLCanvasElement} canvas
   */
  draw(sample, canvas) {
    canvas.dataset.sample = String(sample);
    if (canvas.dataset.drawn === canvas.dataset.sample) return;
    blank(canvas); // no picture of another sample
    const held = this.held.get(sample);
    if (held) this.paint(canvas, sample, held);
    else this.wanted.set(canvas, sample);
    this.scheduleFetch();
  }

  /**
   * The image of one sample at full size, over its thumbnail.
   * @param {number} sample
   * @param {HTMLCanvasElement} canvas
   */
  async drawFullSize(sample, canvas) {
    const { api, id } = this.document;
    const image = await api.getBlob(`${id}/image/${sample}`).then((blob) => createImageBitmap(blob)).catch(() => null);
    if (!image || canvas.dataset.sample !== String(sample)) return;
    this.wanted.delete(canvas);
    Object.assign(canvas, { width: image.width, height: image.height });
    context2d(canvas).drawImage(image, 0, 0);
    canvas.dataset.drawn = String(sample);
  }

  /** Fetch once per frame, when it is known which thumbnails are needed. */
  scheduleFetch() {
    if (this.scheduled) return;
    this.scheduled = true;
    requestAnimationFrame(() => {
      this.scheduled = false;
      this.cancelStale();
      this.fetchWanted();
    });
  }

  /** A request whose samples have all scrolled out of sight must not delay those in sight. */
  cancelStale() {
    const { fetching } = this;
    const needed = [...this.wanted.values()].some((sample) => fetching?.samples.has(sample));
    if (fetching && !needed) fetching.abort.abort();
  }

  async fetchWanted() {
    if (this.fetching || !this.layout || !this.wanted.size) return;
    const samples = [...new Set(this.wanted.values())].slice(-this.layout.per_sprite);
    const fetching = { samples: new Set(samples), abort: new AbortController() };
    this.fetching = fetching;
    try {
      const { api, id } = this.document;
      const blob = await api.getBlob(`${id}/sprite?samples=${samples.join(",")}`, fetching.abort.signal);
      this.hold(samples, await createImageBitmap(blob));
      this.paintWanted();
    } catch {
      // what failed is asked for again when it is drawn again; the connection's banner says why
      if (!fetching.abort.signal.aborted) this.forget(fetching.samples);
    } finally {
      this.fetching = null;
    }
    if (this.wanted.size) this.scheduleFetch();
  }

  /** @param {number[]} samples  in the order of the sprite @param {ImageBitmap} sprite */
  hold(samples, sprite) {
    const { across, width, height } = /** @type {NonNullable<typeof this.layout>} */ (this.layout);
    for (const [place, sample] of samples.entries()) {
      this.held.set(sample, { sprite, x: (place % across) * width, y: Math.floor(place / across) * height });
    }
    for (const sample of this.held.keys()) {
      if (this.held.size <= MOST_HELD) break;
      this.held.delete(sample);
    }
  }

  paintWanted() {
    for (const [canvas, sample] of this.wanted) {
      const held = this.held.get(sample);
      if (held) this.paint(canvas, sample, held);
    }
  }

  /** @param {HTMLCanvasElement} canvas @param {number} sample @param {Thumbnail} thumbnail */
  paint(canvas, sample, thumbnail) {
    const { width, height } = /** @type {NonNullable<typeof this.layout>} */ (this.layout);
    this.wanted.delete(canvas);
    this.held.delete(sample);
    this.held.set(sample, thumbnail); // used last
    if (canvas.dataset.sample !== String(sample)) return;
    Object.assign(canvas, { width, height });
    context2d(canvas).drawImage(thumbnail.sprite, thumbnail.x, thumbnail.y, width, height, 0, 0, width, height);
    canvas.dataset.drawn = String(sample);
  }

  /** @param {Set<number>} samples */
  forget(samples) {
    for (const [canvas, sample] of this.wanted) if (samples.has(sample)) this.wanted.delete(canvas);
  }
}

/** @param {HTMLCanvasElement} canvas */
function blank(canvas) {
  context2d(canvas).clearRect(0, 0, canvas.width, canvas.height);
  delete canvas.dataset.drawn;
}
