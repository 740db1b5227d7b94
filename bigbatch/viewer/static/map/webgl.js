// Draws points on a GPU. The GPU itself decides which are noise, from eps* and a texture of one eps per class: a
// change of eps sends a few numbers, not a column. Positive float64s order like their bits read as one integer, so
// two uint32 compare exactly what the library compares.

import { rimWidth } from "./scene.js";
/** @import { Scene } from "./scene.js" */
/** @import { Viewport } from "./viewport.js" */

const VERTEX = `#version 300 es
precision highp float;
precision highp usampler2D;
layout(location = 0) in vec2 position;
layout(location = 1) in uvec2 epsStar; // low and high half of a float64
layout(location = 2) in uint label;
layout(location = 3) in uint colour;
layout(location = 4) in uint flags; // 2 overridden, 4 kept by the override, 8 faded, 16 has a place
uniform usampler2D epsOfClass;
uniform usampler2D paints;
uniform vec4 place; // scale and offset to clip space
uniform float diameter;
uniform float rim; // of background, around large points
uniform uint state; // which points this pass draws: 1 dropped, 2 faded
flat out vec4 paint;

bool isNoise() {
  uint across = uint(textureSize(epsOfClass, 0).x);
  uvec2 eps = texelFetch(epsOfClass, ivec2(label % across, label / across), 0).xy;
  return eps.y < epsStar.y || (eps.y == epsStar.y && eps.x < epsStar.x);
}

void main() {
  bool dropped = (flags & 2u) != 0u ? (flags & 4u) == 0u : isNoise();
  uint own = (dropped ? 1u : 0u) | ((flags & 8u) != 0u ? 2u : 0u);
  bool shown = own == state && (flags & 16u) != 0u;
  gl_Position = shown ? vec4(position * place.xy + place.zw, 0.0, 1.0) : vec4(2.0, 2.0, 2.0, 1.0);
  gl_PointSize = diameter + 1.0 + 2.0 * rim;
  uint index = colour * 4u + own;
  uint across = uint(textureSize(paints, 0).x);
  paint = vec4(texelFetch(paints, ivec2(index % across, index / across), 0)) / 255.0;
}`;

const FRAGMENT = `#version 300 es
precision highp float;
uniform float diameter;
uniform float rim;
uniform vec3 background;
flat in vec4 paint;
out vec4 pixel;
void main() {
  float distance = length(gl_PointCoord - 0.5) * (diameter + 1.0 + 2.0 * rim);
  float coverage = diameter < 2.5 ? 1.0 : clamp(diameter / 2.0 + 0.5 - distance, 0.0, 1.0);
  float around = rim > 0.0 ? 0.7 * clamp(diameter / 2.0 + rim + 0.5 - distance, 0.0, 1.0) * (1.0 - coverage) : 0.0;
  if (coverage + around <= 0.0) discard;
  pixel = vec4(paint.rgb * coverage + background * around, coverage + around);
}`;

const UNIFORMS = ["epsOfClass", "paints", "place", "diameter", "rim", "background", "state"];
const TEXTURE_ACROSS = 1024;
const ORDER = [2, 3, 0, 1]; // faded kept, faded dropped, kept, dropped

export class WebGLRenderer {
  name = "webgl";

  /** @param {HTMLCanvasElement} canvas @param {Scene} scene */
  constructor(canvas, scene) {
    this.canvas = canvas;
    this.scene = scene;
    const gl = canvas.getContext("webgl2", { alpha: false, antialias: false, preserveDrawingBuffer: true });
    if (!gl) throw new Error("this browser has no WebGL2");
    this.gl = gl;
    this.ratio = 1;
    this.program = linkProgram(gl);
    this.uniform = Object.fromEntries(UNIFORMS.map((name) => [name, gl.getUniformLocation(this.program, name)]));
    gl.bindVertexArray(gl.createVertexArray());
    this.buffers = {
      position: makeAttribute(gl, 0, 2, gl.FLOAT),
      epsStar: makeAttribute(gl, 1, 2, gl.UNSIGNED_INT),
      label: makeAttribute(gl, 2, 1, gl.UNSIGNED_SHORT),
      colour: makeAttribute(gl, 3, 1, gl.UNSIGNED_SHORT),
      flags: makeAttribute(gl, 4, 1, gl.UNSIGNED_BYTE),
    };
    this.textures = [makeTexture(gl, 0), makeTexture(gl, 1)];
    const { position, label } = scene.document;
    this.upload("position", Float32Array.from(position, (value) => (Number.isFinite(value) ? value : 0)));
    this.upload("label", label);
    /** @type {Float64Array | null} */
    this.epsStar = null;
    /** @type {Int32Array | null | undefined} */
    this.clusters = undefined;
    this.update();
  }

  /** @param {number} width @param {number} height @param {number} ratio */
  resize(width, height, ratio) {
    this.ratio = ratio;
    this.canvas.width = Math.max(1, Math.round(width * ratio));
    this.canvas.height = Math.max(1, Math.round(height * ratio));
  }

  /** The scene's decision, fading or colours have changed. */
  update() {
    const { scene } = this;
    const { epsStar, settings } = scene.document;
    if (this.epsStar !== epsStar) {
      this.epsStar = epsStar;
      this.upload("epsStar", epsStar);
    }
    if (this.clusters !== scene.clusters) {
      this.clusters = scene.clusters;
      this.upload("colour", Uint16Array.from(scene.document.label, (_, sample) => scene.colourIndex(sample)));
    }
    this.upload("flags", makeFlags(scene));
    const { gl } = this;
    const halves = new Uint32Array(settings.eps.slice().buffer); // of float64s
    const layout = { inside: gl.RG32UI, format: gl.RG_INTEGER, type: gl.UNSIGNED_INT, channels: 2 };
    this.uploadTable(0, halves, layout);
    const bytes = new Uint8Array(scene.paint.table.buffer);
    this.uploadTable(1, bytes, { inside: gl.RGBA8UI, format: gl.RGBA_INTEGER, type: gl.UNSIGNED_BYTE, channels: 4 });
  }

  /** All points in view. @param {Viewport} viewport */
  draw(viewport) {
    const { gl, scene, ratio, uniform } = this;
    const background = [0, 8, 16].map((shift) => ((scene.paint.background >>> shift) & 255) / 255);
    gl.viewport(0, 0, this.canvas.width, this.canvas.height);
    gl.clearColor(background[0], background[1], background[2], 1);
    gl.clear(gl.COLOR_BUFFER_BIT);
    gl.useProgram(this.program);
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
    const [across, up] = [(2 * viewport.scale) / viewport.width, (2 * viewport.scale) / viewport.height];
    gl.uniform4f(uniform.place, across, up, -viewport.centreX * across, -viewport.centreY * up);
    const diameter = scene.diameter(viewport.zoom, ratio);
    gl.uniform1f(uniform.diameter, diameter);
    gl.uniform1f(uniform.rim, rimWidth(diameter));
    gl.uniform3fv(uniform.background, background);
    gl.uniform1i(uniform.epsOfClass, 0);
    gl.uniform1i(uniform.paints, 1);
    for (const state of ORDER) {
      if (scene.droppedStyle === "hidden" && state & 1) continue;
      gl.uniform1ui(uniform.state, state);
      gl.drawArrays(gl.POINTS, 0, scene.document.samples);
    }
  }

  /** A GPU draws a whole picture as fast as it moves an old one. @param {Viewport} viewport */
  drawMoved(viewport) {
    this.draw(viewport);
  }

  /** @param {keyof WebGLRenderer["buffers"]} name @param {AllowSharedBufferSource} values */
  upload(name, values) {
    this.gl.bindBuffer(this.gl.ARRAY_BUFFER, this.buffers[name]);
    this.gl.bufferData(this.gl.ARRAY_BUFFER, values, this.gl.DYNAMIC_DRAW);
  }

  /**
   * Upload a list of values as a texture of rows.
   * @param {number} unit
   * @param {Uint32Array | Uint8Array} values
   * @param {{inside: number, format: number, type: number, channels: number}} layout
   */
  uploadTable(unit, values, { inside, format, type, channels }) {
    const { gl } = this;
    const rows = Math.max(1, Math.ceil(values.length / channels / TEXTURE_ACROSS));
    const size = rows * TEXTURE_ACROSS * channels;
    const filled = values instanceof Uint8Array ? new Uint8Array(size) : new Uint32Array(size);
    filled.set(values);
    gl.activeTexture(gl.TEXTURE0 + unit);
    gl.bindTexture(gl.TEXTURE_2D, this.textures[unit]);
    gl.texImage2D(gl.TEXTURE_2D, 0, inside, TEXTURE_ACROSS, rows, 0, format, type, filled);
  }
}

/** @param {Scene} scene */
function makeFlags(scene) {
  const { override, position, samples } = scene.document;
  const flags = new Uint8Array(samples);
  for (let i = 0; i < samples; i++) {
    const given = override[i] < 0 ? 0 : override[i] === 1 ? 6 : 2;
    const placed = Number.isFinite(position[2 * i]) ? 16 : 0;
    flags[i] = given | (scene.faded[i] << 3) | placed;
  }
  return flags;
}

/** @param {WebGL2RenderingContext} gl */
function linkProgram(gl) {
  const program = gl.createProgram();
  const shaders = [
    { kind: gl.VERTEX_SHADER, source: VERTEX },
    { kind: gl.FRAGMENT_SHADER, source: FRAGMENT },
  ];
  for (const { kind, source } of shaders) {
    const shader = gl.createShader(kind);
    if (!shader) throw new Error("WebGL2 has lost its context");
    gl.shaderSource(shader, source);
    gl.compileShader(shader);
    if (!gl.getShaderParameter(shader, gl.COMPILE_STATUS)) throw new Error(String(gl.getShaderInfoLog(shader)));
    gl.attachShader(program, shader);
  }
  gl.linkProgram(program);
  if (!gl.getProgramParameter(program, gl.LINK_STATUS)) throw new Error(String(gl.getProgramInfoLog(program)));
  return program;
}

/** @param {WebGL2RenderingContext} gl @param {number} location @param {number} size @param {number} type */
function makeAttribute(gl, location, size, type) {
  const buffer = gl.createBuffer();
  gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
  gl.enableVertexAttribArray(location);
  if (type === gl.FLOAT) gl.vertexAttribPointer(location, size, type, false, 0, 0);
  else gl.vertexAttribIPointer(location, size, type, 0, 0);
  return buffer;
}

/** @param {WebGL2RenderingContext} gl @param {number} unit */
function makeTexture(gl, unit) {
  const made = gl.createTexture();
  gl.activeTexture(gl.TEXTURE0 + unit);
  gl.bindTexture(gl.TEXTURE_2D, made);
  // integer textures have no filtering
  gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MIN_FILTER, gl.NEAREST);
  gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MAG_FILTER, gl.NEAREST);
  return made;
}
