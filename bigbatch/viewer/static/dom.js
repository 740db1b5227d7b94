// Small helpers to make elements. Text goes in as text, never as HTML.

/**
 * @param {string} tag  like "button" or "div.row.wide"
 * @param {Object} properties  of the element; `data` and `aria` hold attributes, `on` listeners
 * @param {...(Node | string)} children
 */
export function make(tag, { data = {}, aria = {}, on = {}, ...properties } = {}, ...children) {
  const [name, ...classes] = tag.split(".");
  const element = document.createElement(name);
  if (classes.length) element.className = classes.join(" ");
  Object.assign(element, properties);
  for (const [key, value] of Object.entries(data)) element.dataset[key] = value;
  for (const [key, value] of Object.entries(aria)) element.setAttribute(`aria-${key}`, value);
  for (const [event, listener] of Object.entries(on)) element.addEventListener(event, listener);
  element.append(...children);
  return element;
}

/** @param {string} tag @param {Object<string, string | number>} attributes */
export function makeSvg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}

/** The element with this id. */
export function at(id) {
  return document.getElementById(id);
}

/** Set text only where it changes, so that screen readers and layout are left alone. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
