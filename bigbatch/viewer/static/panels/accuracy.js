// Accuracy against the global batch, of runs that trained on this filter, on everything, and on random controls.

import { byId, make, makeSvg } from "../ui/dom.js";
import { count } from "../ui/formatting.js";
import { classColour } from "../map/palette.js";
/** @import { App, Topic } from "../state/app.js" */

const SIZE = { width: 300, height: 210, left: 38, right: 8, top: 8, bottom: 30 };

/**
 * @typedef {Object} Series
 * @property {string} name
 * @property {Point[]} points
 *
 * @typedef {Object} Point  over seeds; without low and high where there is one
 * @property {number} global_batch
 * @property {number} mean
 * @property {number | null} low
 * @property {number | null} high
 * @property {number} n
 * @property {number} diverged
 *
 * @typedef {{x: (batch: number) => number, y: (accuracy: number) => number}} Scales  to pixels
 */

export class AccuracyChart {
  /** @type {Topic[]} */
  topics = ["accuracy", "document", "tab", "appearance"];

  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.panel = byId("accuracy-panel");
  }

  /** @returns {Series[]} */
  get series() {
    /** @param {Series} series */
    const known = (series) => ({ ...series, points: series.points.filter((point) => point.mean !== null) });
    return this.app.document.accuracy.map(known).filter((series) => series.points.length > 0);
  }

  render() {
    const { series } = this;
    byId("tab-accuracy").hidden = series.length === 0;
    if (this.panel.hidden || series.length === 0) return;
    const legend = series.map((line, i) => make("li", {}, swatch(i), `${line.name} (n = ${countRuns(line)})`));
    this.panel.replaceChildren(
      make("h3", {}, "Test accuracy against the global batch"),
      drawChart(series),
      make("ul.legend", {}, ...legend),
      make("p.hint", {}, "Means over seeds; bars are 95 % intervals where there are two runs or more.")
    );
  }
}

/** A line for each series over a log axis, with its intervals. @param {Series[]} series */
function drawChart(series) {
  const points = series.flatMap((line) => line.points);
  const batches = [...new Set(points.map((point) => point.global_batch))].toSorted((a, b) => a - b);
  const low = Math.max(0, Math.min(...points.map((point) => point.low ?? point.mean)));
  const high = Math.min(1, Math.max(...points.map((point) => point.high ?? point.mean)));
  const margin = Math.max((high - low) * 0.08, 0.005);
  const [bottom, top] = [low - margin, high + margin];
  const inside = { width: SIZE.width - SIZE.left - SIZE.right, height: SIZE.height - SIZE.top - SIZE.bottom };
  const [first, last] = [Math.log2(batches[0]), Math.log2(batches[batches.length - 1])];
  /** @param {number} batch */
  const along = (batch) => (last > first ? 0.05 + (0.9 * (Math.log2(batch) - first)) / (last - first) : 0.5);
  /** @param {number} batch */
  const x = (batch) => SIZE.left + inside.width * along(batch);
  // an interval may reach beyond 0 and 100 %
  /** @param {number} value */
  const y = (value) => SIZE.top + inside.height * ((top - Math.min(Math.max(value, bottom), top)) / (top - bottom));
  const svg = makeSvg("svg", { viewBox: `0 0 ${SIZE.width} ${SIZE.height}`, role: "img", class: "chart" });
  svg.setAttribute("aria-label", series.map(describeSeries).join("; "));
  svg.append(...drawAxes(batches, bottom, top, { x, y }));
  for (const [index, line] of series.entries()) svg.append(...drawSeries(line, index, series.length, { x, y }));
  return svg;
}

/** @param {number[]} batches @param {number} bottom @param {number} top @param {Scales} scales */
function drawAxes(batches, bottom, top, { x, y }) {
  const marks = [];
  for (const value of ticks(bottom, top)) {
    const at = y(value);
    marks.push(makeSvg("line", { x1: SIZE.left, x2: SIZE.width - SIZE.right, y1: at, y2: at, class: "grid" }));
    const label = String(Number((100 * value).toFixed(1)));
    marks.push(makeSvg("text", { x: SIZE.left - 5, y: at + 3.5, "text-anchor": "end" }, label));
  }
  const every = Math.ceil(batches.length / 6);
  for (const batch of batches.filter((_, i) => i % every === 0)) {
    marks.push(makeSvg("text", { x: x(batch), y: SIZE.height - 14, "text-anchor": "middle" }, count(batch)));
  }
  const middle = (SIZE.left + SIZE.width - SIZE.right) / 2;
  marks.push(makeSvg("text", { x: middle, y: SIZE.height - 2, "text-anchor": "middle" }, "global batch"));
  marks.push(makeSvg("text", { x: 2, y: 10 }, "%"));
  return marks;
}

/** @param {Series} line @param {number} index @param {number} of @param {Scales} scales */
function drawSeries(line, index, of, { x, y }) {
  const colour = classColour(index);
  const aside = (index - (of - 1) / 2) * 3; // intervals at one batch stay apart
  const points = line.points.toSorted((a, b) => a.global_batch - b.global_batch);
  const path = points.map((point) => `${x(point.global_batch) + aside},${y(point.mean)}`).join(" ");
  const marks = [makeSvg("polyline", { points: path, fill: "none", stroke: colour, "stroke-width": 1.8 })];
  for (const point of points) {
    const at = x(point.global_batch) + aside;
    if (point.low !== null && point.high !== null) {
      const ends = { x1: at, x2: at, y1: y(point.low), y2: y(point.high) };
      marks.push(makeSvg("line", { ...ends, stroke: colour, "stroke-width": 1.4 }));
    }
    const title = makeSvg("title", {}, `${describeSeries({ name: line.name, points: [point] })} (n = ${point.n})`);
    marks.push(makeSvg("circle", { cx: at, cy: y(point.mean), r: 3, fill: colour }, title));
  }
  return marks;
}

/** @param {Series} series */
function describeSeries({ name, points }) {
  const accuracies = points.map((point) => `batch ${count(point.global_batch)} ${(100 * point.mean).toFixed(2)} %`);
  return `${name}: ${accuracies.join(", ")}`;
}

/** Four or five round values. @param {number} bottom @param {number} top */
function ticks(bottom, top) {
  const step = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5].find((size) => (top - bottom) / size <= 5) ?? 0.5;
  const values = [];
  for (let k = Math.ceil(bottom / step); k * step <= top; k++) values.push(k * step);
  return values;
}

/** @param {Series} line */
function countRuns(line) {
  const counts = line.points.map((point) => point.n);
  const [least, most] = [Math.min(...counts), Math.max(...counts)];
  return least === most ? String(least) : `${least} to ${most}`;
}

/** @param {number} index */
function swatch(index) {
  const square = make("i.swatch");
  square.style.setProperty("--class", classColour(index));
  return square;
}
