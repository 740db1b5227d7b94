// Which points lie in a box or a lasso drawn on the map.

/** @import { Grid } from "./grid.js" */

/**
 * Samples in a rectangle of the map.
 * @param {Grid} grid
 * @returns {number[]}
 * @param {number} left
 * @param {number} bottom
 * @param {number} right
 * @param {number} top
 */
export function samplesInBox(grid, left, bottom, right, top) {
  /** @type {number[]} */
  const found = [];
  grid.rows(left, bottom, right, top, (from, to) => {
    for (let slot = from; slot < to; slot++) {
      const [x, y] = [grid.x[slot], grid.y[slot]];
      if (x >= left && x <= right && y >= bottom && y <= top) found.push(grid.sample[slot]);
    }
  });
  return found;
}

/**
 * Samples within a polygon of the map: a ray to the right crosses its edges an odd number of times.
 * @param {Grid} grid
 * @param {number[]} path  x0, y0, x1, y1 ..., closed by itself
 * @returns {number[]}
 */
export function samplesInLasso(grid, path) {
  if (path.length < 6) return [];
  const xs = path.filter((_, i) => i % 2 === 0);
  const ys = path.filter((_, i) => i % 2 === 1);
  const [left, right] = [Math.min(...xs), Math.max(...xs)];
  const [bottom, top] = [Math.min(...ys), Math.max(...ys)];
  /** @type {number[]} */
  const found = [];
  grid.rows(left, bottom, right, top, (from, to) => {
    for (let slot = from; slot < to; slot++) {
      const [x, y] = [grid.x[slot], grid.y[slot]];
      if (x < left || x > right || y < bottom || y > top) continue;
      let odd = false;
      for (let i = 0, j = xs.length - 1; i < xs.length; j = i++) {
        if (ys[i] > y !== ys[j] > y && x < ((xs[j] - xs[i]) * (y - ys[i])) / (ys[j] - ys[i]) + xs[i]) odd = !odd;
      }
      if (odd) found.push(grid.sample[slot]);
    }
  });
  return found;
}
