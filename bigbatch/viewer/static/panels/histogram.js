// The histogram of eps* on the slider's log scale: what lies right of eps is noise.

import { context2d } from "../ui/dom.js";
/** @import { FilterDocument } from "../state/document.js" */

const BINS = 48;

export class EpsHistogram {
  /** @param {HTMLCanvasElement} canvas */
  constructor(canvas) {
    this.canvas = canvas;
    /** @type {{epsStar: Float64Array, classShown: number, counts: Uint32Array} | null} */
    this.of = null;
  }

  /**
   * @param {{low: number, high: number}} range
   * @param {FilterDocument} document
   * @param {number} classShown
   * @param {{low: number, high: number}} range
   * @param {number} eps
   */
  draw(document, classShown, range, eps) {
    const counts = this.binCounts(document, classShown, range);
    const { canvas } = this;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    if (!width) return;
    canvas.width = width * devicePixelRatio;
    canvas.height = height * devicePixelRatio;
    const context = context2d(canvas);
    context.scale(devicePixelRatio, devicePixelRatio);
    const style = getComputedStyle(canvas);
    const most = Math.max(...counts, 1);
    const edge = Math.log(eps / range.low) / Math.log(range.high / range.low);
    const inset = 8; // half of the slider's thumb
    const across = (width - 2 * inset) / BINS;
    for (let bin = 0; bin < BINS; bin++) {
      const tall = counts[bin] ? Math.max(1, (height - 2) * Math.sqrt(counts[bin] / most)) : 0;
      const isNoise = (bin + 0.5) / BINS > edge;
      context.fillStyle = style.getPropertyValue(isNoise ? "--noise" : "--bar");
      context.fillRect(inset + bin * across, height - tall, across - 0.4, tall);
    }
  }

  /**
   * Counted once for a column and class.
   * @param {FilterDocument} columns
   * @param {number} classShown
   * @param {{low: number, high: number}} range
   */
  binCounts({ epsStar, label }, classShown, { low, high }) {
    if (this.of?.epsStar === epsStar && this.of.classShown === classShown) return this.of.counts;
    const counts = new Uint32Array(BINS);
    const scale = BINS / Math.log(high / low);
    for (let i = 0; i < epsStar.length; i++) {
      if (epsStar[i] === Infinity || (classShown >= 0 && label[i] !== classShown)) continue;
      const bin = Math.floor(Math.log(epsStar[i] / low) * scale);
      counts[Math.max(0, Math.min(BINS - 1, bin))]++;
    }
    this.of = { epsStar, classShown, counts };
    return counts;
  }
}
