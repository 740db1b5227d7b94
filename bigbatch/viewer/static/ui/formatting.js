// Numbers as people read them.

const whole = new Intl.NumberFormat("en-US");

/** @param {number} value */
export function count(value) {
  return whole.format(value);
}

/** @param {number} fraction */
export function percent(fraction, digits = 1) {
  return `${(100 * fraction).toFixed(digits)} %`;
}

/** Three significant figures, and no exponent where none is needed. @param {number} value */
export function short(value) {
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "–";
  if (value === 0) return "0";
  if (Math.abs(value) >= 1000 || Math.abs(value) < 0.001) return value.toPrecision(3);
  return String(Number(value.toPrecision(3)));
}
