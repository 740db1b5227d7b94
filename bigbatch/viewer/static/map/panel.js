// One document's map: its points, and above them the pointer's rings and the shape that is being drawn.

import { context2d, make, setText } from "../ui/dom.js";
import { count, percent } from "../ui/formatting.js";
import { watchPointer } from "./pointer.js";
import { chooseRenderer } from "./renderer.js";
import { Scene } from "./scene.js";
import { Viewport } from "./viewport.js";
/** @import { App, Topic } from "../state/app.js" */
/** @import { FilterDocument } from "../state/document.js" */

const SMOOTH_FRAME_MS = 16; // a picture that takes longer is moved about as it is, and drawn anew when there is time
const REST_MS = 120;
const PICK_RADIUS = 9; // pixels around the pointer
const MOST_PIXELS_PER_CSS_PIXEL = 2;

/** @type {Topic[]} what changes the points themselves */
const SCENE_TOPICS = ["decision", "class", "selection", "appearance"];

export class MapPanel {
  /** @type {Topic[]} */
  topics = ["decision", "class", "selection", "appearance", "focus", "hover", "document", "tool", "neighbours"];

  /** @param {App} app @param {FilterDocument} document */
  constructor(app, document) {
    this.app = app;
    this.document = document;
    this.scene = new Scene(document);
    this.viewport = new Viewport(this.scene.grid.bounds);
    this.frameMs = 0;
    this.drawnAt = 0;
    this.title = make("div.map-title");
    this.overlay = make("canvas.overlay", {
      tabIndex: 0,
      ariaLabel: `Map of ${document.name}: arrow keys move it, plus and minus zoom, n and p step through samples`,
    });
    this.overlay.setAttribute("role", "application");
    this.element = make("div.map", { data: { document: document.id } }, this.title, this.overlay);
    const wanted = new URLSearchParams(location.search).get("renderer");
    this.renderer = chooseRenderer(() => this.newCanvas(), this.scene, wanted);
    this.element.dataset.renderer = this.renderer.name;
    this.overlayRatio = 1;
    this.ready = false;
    this.waiting = false;
    /** @type {number[] | null} the box or lasso that is being drawn: x0, y0, x1, y1 ... in pixels */
    this.shape = null;
    watchPointer(this);
    new ResizeObserver(() => this.resize()).observe(this.element);
  }

  newCanvas() {
    this.element.querySelector(".points")?.remove();
    const canvas = make("canvas.points");
    this.element.prepend(canvas);
    return canvas;
  }

  resize() {
    const { clientWidth: width, clientHeight: height } = this.element;
    if (!width || !height) return;
    const ratio = Math.min(devicePixelRatio, MOST_PIXELS_PER_CSS_PIXEL);
    this.viewport.resize(width, height);
    this.renderer.resize(width, height, ratio);
    this.overlay.width = Math.round(width * ratio);
    this.overlay.height = Math.round(height * ratio);
    this.overlayRatio = ratio;
    this.ready = true;
    this.updateScene();
    this.draw();
  }

  /** @param {Set<Topic>} changed */
  render(changed) {
    if (!this.ready) return;
    const scene = SCENE_TOPICS.some((topic) => changed.has(topic));
    if (scene) this.updateScene();
    if (changed.has("focus")) this.revealFocus();
    if (scene) this.draw();
    else this.drawOverlay();
    const { total, kept, fraction } = this.document.counts();
    setText(this.title, `${this.document.name}: ${count(kept)} of ${count(total)} kept, ${percent(fraction)} dropped`);
    this.element.classList.toggle("active", this.app.documents.length > 1 && this.app.document === this.document);
    this.element.dataset.tool = this.app.tool;
  }

  updateScene() {
    const { app, scene } = this;
    const clusters = app.colourBy === "cluster" ? this.document.clusters ?? null : null;
    scene.colour(app.theme, app.droppedStyle, clusters);
    scene.fade(app.classShown, app.selected, app.selectedCount);
    this.renderer.update();
  }

  /** The whole picture. */
  draw() {
    const started = performance.now();
    this.renderer.draw(this.viewport);
    this.drawOverlay();
    this.drawnAt = performance.now();
    this.frameMs = this.drawnAt - started;
    clearTimeout(this.resting);
  }

  /** The view has moved: at the next frame draw it, or move the old picture where drawing takes too long. */
  scheduleDraw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      const started = performance.now();
      // a slow picture is drawn anew now and then on the way, too, so that no edge stays empty for long
      if (this.frameMs <= SMOOTH_FRAME_MS || started - this.drawnAt > 6 * this.frameMs + REST_MS) this.draw();
      else {
        this.renderer.drawMoved(this.viewport);
        this.drawOverlay();
        clearTimeout(this.resting);
        this.resting = setTimeout(() => this.draw(), REST_MS);
      }
      performance.clearMeasures("pan");
      performance.measure("pan", { start: started });
    });
  }

  fit() {
    this.viewport.fit();
    this.scheduleDraw();
  }

  /** @param {number} factor */
  zoom(factor, x = this.viewport.width / 2, y = this.viewport.height / 2) {
    this.viewport.zoomAt(x, y, factor);
    this.scheduleDraw();
  }

  /** @param {number} dx @param {number} dy */
  pan(dx, dy) {
    this.viewport.pan(dx, dy);
    this.scheduleDraw();
  }

  /**
   * Where a sample is in the panel, or null where it has no place.
   * @param {number} sample
   * @returns {[number, number] | null}
   */
  pixelOf(sample) {
    const [x, y] = [this.document.position[2 * sample], this.document.position[2 * sample + 1]];
    return Number.isFinite(x + y) ? [this.viewport.toX(x), this.viewport.toY(y)] : null;
  }

  revealFocus() {
    const { focus } = this.app;
    if (focus < 0 || !this.pixelOf(focus)) return;
    if (this.viewport.reveal(this.document.position[2 * focus], this.document.position[2 * focus + 1])) this.draw();
  }

  /**
   * The sample under a pixel, or -1. Points that are hidden are not found; faded ones only where no other is near.
   * @param {number} pixelX
   * @param {number} pixelY
   */
  pick(pixelX, pixelY) {
    const { viewport, scene, app } = this;
    const [x, y, radius] = [viewport.fromX(pixelX), viewport.fromY(pixelY), PICK_RADIUS / viewport.scale];
    /** @param {number} sample */
    const shown = (sample) => app.droppedStyle !== "hidden" || !this.document.dropped[sample];
    const bright = scene.grid.nearest(x, y, radius, (sample) => !scene.faded[sample] && shown(sample));
    return bright >= 0 ? bright : scene.grid.nearest(x, y, radius, shown);
  }

  drawOverlay() {
    const context = context2d(this.overlay);
    context.setTransform(this.overlayRatio, 0, 0, this.overlayRatio, 0, 0);
    context.clearRect(0, 0, this.viewport.width, this.viewport.height);
    const style = getComputedStyle(this.element);
    const ink = style.getPropertyValue("--ink");
    const accent = style.getPropertyValue("--accent");
    const back = style.getPropertyValue("--map");
    const { app } = this;
    const neighbours = app.neighbours?.of === this.document.id ? app.neighbours.samples : [];
    for (const sample of neighbours) this.drawRing(sample, { radius: 5.5, colour: accent, back, width: 1.2 });
    this.drawRing(app.focus, { radius: 9, colour: accent, back, width: 2.5 });
    if (app.hover !== app.focus) this.drawRing(app.hover, { radius: 8, colour: ink, back, width: 2 });
    if (this.shape) drawShape(context, this.shape, accent);
  }

  /**
   * A circle around a sample, with an edge in the colour of the map.
   * @param {number} sample
   * @param {{radius: number, colour: string, back: string, width: number}} look
   */
  drawRing(sample, { radius, colour, back, width }) {
    const context = context2d(this.overlay);
    const place = sample < 0 ? null : this.pixelOf(sample);
    if (!place) return;
    for (const { stroke, line } of [{ stroke: back, line: width + 2 }, { stroke: colour, line: width }]) {
      context.beginPath();
      context.arc(place[0], place[1], radius, 0, 2 * Math.PI);
      context.strokeStyle = stroke;
      context.lineWidth = line;
      context.stroke();
    }
  }
}

/** @param {CanvasRenderingContext2D} context @param {number[]} shape @param {string} accent */
function drawShape(context, shape, accent) {
  context.beginPath();
  for (let i = 0; i < shape.length; i += 2) context.lineTo(shape[i], shape[i + 1]);
  context.closePath();
  context.globalAlpha = 0.12;
  context.fillStyle = accent;
  context.fill();
  context.globalAlpha = 1;
  context.lineWidth = 1.5;
  context.strokeStyle = accent;
  context.stroke();
}
