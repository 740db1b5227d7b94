// Draws points into one buffer of pixels with the processor: faster than WebGL wherever that has no GPU below it.

import { context2d } from "../ui/dom.js";
import { rimWidth } from "./scene.js";
/** @import { Scene } from "./scene.js" */
/** @import { Viewport } from "./viewport.js" */

/**
 * @typedef {Object} Stamp  a disc as offsets into the buffer
 * @property {number[]} solid  pixels covered completely
 * @property {number[]} soft  pixels covered in part
 * @property {number[]} softCoverage  of 256
 * @property {number[]} halo  a rim of background
 * @property {number[]} haloCoverage  of 256
 * @property {number} reach
 */

const ORDER = [2, 3, 0, 1]; // faded kept, faded dropped, kept, dropped: what matters most comes last

export class CanvasRenderer {
  name = "canvas";

  /** @param {HTMLCanvasElement} canvas @param {Scene} scene */
  constructor(canvas, scene) {
    this.context = context2d(canvas, { alpha: false });
    this.canvas = canvas;
    this.scene = scene;
    const Look = scene.document.classes.length < 1 << 14 ? Uint16Array : Uint32Array;
    /** of each slot: four times its colour, and that plus its state */
    this.colour = new Look(scene.grid.count);
    this.look = new Look(scene.grid.count);
    this.state = new Uint8Array(scene.document.samples);
    /** @type {Int32Array | null | undefined} */
    this.clusters = undefined;
    this.counts = new Uint32Array(4);
    /** the last complete picture: moved while drawing a new one would take too long */
    this.picture = document.createElement("canvas");
    /** @type {Viewport | null} where the last complete picture was drawn */
    this.pictureView = null;
    this.ratio = 1;
    this.pad = 0;
    this.pixelsAcross = 1;
    this.image = new ImageData(1, 1);
    this.pixels = new Uint32Array(this.image.data.buffer);
  }

  /** @param {number} width @param {number} height @param {number} ratio */
  resize(width, height, ratio) {
    this.ratio = ratio;
    for (const canvas of [this.canvas, this.picture]) {
      canvas.width = Math.max(1, Math.round(width * ratio));
      canvas.height = Math.max(1, Math.round(height * ratio));
    }
    this.pad = Math.ceil(16 * ratio); // around the picture, so that a point at its edge needs no care
    this.pixelsAcross = this.canvas.width + 2 * this.pad;
    const pixelsDown = this.canvas.height + 2 * this.pad;
    this.image = new ImageData(this.pixelsAcross, pixelsDown);
    this.pixels = new Uint32Array(this.image.data.buffer);
  }

  /** The scene's decision, fading or colours have changed. */
  update() {
    const { scene, look, colour, state, counts } = this;
    const { sample } = scene.grid;
    const { dropped } = scene.document;
    const { faded } = scene;
    if (this.clusters !== scene.clusters) {
      this.clusters = scene.clusters;
      for (let slot = 0; slot < colour.length; slot++) colour[slot] = scene.colourIndex(sample[slot]) << 2;
    }
    counts.fill(0);
    // in the order of samples first: slots jump about in memory, and should do so through one array only
    for (let i = 0; i < state.length; i++) counts[(state[i] = (faded[i] << 1) | dropped[i])]++;
    for (let slot = 0; slot < look.length; slot++) look[slot] = colour[slot] | state[sample[slot]];
  }

  /** Draw all points in view. @param {Viewport} viewport */
  draw(viewport) {
    const { scene, ratio, pad } = this;
    this.pixels.fill(scene.paint.background);
    const stamp = makeStamp(scene.diameter(viewport.zoom, ratio), this.pixelsAcross);
    const scale = viewport.scale * ratio;
    const place = {
      scale,
      left: pad + (viewport.width / 2) * ratio - viewport.centreX * scale,
      top: pad + (viewport.height / 2) * ratio + viewport.centreY * scale,
    };
    const [left, bottom, right, top] = viewport.rectangle(stamp.reach / ratio);
    for (const state of ORDER) {
      if (this.counts[state] === 0 || (scene.droppedStyle === "hidden" && state & 1)) continue;
      scene.grid.rows(left, bottom, right, top, (from, to) => this.stampPoints(from, to, state, stamp, place));
    }
    const whole = context2d(this.picture, { alpha: false });
    whole.putImageData(this.image, -pad, -pad);
    this.pictureView = viewport.copy();
    this.context.setTransform(1, 0, 0, 1, 0, 0);
    this.context.drawImage(this.picture, 0, 0);
  }

  /** Draw the last complete picture, moved and stretched to where the view is now. @param {Viewport} viewport */
  drawMoved(viewport) {
    const { context, canvas, ratio } = this;
    const before = this.pictureView ?? viewport;
    const stretch = viewport.scale / before.scale;
    const left = viewport.toX(before.fromX(0)) * ratio;
    const top = viewport.toY(before.fromY(0)) * ratio;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.fillStyle = cssColour(this.scene.paint.background);
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.imageSmoothingEnabled = false;
    context.drawImage(this.picture, left, top, canvas.width * stretch, canvas.height * stretch);
  }

  /**
   * @param {number} from
   * @param {number} to
   * @param {number} state
   * @param {Stamp} stamp
   * @param {{scale: number, left: number, top: number}} place
   */
  stampPoints(from, to, state, stamp, { scale, left, top }) {
    const { look, pixels, pixelsAcross } = this;
    const { x, y } = this.scene.grid;
    const { table, background } = this.scene.paint;
    const { solid, soft, softCoverage, halo, haloCoverage, reach } = stamp;
    const right = pixelsAcross - reach;
    const below = this.image.height - reach;
    for (let slot = from; slot < to; slot++) {
      const own = look[slot];
      if ((own & 3) !== state) continue;
      const column = (x[slot] * scale + left) | 0;
      const row = (top - y[slot] * scale) | 0;
      if (column < reach || column >= right || row < reach || row >= below) continue;
      const at = row * pixelsAcross + column;
      const colour = table[own];
      for (let k = 0; k < halo.length; k++) blend(pixels, at + halo[k], background, haloCoverage[k]);
      for (let k = 0; k < soft.length; k++) blend(pixels, at + soft[k], colour, softCoverage[k]);
      for (let k = 0; k < solid.length; k++) pixels[at + solid[k]] = colour;
    }
  }
}

/**
 * Mix a coverage (of 256) of a colour into a pixel, red and blue in one go.
 * @param {Uint32Array} pixels
 * @param {number} at
 * @param {number} colour
 * @param {number} coverage
 */
function blend(pixels, at, colour, coverage) {
  const under = pixels[at];
  const rest = 256 - coverage;
  const redBlue = (((colour & 0xff00ff) * coverage + (under & 0xff00ff) * rest) >>> 8) & 0xff00ff;
  const green = (((colour & 0xff00) * coverage + (under & 0xff00) * rest) >>> 8) & 0xff00;
  pixels[at] = (0xff000000 | redBlue | green) >>> 0;
}

/**
 * A disc as offsets into the buffer: pixels covered whole, pixels covered in part, and a rim of background.
 * @param {number} diameter
 * @param {number} pixelsAcross
 * @returns {Stamp}
 */
function makeStamp(diameter, pixelsAcross) {
  /** @type {Stamp} */
  const stamp = { solid: [], soft: [], softCoverage: [], halo: [], haloCoverage: [], reach: 1 };
  if (diameter <= 2) {
    stamp.solid = diameter === 1 ? [0] : [0, 1, pixelsAcross, pixelsAcross + 1];
    stamp.reach = 2;
    return stamp;
  }
  const radius = diameter / 2;
  const centre = diameter % 2 === 0 ? 0.5 : 0; // an even disc sits between pixels
  const rim = rimWidth(diameter);
  const reach = Math.ceil(radius + rim) + 1;
  for (let dy = -reach; dy <= reach; dy++) {
    for (let dx = -reach; dx <= reach; dx++) {
      const distance = Math.hypot(dx - centre, dy - centre);
      const coverage = Math.round(256 * Math.max(0, Math.min(1, radius + 0.5 - distance)));
      const rimCoverage = Math.round(180 * Math.max(0, Math.min(1, radius + rim + 0.5 - distance)));
      const offset = dy * pixelsAcross + dx;
      if (coverage >= 256) stamp.solid.push(offset);
      else {
        if (rim && rimCoverage > 0) {
          stamp.halo.push(offset);
          stamp.haloCoverage.push(rimCoverage);
        }
        if (coverage > 0) {
          stamp.soft.push(offset);
          stamp.softCoverage.push(coverage);
        }
      }
    }
  }
  stamp.reach = reach;
  return stamp;
}

/** @param {number} packed */
function cssColour(packed) {
  return `rgb(${packed & 255} ${(packed >>> 8) & 255} ${(packed >>> 16) & 255})`;
}
