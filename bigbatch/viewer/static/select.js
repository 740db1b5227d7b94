// Which points lie in a box or a lasso drawn on the map.

/**
 * Samples in a rectangle of the map.
 * @param {import("./grid.js").Grid} grid
 * @returns {number[]}
 */
export function inBox(grid, left, bottom, right, top) {
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
 * @param {import("./grid.js").Grid} grid
 * @param {number[]} path  x0, y0, x1, y1 ..., closed by itself
 * @returns {number[]}
 */
export function inLasso(grid, path) {
  if (path.length < 6) return [];
  const xs = path.filter((_, i) => i % 2 === 0);
  const ys = path.filter((_, i) => i % 2 === 1);
  const [left, right] = [Math.min(...xs), Math.max(...xs)];
  const [bottom, top] = [Math.min(...ys), Math.max(...ys)];
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
