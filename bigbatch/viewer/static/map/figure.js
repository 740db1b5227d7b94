// The map as a picture for a paper, PNG or SVG, on white, with legend and counts.

import { context2d, make, makeSvg } from "../ui/dom.js";
import { CanvasRenderer } from "./canvas.js";
import { count, percent, short } from "../ui/formatting.js";
import { classColour, themeColours } from "./palette.js";
import { Scene } from "./scene.js";
import { Viewport } from "./viewport.js";
/** @import { App } from "../state/app.js" */
/** @import { FilterDocument } from "../state/document.js" */
/** @import { MapPanel } from "./panel.js" */

/** @typedef {{colour: string | null, words: string}} LegendRow */

const MAP = { width: 720, height: 720 };
const LEGEND = 230;
const TITLE = 44;
const LINE = 20;
const PNG_RATIO = 2;
const MOST_CLASSES = 30; // a longer legend says how many more there are
const MOST_VECTOR_POINTS = 200_000; // above, the points of an SVG are one picture within it
const COLOURS = themeColours("light");

/** @param {MapPanel} map @returns {Promise<Blob>} */
export async function renderPng(map) {
  const { svg, width, height } = layOutFigure(map, await pointsAsImage(map));
  const text = new XMLSerializer().serializeToString(svg);
  const picture = new Image();
  picture.src = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
  await picture.decode();
  const canvas = make("canvas", { width: width * PNG_RATIO, height: height * PNG_RATIO });
  context2d(canvas).drawImage(picture, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(picture.src);
  return toPngBlob(canvas);
}

/** @param {MapPanel} map @returns {Promise<Blob>} */
export async function renderSvg(map) {
  const few = map.scene.grid.count <= MOST_VECTOR_POINTS;
  const { svg } = layOutFigure(map, few ? pointsAsPaths(map) : await pointsAsImage(map));
  return new Blob([new XMLSerializer().serializeToString(svg)], { type: "image/svg+xml" });
}

/** Title, points and legend, as they stand on the page. @param {MapPanel} map @param {SVGElement[]} points */
function layOutFigure(map, points) {
  const { document, app } = map;
  const shown = legendRows(document, app);
  const width = MAP.width + LEGEND;
  const height = Math.max(MAP.height + TITLE, TITLE + (shown.length + 3) * LINE);
  const svg = makeSvg("svg", {
    xmlns: "http://www.w3.org/2000/svg",
    viewBox: `0 0 ${width} ${height}`,
    width,
    height,
    "font-family": "Helvetica, Arial, sans-serif",
    "font-size": 13,
  });
  const { kept, total, fraction } = document.counts();
  const { settings, about } = document;
  const result = `${count(kept)} of ${count(total)} kept, ${percent(fraction, 2)} dropped`;
  const title = `${about.dataset}, ${about.network || document.name}: ${result}`;
  const how = `mode ${settings.mode}, min_samples ${settings.min_samples}${describeEps(settings.eps)}`;
  svg.append(
    makeSvg("rect", { width, height, fill: COLOURS.background }),
    makeSvg("text", { x: 16, y: 22, "font-size": 15, fill: COLOURS.ink }, title),
    makeSvg("text", { x: 16, y: 39, "font-size": 11, fill: "#5b626c" }, how),
    makeSvg("g", { transform: `translate(0 ${TITLE})` }, ...points),
    makeSvg("g", { transform: `translate(${MAP.width + 8} ${TITLE + 10})`, fill: COLOURS.ink }, ...drawLegend(shown))
  );
  return { svg, width, height };
}

/** @param {Float64Array} eps */
function describeEps(eps) {
  const known = eps.filter((value) => Number.isFinite(value));
  const [low, high] = [Math.min(...known), Math.max(...known)];
  if (!known.length) return "";
  return low === high ? `, eps ${short(low)}` : `, eps ${short(low)} to ${short(high)} by class`;
}

/**
 * Colour, name and counts of each class, then of what is dropped.
 * @param {FilterDocument} document
 * @param {App} app
 * @returns {LegendRow[]}
 */
function legendRows(document, app) {
  const noise = app.droppedStyle === "grey" ? COLOURS.noiseGrey : COLOURS.noise;
  const listed = document.classes.slice(0, MOST_CLASSES);
  /** @type {LegendRow[]} */
  const rows = listed.map((name, index) => {
    const { kept, dropped } = document.counts(index);
    const colour = app.colourBy === "class" ? classColour(index) : null;
    return { colour, words: `${name}: ${count(kept)} kept, ${count(dropped)} dropped` };
  });
  const more = document.classes.length - listed.length;
  if (more > 0) rows.push({ colour: null, words: `and ${count(more)} more classes` });
  const { dropped } = document.counts();
  if (app.droppedStyle !== "hidden") rows.push({ colour: noise, words: `dropped: ${count(dropped)}` });
  return rows;
}

/** @param {LegendRow[]} rows */
function drawLegend(rows) {
  return rows.flatMap(({ colour, words }, i) => [
    ...(colour ? [makeSvg("circle", { cx: 6, cy: i * LINE + 8, r: 5, fill: colour })] : []),
    makeSvg("text", { x: 18, y: i * LINE + 12.5 }, words),
  ]);
}

/** What is on the screen, drawn again on white and without fading. @param {MapPanel} map */
function makeFigureScene(map) {
  const scene = new Scene(map.document);
  const { app } = map;
  scene.colour("light", app.droppedStyle, map.scene.clusters);
  const viewport = new Viewport(scene.grid.bounds);
  viewport.resize(MAP.width, MAP.height);
  const shown = map.viewport;
  if (!shown.isFitted()) {
    viewport.scale = shown.scale * Math.min(MAP.width / shown.width, MAP.height / shown.height);
    viewport.centreX = shown.centreX;
    viewport.centreY = shown.centreY;
  } else viewport.fit();
  return { scene, viewport };
}

/** @param {MapPanel} map */
async function pointsAsImage(map) {
  const { scene, viewport } = makeFigureScene(map);
  const canvas = make("canvas");
  const renderer = new CanvasRenderer(canvas, scene);
  renderer.resize(MAP.width, MAP.height, PNG_RATIO);
  renderer.update();
  renderer.draw(viewport);
  return [makeSvg("image", { width: MAP.width, height: MAP.height, href: canvas.toDataURL("image/png") })];
}

/** One path for each colour: a dot is a line of no length with a round end. @param {MapPanel} map */
function pointsAsPaths(map) {
  const { scene, viewport } = makeFigureScene(map);
  const { document } = map;
  const noise = scene.droppedStyle === "grey" ? COLOURS.noiseGrey : COLOURS.noise;
  /** @type {Map<string, string[]>} */
  const dots = new Map();
  /** @type {string[]} */
  const droppedDots = [];
  const [left, bottom, right, top] = viewport.rectangle(0);
  scene.grid.rows(left, bottom, right, top, (from, to) => {
    for (let slot = from; slot < to; slot++) {
      const [x, y] = [viewport.toX(scene.grid.x[slot]), viewport.toY(scene.grid.y[slot])];
      if (x < 0 || y < 0 || x > MAP.width || y > MAP.height) continue;
      const sample = scene.grid.sample[slot];
      const dot = `M${x.toFixed(1)} ${y.toFixed(1)}h0`;
      if (document.dropped[sample]) droppedDots.push(dot);
      else {
        const colour = classColour(scene.colourIndex(sample));
        const list = dots.get(colour) ?? [];
        dots.set(colour, list);
        list.push(dot);
      }
    }
  });
  const diameter = scene.diameter(viewport.zoom, 1);
  /** @param {string} stroke @param {string[]} list */
  const path = (stroke, list) =>
    makeSvg("path", { d: list.join(""), stroke, "stroke-width": diameter, "stroke-linecap": "round", fill: "none" });
  const kept = [...dots].map(([colour, list]) => path(colour, list));
  return scene.droppedStyle === "hidden" ? kept : [...kept, path(noise, droppedDots)];
}

/** @param {HTMLCanvasElement} canvas @returns {Promise<Blob>} */
function toPngBlob(canvas) {
  return new Promise((resolve, reject) => {
    canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("the map is too large for a PNG"))), "image/png");
  });
}
