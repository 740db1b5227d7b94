// The visible part of the map: converts map coordinates to pixels of a panel and back.

const MARGIN = 24; // pixels around all points when they are fitted
const MOST_ZOOM = 4000;

/**
 * @typedef {Object} Bounds  a rectangle of the map
 * @property {number} left
 * @property {number} bottom
 * @property {number} size  the longer side
 * @property {number} width
 * @property {number} height
 */

export class Viewport {
  scale = 1;
  centreX = 0;
  centreY = 0;

  /** @param {Bounds} bounds */
  constructor(bounds) {
    this.bounds = bounds;
    this.width = 1;
    this.height = 1;
    this.fit();
  }

  /** A new panel size; what was in the middle stays there. @param {number} width @param {number} height */
  resize(width, height) {
    const fitted = this.isFitted();
    this.width = width;
    this.height = height;
    if (fitted) this.fit();
  }

  /** All points in view. */
  fit() {
    const { left, bottom, width, height } = this.bounds;
    this.scale = this.fittedScale();
    this.centreX = left + width / 2;
    this.centreY = bottom + height / 2;
  }

  fittedScale() {
    const { size, width, height } = this.bounds;
    const across = Math.max(this.width - 2 * MARGIN, 1) / (width || size);
    const up = Math.max(this.height - 2 * MARGIN, 1) / (height || size);
    return Math.min(across, up);
  }

  isFitted() {
    return this.scale === this.fittedScale();
  }

  /** How much larger than fitted. */
  get zoom() {
    return this.scale / this.fittedScale();
  }

  /** @param {number} x */
  toX(x) {
    return (x - this.centreX) * this.scale + this.width / 2;
  }

  /** The map's y points up, the panel's down. @param {number} y */
  toY(y) {
    return (this.centreY - y) * this.scale + this.height / 2;
  }

  /** @param {number} pixel */
  fromX(pixel) {
    return (pixel - this.width / 2) / this.scale + this.centreX;
  }

  /** @param {number} pixel */
  fromY(pixel) {
    return this.centreY - (pixel - this.height / 2) / this.scale;
  }

  /** @param {number} dx @param {number} dy */
  pan(dx, dy) {
    this.centreX -= dx / this.scale;
    this.centreY += dy / this.scale;
  }

  /**
   * Zoom by a factor; the place under the pixel stays under it.
   * @param {number} pixelX
   * @param {number} pixelY
   * @param {number} factor
   */
  zoomAt(pixelX, pixelY, factor) {
    const fitted = this.fittedScale();
    const scale = Math.max(fitted / 4, Math.min(fitted * MOST_ZOOM, this.scale * factor));
    const [x, y] = [this.fromX(pixelX), this.fromY(pixelY)];
    this.scale = scale;
    this.centreX = x - (pixelX - this.width / 2) / scale;
    this.centreY = y + (pixelY - this.height / 2) / scale;
  }

  /**
   * Bring a position into view without changing the zoom; return whether the view moved.
   * @param {number} x
   * @param {number} y
   */
  reveal(x, y) {
    const [pixelX, pixelY] = [this.toX(x), this.toY(y)];
    const inside = pixelX > MARGIN && pixelX < this.width - MARGIN && pixelY > MARGIN && pixelY < this.height - MARGIN;
    if (inside) return false;
    this.centreX = x;
    this.centreY = y;
    return true;
  }

  /**
   * The part of the map in view, with some pixels around it.
   * @param {number} border
   * @returns {[number, number, number, number]}
   */
  rectangle(border) {
    return [
      this.fromX(-border),
      this.fromY(this.height + border),
      this.fromX(this.width + border),
      this.fromY(-border),
    ];
  }

  copy() {
    const same = new Viewport(this.bounds);
    return Object.assign(same, this);
  }
}
