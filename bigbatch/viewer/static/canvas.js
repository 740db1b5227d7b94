// Draws points into one buffer of pixels with the processor: faster than WebGL wherever that has no GPU below it.

import { rimOf } from "./scene.js";

const ORDER = [2, 3, 0, 1]; // faded kept, faded dropped, kept, dropped: what matters most comes last

export class CanvasRenderer {
  name = "canvas";

  /** @param {HTMLCanvasElement} canvas @param {import("./scene.js").Scene} scene */
  constructor(canvas, scene) {
    this.context = canvas.getContext("2d", { alpha: false });
    this.canvas = canvas;
    this.scene = scene;
    const Look = scene.document.classes.length < 1 << 14 ? Uint16Array : Uint32Array;
    /** of each slot: four times its colour, and that plus its state */
    this.colour = new Look(scene.grid.count);
    this.look = new Look(scene.grid.count);
    this.state = new Uint8Array(scene.document.samples);
    this.clusters = undefined;
    this.counts = new Uint32Array(4);
    /** the last whole picture, kept for moving it about while a new one would take too long */
    this.picture = document.createElement("canvas");
    this.pictureView = null;
  }

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

  /** All points in view, from nothing. */
  draw(viewport) {
    const { scene, ratio, pad } = this;
    this.pixels.fill(scene.paint.background);
    const stamp = stampOf(scene.diameter(viewport.zoom, ratio), this.pixelsAcross);
    const scale = viewport.scale * ratio;
    const place = {
      scale,
      left: pad + (viewport.width / 2) * ratio - viewport.centreX * scale,
      top: pad + (viewport.height / 2) * ratio + viewport.centreY * scale,
    };
    const [left, bottom, right, top] = viewport.rectangle(stamp.reach / ratio);
    for (const state of ORDER) {
      if (this.counts[state] === 0 || (scene.dropLook === "hidden" && state & 1)) continue;
      scene.grid.rows(left, bottom, right, top, (from, to) => this.stampPoints(from, to, state, stamp, place));
    }
    const whole = this.picture.getContext("2d", { alpha: false });
    whole.putImageData(this.image, -pad, -pad);
    this.pictureView = viewport.copy();
    this.context.setTransform(1, 0, 0, 1, 0, 0);
    this.context.drawImage(this.picture, 0, 0);
  }

  /** The last whole picture, moved and stretched to where the view is now. */
  drawMoved(viewport) {
    const { context, canvas, ratio } = this;
    const before = this.pictureView;
    const stretch = viewport.scale / before.scale;
    const left = viewport.toX(before.fromX(0)) * ratio;
    const top = viewport.toY(before.fromY(0)) * ratio;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.fillStyle = cssColour(this.scene.paint.background);
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.imageSmoothingEnabled = false;
    context.drawImage(this.picture, left, top, canvas.width * stretch, canvas.height * stretch);
  }

  stampPoints(from, to, state, stamp, { scale, left, top }) {
    const { look, pixels, pixelsAcross } = this;
    const { x, y } = this.scene.grid;
    const { table, background } = this.scene.paint;
    const { solid, soft, softShare, halo, haloShare, reach } = stamp;
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
      for (let k = 0; k < halo.length; k++) blend(pixels, at + halo[k], background, haloShare[k]);
      for (let k = 0; k < soft.length; k++) blend(pixels, at + soft[k], colour, softShare[k]);
      for (let k = 0; k < solid.length; k++) pixels[at + solid[k]] = colour;
    }
  }
}

/** Mix a share (of 256) of a colour into a pixel, red and blue in one go. */
function blend(pixels, at, colour, share) {
  const under = pixels[at];
  const rest = 256 - share;
  const redBlue = (((colour & 0xff00ff) * share + (under & 0xff00ff) * rest) >>> 8) & 0xff00ff;
  const green = (((colour & 0xff00) * share + (under & 0xff00) * rest) >>> 8) & 0xff00;
  pixels[at] = (0xff000000 | redBlue | green) >>> 0;
}

/** A disc as offsets into the buffer: pixels covered whole, pixels covered in part, and a rim of background. */
function stampOf(diameter, pixelsAcross) {
  const stamp = { solid: [], soft: [], softShare: [], halo: [], haloShare: [], reach: 1 };
  if (diameter <= 2) {
    stamp.solid = diameter === 1 ? [0] : [0, 1, pixelsAcross, pixelsAcross + 1];
    stamp.reach = 2;
    return stamp;
  }
  const radius = diameter / 2;
  const centre = diameter % 2 === 0 ? 0.5 : 0; // an even disc sits between pixels
  const rim = rimOf(diameter);
  const reach = Math.ceil(radius + rim) + 1;
  for (let dy = -reach; dy <= reach; dy++) {
    for (let dx = -reach; dx <= reach; dx++) {
      const distance = Math.hypot(dx - centre, dy - centre);
      const share = Math.round(256 * Math.max(0, Math.min(1, radius + 0.5 - distance)));
      const rimShare = Math.round(180 * Math.max(0, Math.min(1, radius + rim + 0.5 - distance)));
      const offset = dy * pixelsAcross + dx;
      if (share >= 256) stamp.solid.push(offset);
      else {
        if (rim && rimShare > 0) {
          stamp.halo.push(offset);
          stamp.haloShare.push(rimShare);
        }
        if (share > 0) {
          stamp.soft.push(offset);
          stamp.softShare.push(share);
        }
      }
    }
  }
  stamp.reach = reach;
  return stamp;
}

function cssColour(packed) {
  return `rgb(${packed & 255} ${(packed >>> 8) & 255} ${(packed >>> 16) & 255})`;
}
