// The order of a column's rows, fast enough for a million of them.

/**
 * Row numbers by sortAscending value, ties by number, NaN last. Values must not be negative.
 *
 * Positive float64s order like their bits, so two radix passes over the upper 32 bits all but sort them; insertion
 * sorts what differs in the lower bits only.
 * @param {Float64Array | Float32Array} values
 * @returns {Uint32Array}
 */
export function sortAscending(values) {
  const bits = new Uint32Array(new Float64Array(values).buffer);
  let rows = new Uint32Array(values.length);
  for (let row = 0; row < rows.length; row++) rows[row] = row;
  for (const shift of [0, 16]) rows = radixPass(rows, bits, shift);
  for (let i = 1; i < rows.length; i++) {
    const row = rows[i];
    let place = i;
    while (place > 0 && values[rows[place - 1]] > values[row]) {
      rows[place] = rows[place - 1];
      place--;
    }
    rows[place] = row;
  }
  return rows;
}

/**
 * Row numbers by sortDescending value, ties by number, NaN last.
 * @param {Float64Array | Float32Array} values
 */
export function sortDescending(values) {
  const up = sortAscending(values);
  const down = new Uint32Array(up.length);
  let known = up.length;
  while (known > 0 && Number.isNaN(values[up[known - 1]])) known--;
  down.set(up.subarray(known), known);
  // equal values keep their order: copy run by run from the end
  let at = 0;
  for (let end = known; end > 0; ) {
    let first = end - 1;
    while (first > 0 && values[up[first - 1]] === values[up[end - 1]]) first--;
    down.set(up.subarray(first, end), at);
    at += end - first;
    end = first;
  }
  return down;
}

/**
 * A stable pass of a radix sort, by 16 bits of each value's upper half.
 * @param {Uint32Array} rows
 * @param {Uint32Array} bits
 * @param {number} shift
 */
function radixPass(rows, bits, shift) {
  const start = new Uint32Array(0x10001);
  for (let i = 0; i < rows.length; i++) start[((bits[2 * rows[i] + 1] >>> shift) & 0xffff) + 1]++;
  for (let digit = 0; digit < 0x10000; digit++) start[digit + 1] += start[digit];
  const sorted = new Uint32Array(rows.length);
  for (let i = 0; i < rows.length; i++) {
    const digit = (bits[2 * rows[i] + 1] >>> shift) & 0xffff;
    sorted[start[digit]++] = rows[i];
  }
  return sorted;
}
