// Chooses the renderer: WebGL2 with a real GPU, otherwise the canvas.

import { CanvasRenderer } from "./canvas.js";
import { Viewport } from "./viewport.js";
import { WebGLRenderer } from "./webgl.js";
/** @import { Scene } from "./scene.js" */

const SOFTWARE = /swiftshader|llvmpipe|softpipe|software|basic render/i;
const SLOWEST_FRAME_MS = 30;

/**
 * @param {() => HTMLCanvasElement} makeCanvas  a canvas has one kind of context for life, so each try needs its own
 * @param {Scene} scene
 * @param {string | null} wanted  "webgl" or "canvas"; null chooses
 */
export function chooseRenderer(makeCanvas, scene, wanted) {
  if (wanted === "canvas" || (wanted !== "webgl" && !hasRealGpu())) return new CanvasRenderer(makeCanvas(), scene);
  try {
    const renderer = new WebGLRenderer(makeCanvas(), scene);
    if (wanted === "webgl" || frameMilliseconds(renderer) <= SLOWEST_FRAME_MS) return renderer;
  } catch (problem) {
    console.info(`WebGL2 is not used: ${problem}`);
  }
  return new CanvasRenderer(makeCanvas(), scene);
}

function hasRealGpu() {
  const gl = document.createElement("canvas").getContext("webgl2", { failIfMajorPerformanceCaveat: true });
  if (!gl) return false;
  const names = gl.getExtension("WEBGL_debug_renderer_info");
  const name = gl.getParameter(names ? names.UNMASKED_RENDERER_WEBGL : gl.RENDERER);
  gl.getExtension("WEBGL_lose_context")?.loseContext();
  return !SOFTWARE.test(name);
}

/**
 * The second frame's time; the first one compiles. Reading a pixel waits for the GPU.
 * @param {WebGLRenderer} renderer
 */
function frameMilliseconds(renderer) {
  renderer.resize(900, 700, 1);
  const viewport = new Viewport(renderer.scene.grid.bounds);
  viewport.resize(900, 700);
  const pixel = new Uint8Array(4);
  let started = 0;
  for (let frame = 0; frame < 2; frame++) {
    started = performance.now();
    renderer.draw(viewport);
    renderer.gl.readPixels(0, 0, 1, 1, renderer.gl.RGBA, renderer.gl.UNSIGNED_BYTE, pixel);
  }
  return performance.now() - started;
}
