// Rows of buttons of which one is chosen.

import { buttonsIn, targetOf } from "./dom.js";

/** @type {Record<string, number>} */
const STEPS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

/**
 * A row of buttons of which one is chosen; arrow keys go from one to the next.
 * @param {HTMLElement} group
 * @param {(button: HTMLButtonElement) => void} choose
 */
export function makeRadioGroup(group, choose) {
  group.addEventListener("click", (event) => {
    const button = targetOf(event).closest("button");
    if (button) choose(button);
  });
  group.addEventListener("keydown", (event) => {
    const step = STEPS[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    const buttons = buttonsIn(group);
    const now = buttons.findIndex((button) => button === document.activeElement);
    const next = buttons[(now + step + buttons.length) % buttons.length];
    next.focus();
    choose(next);
  });
}

/**
 * Mark the chosen button of a row.
 * @param {HTMLElement} group
 * @param {(button: HTMLButtonElement) => boolean} isChosen
 */
export function checkRadio(group, isChosen) {
  for (const button of buttonsIn(group)) {
    const chosen = isChosen(button);
    button.setAttribute("aria-checked", String(chosen));
    button.tabIndex = chosen ? 0 : -1;
  }
}
