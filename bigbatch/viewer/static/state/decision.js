// Which samples are dropped: the rule of bigbatch.filters.network, number for number. Pure functions, no page.

export const PAPER = { eps: 0.5, min_samples: 5 };

/** The values of a sample's override; without one the filter decides. */
export const OVERRIDE = { none: -1, drop: 0, keep: 1 };

/**
 * @typedef {Object} Columns  one row per sample
 * @property {Uint16Array} label
 * @property {Float64Array} epsStar  the smallest eps at which the sample is not noise; infinite where an earlier
 *   filter had dropped it
 * @property {Int8Array} override
 */

/**
 * Python's round() of a number that is not negative: halves go to the even neighbour.
 * @param {number} value
 */
export function roundHalfEven(value) {
  const below = Math.floor(value);
  const rest = value - below;
  if (rest !== 0.5) return rest < 0.5 ? below : below + 1;
  return below % 2 === 0 ? below : below + 1;
}

/**
 * The eps that makes `count` points noise, or as many fewer as share one eps*; never all of them.
 * @param {Float64Array} sorted
 * @param {number} count
 */
export function epsDroppingCount(sorted, count) {
  return sorted[Math.max(sorted.length - 1 - count, 0)];
}

/**
 * Finite eps* in ascending order, class by class. It is infinite where a sample was not considered.
 * @param {Columns} columns
 * @param {number} classCount
 * @returns {Float64Array[]}
 */
export function sortEpsStarByClass({ label, epsStar }, classCount) {
  const counts = new Uint32Array(classCount);
  for (let i = 0; i < label.length; i++) if (epsStar[i] < Infinity) counts[label[i]]++;
  const sorted = Array.from(counts, (count) => new Float64Array(count));
  const filled = new Uint32Array(classCount);
  for (let i = 0; i < label.length; i++) if (epsStar[i] < Infinity) sorted[label[i]][filled[label[i]]++] = epsStar[i];
  for (const values of sorted) values.sort();
  return sorted;
}

/** All classes' eps* in one ascending array. @param {Float64Array[]} sorted */
export function mergeSorted(sorted) {
  const all = new Float64Array(sorted.reduce((sum, values) => sum + values.length, 0));
  let at = 0;
  for (const values of sorted) {
    all.set(values, at);
    at += values.length;
  }
  return all.sort();
}

/**
 * Mode fraction: the eps of each class, NaN for a class without points.
 * @param {Float64Array[]} sorted  of `sortEpsStarByClass`
 * @param {() => Float64Array} all  of `mergeSorted`, made only where one eps is for all
 * @param {number} drop
 * @param {boolean} perClass
 */
export function epsForFraction(sorted, all, drop, perClass) {
  if (perClass) {
    return Float64Array.from(sorted, (values) =>
      values.length ? epsDroppingCount(values, Math.min(roundHalfEven(drop * values.length), values.length - 1)) : NaN
    );
  }
  const one = epsDroppingCount(all(), roundHalfEven(drop * all().length));
  return Float64Array.from(sorted, (values) => (values.length ? one : NaN));
}

/**
 * Write 1 into `dropped` where a sample is dropped; count the dropped of each class.
 * @param {Columns} columns
 * @param {Float64Array} eps  of each class
 * @param {Uint8Array} dropped  filled in place
 * @param {Uint32Array} droppedOfClass  filled in place
 */
export function markDropped({ label, epsStar, override }, eps, dropped, droppedOfClass) {
  droppedOfClass.fill(0);
  for (let i = 0; i < dropped.length; i++) {
    const given = override[i];
    const own = label[i];
    const drop = given < 0 ? (eps[own] >= epsStar[i] ? 0 : 1) : 1 - given;
    dropped[i] = drop;
    droppedOfClass[own] += drop;
  }
}

/**
 * Two filters of one dataset, class by class: rows of kept by both, by A only, by B only, and dropped by both.
 * @param {Uint16Array} label
 * @param {Uint8Array} droppedA
 * @param {Uint8Array} droppedB
 * @param {number} classCount
 */
export function overlap(label, droppedA, droppedB, classCount) {
  const rows = Array.from({ length: classCount }, () => [0, 0, 0, 0]);
  for (let i = 0; i < label.length; i++) rows[label[i]][2 * droppedA[i] + droppedB[i]]++;
  return rows;
}

/**
 * |A ∩ B| / |A ∪ B|; two empty sets are the same set.
 * @param {number} both
 * @param {number} onlyA
 * @param {number} onlyB
 */
export function jaccard(both, onlyA, onlyB) {
  const union = both + onlyA + onlyB;
  return union ? both / union : 1;
}
