// Points sorted into square cells of the map, so that a view draws and a pointer looks at near points only.

/** @import { Bounds } from "./viewport.js" */

const POINTS_PER_CELL = 8;
const MOST_CELLS_ACROSS = 1024;

export class Grid {
  /** @param {Float32Array} position  x0, y0, x1, y1 ...; a sample without a finite place is left out */
  constructor(position) {
    const samples = position.length / 2;
    this.bounds = findBounds(position);
    const { left, bottom, size } = this.bounds;
    this.across = Math.max(1, Math.min(MOST_CELLS_ACROSS, Math.ceil(Math.sqrt(samples / POINTS_PER_CELL))));
    this.scale = this.across / size;
    const cellOf = new Int32Array(samples);
    /** slots of cell c are start[c] ... start[c + 1] - 1 */
    this.start = new Uint32Array(this.across * this.across + 1);
    for (let i = 0; i < samples; i++) {
      const x = position[2 * i];
      const y = position[2 * i + 1];
      cellOf[i] = Number.isFinite(x + y) ? this.row(y - bottom) * this.across + this.row(x - left) : -1;
      if (cellOf[i] >= 0) this.start[cellOf[i] + 1]++;
    }
    for (let cell = 0; cell < this.start.length - 1; cell++) this.start[cell + 1] += this.start[cell];
    this.count = this.start[this.start.length - 1];
    /** the sample in each slot, and its place */
    this.sample = new Uint32Array(this.count);
    this.x = new Float32Array(this.count);
    this.y = new Float32Array(this.count);
    const next = this.start.slice();
    for (let i = 0; i < samples; i++) {
      if (cellOf[i] < 0) continue;
      const slot = next[cellOf[i]]++;
      this.sample[slot] = i;
      this.x[slot] = position[2 * i];
      this.y[slot] = position[2 * i + 1];
    }
  }

  /**
   * The row or column of a distance from the lower left corner, held within the grid.
   * @param {number} distance
   */
  row(distance) {
    return Math.max(0, Math.min(this.across - 1, Math.floor(distance * this.scale)));
  }

  /**
   * Call `visit(first slot, last slot + 1)` for each row of cells that a rectangle of the map touches.
   * @param {number} left
   * @param {number} bottom
   * @param {number} right
   * @param {number} top
   * @param {(from: number, to: number) => void} visit
   */
  rows(left, bottom, right, top, visit) {
    const { left: x, bottom: y, size } = this.bounds;
    if (right < x || left > x + size || top < y || bottom > y + size) return;
    const [first, last] = [this.row(left - x), this.row(right - x)];
    const lastRow = this.row(top - y);
    for (let row = this.row(bottom - y); row <= lastRow; row++) {
      const from = this.start[row * this.across + first];
      const to = this.start[row * this.across + last + 1];
      if (from < to) visit(from, to);
    }
  }

  /**
   * The sample nearest to a place within a radius, or -1; `counts(sample)` says which ones can be found.
   * @param {number} x
   * @param {number} y
   * @param {number} radius
   * @param {(sample: number) => boolean} counts
   */
  nearest(x, y, radius, counts) {
    let best = -1;
    let bestSquare = radius * radius;
    this.rows(x - radius, y - radius, x + radius, y + radius, (from, to) => {
      for (let slot = from; slot < to; slot++) {
        const dx = this.x[slot] - x;
        const dy = this.y[slot] - y;
        const square = dx * dx + dy * dy;
        if (square <= bestSquare && counts(this.sample[slot])) {
          bestSquare = square;
          best = this.sample[slot];
        }
      }
    });
    return best;
  }
}

/** The square around all finite points. @param {Float32Array} position @returns {Bounds} */
function findBounds(position) {
  let [left, right, bottom, top] = [Infinity, -Infinity, Infinity, -Infinity];
  for (let i = 0; i < position.length; i += 2) {
    const [x, y] = [position[i], position[i + 1]];
    if (!Number.isFinite(x + y)) continue;
    if (x < left) left = x;
    if (x > right) right = x;
    if (y < bottom) bottom = y;
    if (y > top) top = y;
  }
  if (left > right) return { left: -1, bottom: -1, size: 2, width: 2, height: 2 };
  const [width, height] = [right - left, top - bottom];
  const size = Math.max(width, height) || 1;
  return { left, bottom, size, width, height };
}
