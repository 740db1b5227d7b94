// Mouse, pen and fingers on a map: move, zoom, hover, point at a sample, draw a box or a lasso.

import { samplesInBox, samplesInLasso } from "./shapes.js";
/** @import { App, Tool } from "../state/app.js" */
/** @import { MapPanel } from "./panel.js" */

const CLICK_PIXELS = 4; // less than this between down and up is a click
const WHEEL_PER_DOUBLING = 300; // pixels of scrolling
const LASSO_STEP = 3; // pixels between two of its corners

/** @typedef {[number, number]} Pixel */
/**
 * @typedef {Object} Drag  from where, what it does to the selection, and whether it is more than a click
 * @property {number} x
 * @property {number} y
 * @property {"add" | "remove" | "replace"} how
 * @property {Tool} tool
 * @property {boolean} far
 */

/** Handle the pointer on a map. @param {MapPanel} map */
export function watchPointer(map) {
  const { overlay, app } = map;
  /** @type {Map<number, [number, number]>} where each finger is */
  const down = new Map();
  /** @type {Drag | null} */
  let drag = null;

  overlay.addEventListener("pointerdown", (event) => {
    if (event.button > 1) return;
    overlay.setPointerCapture(event.pointerId);
    down.set(event.pointerId, positionOf(event));
    app.setActive(app.documents.indexOf(map.document));
    if (down.size === 1) drag = startDrag(app, event);
    else cancelShape();
  });

  overlay.addEventListener("pointermove", (event) => {
    const [x, y] = positionOf(event);
    const before = down.get(event.pointerId);
    if (!before) {
      app.setHover(map.pick(x, y));
      app.pointer = { map, x, y };
      return;
    }
    if (down.size === 2) pinch(map, down, event.pointerId, [x, y]);
    else if (drag) continueDrag(drag, x, y, before);
    down.set(event.pointerId, [x, y]);
  });

  overlay.addEventListener("pointerup", (event) => {
    const [x, y] = positionOf(event);
    if (down.size === 1 && drag) endDrag(drag, x, y);
    down.delete(event.pointerId);
    drag = null;
  });

  overlay.addEventListener("pointercancel", (event) => {
    down.delete(event.pointerId);
    cancelShape();
  });

  overlay.addEventListener("pointerleave", () => {
    app.pointer = null;
    app.setHover(-1);
  });

  overlay.addEventListener("dblclick", (event) => map.zoom(event.shiftKey ? 0.5 : 2, ...positionOf(event)));

  overlay.addEventListener(
    "wheel",
    (event) => {
      event.preventDefault();
      const pixels = event.deltaY * (event.deltaMode === 1 ? 30 : 1) * (event.ctrlKey ? 4 : 1); // ctrl: a pinched pad
      map.zoom(2 ** (-pixels / WHEEL_PER_DOUBLING), ...positionOf(event));
    },
    { passive: false }
  );

  function cancelShape() {
    drag = null;
    map.shape = null;
    map.drawOverlay();
  }

  /** @param {Drag} drag @param {number} x @param {number} y @param {Pixel} before */
  function continueDrag(drag, x, y, before) {
    drag.far ||= Math.hypot(x - drag.x, y - drag.y) >= CLICK_PIXELS;
    if (!drag.far) return;
    if (drag.tool === "pan") {
      map.pan(x - before[0], y - before[1]);
      return;
    }
    if (drag.tool === "box") map.shape = [drag.x, drag.y, x, drag.y, x, y, drag.x, y];
    else {
      map.shape ??= [drag.x, drag.y];
      const [lastX, lastY] = map.shape.slice(-2);
      if (Math.hypot(x - lastX, y - lastY) >= LASSO_STEP) map.shape.push(x, y);
    }
    map.drawOverlay();
  }

  /** @param {Drag} drag @param {number} x @param {number} y */
  function endDrag(drag, x, y) {
    if (!drag.far) {
      const sample = map.pick(x, y);
      if (drag.how !== "replace" && sample >= 0) app.select([sample], app.selected[sample] ? "remove" : "add");
      else if (sample < 0 && app.tool !== "pan") app.select([]);
      app.setFocus(sample);
    } else if (map.shape) {
      app.select(samplesInShape(map, drag.tool), drag.how);
      app.invalidate("drawn");
    }
    map.shape = null;
    map.drawOverlay();
  }
}

/**
 * Shift adds to the selection and alt takes from it; with the moving tool they draw a lasso.
 * @param {App} app
 * @param {MouseEvent} event
 * @returns {Drag}
 */
function startDrag(app, event) {
  const [x, y] = positionOf(event);
  const how = event.shiftKey ? "add" : event.altKey ? "remove" : "replace";
  const tool = app.tool === "pan" && how !== "replace" && event.button === 0 ? "lasso" : app.tool;
  return { x, y, how, tool: event.button === 1 ? "pan" : tool, far: false };
}

/** @param {MapPanel} map @param {Tool} tool */
function samplesInShape(map, tool) {
  const { viewport, scene, app, document } = map;
  const path = (map.shape ?? []).map((pixel, i) => (i % 2 === 0 ? viewport.fromX(pixel) : viewport.fromY(pixel)));
  const found = tool === "box" ? samplesInBox(scene.grid, ...cornersOf(path)) : samplesInLasso(scene.grid, path);
  // what cannot be seen is not meant
  /** @param {number} sample */
  const seen = (sample) => app.droppedStyle !== "hidden" || !document.dropped[sample];
  return found.filter((sample) => (app.classShown < 0 || document.label[sample] === app.classShown) && seen(sample));
}

/**
 * Left, bottom, right and top of a drawn box.
 * @param {number[]} path
 * @returns {[number, number, number, number]}
 */
function cornersOf(path) {
  const [x0, y0, , , x1, y1] = path;
  return [Math.min(x0, x1), Math.min(y0, y1), Math.max(x0, x1), Math.max(y0, y1)];
}

/**
 * Two fingers: the place between them stays between them, and their distance is the zoom.
 * @param {MapPanel} map
 * @param {Map<number, Pixel>} down
 * @param {number} moved
 * @param {Pixel} place
 */
function pinch(map, down, moved, place) {
  const [still] = [...down].filter(([id]) => id !== moved).map(([, where]) => where);
  const before = down.get(moved) ?? place;
  /** @param {Pixel} a @param {Pixel} b @returns {Pixel} */
  const middle = (a, b) => [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2];
  /** @param {Pixel} a @param {Pixel} b */
  const apart = (a, b) => Math.max(Math.hypot(a[0] - b[0], a[1] - b[1]), 1);
  const [from, to] = [middle(still, before), middle(still, place)];
  map.pan(to[0] - from[0], to[1] - from[1]);
  map.zoom(apart(still, place) / apart(still, before), ...to);
}

/** @param {MouseEvent} event @returns {Pixel} */
function positionOf(event) {
  return [event.offsetX, event.offsetY];
}
