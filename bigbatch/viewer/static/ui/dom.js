// Small helpers for elements. Text goes in as text, never as HTML.

/**
 * @typedef {Object} ElementOptions  properties of the element, and:
 * @property {Record<string, unknown>} [data]  data attributes
 * @property {Record<string, unknown>} [aria]  aria attributes
 * @property {Record<string, (event: any) => void>} [on]  listeners
 */

/**
 * Create an element.
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag | `${Tag}.${string}`} selector  like "button" or "div.row.wide"
 * @param {ElementOptions & Record<string, unknown>} options
 * @param {...(Node | string)} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function make(selector, { data = {}, aria = {}, on = {}, ...properties } = {}, ...children) {
  const [tag, ...classes] = selector.split(".");
  const element = document.createElement(/** @type {Tag} */ (tag));
  if (classes.length) element.className = classes.join(" ");
  Object.assign(element, properties);
  for (const [key, value] of Object.entries(data)) element.dataset[key] = String(value);
  for (const [key, value] of Object.entries(aria)) element.setAttribute(`aria-${key}`, String(value));
  for (const [event, listener] of Object.entries(on)) element.addEventListener(event, listener);
  element.append(...children);
  return element;
}

/**
 * Create an SVG element.
 * @param {string} tag
 * @param {Record<string, string | number>} attributes
 * @param {...(Node | string)} children
 */
export function makeSvg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}

/** The element with this id. @param {string} id @returns {HTMLElement} */
export function byId(id) {
  const element = document.getElementById(id);
  if (!element) throw new Error(`the page has no element "${id}"`);
  return element;
}

/** The input with this id. @param {string} id */
export function inputById(id) {
  return /** @type {HTMLInputElement} */ (byId(id));
}

/** The drop-down list with this id. @param {string} id */
export function selectById(id) {
  return /** @type {HTMLSelectElement} */ (byId(id));
}

/** The button with this id. @param {string} id */
export function buttonById(id) {
  return /** @type {HTMLButtonElement} */ (byId(id));
}

/** The buttons within an element. @param {ParentNode} parent @returns {HTMLButtonElement[]} */
export function buttonsIn(parent, selector = "button") {
  return [...parent.querySelectorAll(selector)].map((button) => /** @type {HTMLButtonElement} */ (button));
}

/** The 2D context of a canvas. @param {HTMLCanvasElement} canvas @returns {CanvasRenderingContext2D} */
export function context2d(canvas, options = {}) {
  return /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d", options));
}

/** The element where an event happened. @param {Event} event */
export function targetOf(event) {
  return /** @type {HTMLElement} */ (event.target);
}

/**
 * Set text only where it changes, so that screen readers and layout are not disturbed.
 * @param {Element} element
 * @param {string} text
 */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
