// The filter's settings: mode, fraction to drop, eps on a log scale, min_samples. Changes show while a slider moves and
// are saved when it is released.

import { byId, inputById, setText } from "../ui/dom.js";
import { EpsHistogram } from "./histogram.js";
import { short } from "../ui/formatting.js";
import { checkRadio, makeRadioGroup } from "../ui/radios.js";
/** @import { App, Topic } from "../state/app.js" */
/** @import { Settings } from "../state/document.js" */

const EPS_STEPS = 1000;

export class Controls {
  /** @type {Topic[]} */
  topics = ["decision", "settings", "class", "document", "saved", "appearance"];

  /** @param {App} app */
  constructor(app) {
    this.app = app;
    /** @type {{epsStar: Float64Array, classShown: number, low: number, high: number} | null} */
    this.rangeOf = null;
    this.histogram = new EpsHistogram(/** @type {HTMLCanvasElement} */ (byId("eps-histogram")));
    makeRadioGroup(byId("mode"), (button) => app.setMode(/** @type {Settings["mode"]} */ (button.dataset.mode)));
    this.makeDocumentChoice();
    /** @param {number} percent */
    const setDrop = (percent) => app.changeSettings({ mode: "fraction", drop: percent / 100 });
    onSlide(inputById("drop"), setDrop, () => app.save());
    onChange(inputById("drop-number"), (value) => value >= 0 && value < 100, (value) => {
      app.changeSettings({ mode: "fraction", drop: value / 100 });
      app.save();
    });
    inputById("per-class").addEventListener("change", () => {
      app.changeSettings({ mode: "fraction", per_class: inputById("per-class").checked });
      app.save();
    });
    onSlide(inputById("eps"), (value) => app.setEps(this.epsAt(value)), () => app.save());
    onChange(inputById("eps-number"), (value) => value > 0, (value) => {
      app.setEps(value);
      app.save();
    });
    onSlide(inputById("min-samples"), (value) => app.setMinSamples(value), () => {});
    /** @param {number} value */
    const possible = (value) => value >= 1 && value <= app.document.about.min_samples_max;
    onChange(inputById("min-samples-number"), possible, (value) => app.setMinSamples(Math.round(value)));
  }

  makeDocumentChoice() {
    const { app } = this;
    const choice = byId("document-choice");
    choice.hidden = app.documents.length < 2;
    for (const [index, { name }] of app.documents.entries()) {
      const button = document.createElement("button");
      button.setAttribute("role", "radio");
      button.dataset.index = String(index);
      button.textContent = `${"AB"[index]}: ${name}`;
      button.title = name;
      choice.append(button);
    }
    makeRadioGroup(choice, (button) => app.setActive(Number(button.dataset.index)));
  }

  /** The slider's ends: the smallest and largest finite eps* of the class shown. */
  epsRange() {
    const { document, classShown } = this.app;
    if (this.rangeOf === null || this.rangeOf.epsStar !== document.epsStar || this.rangeOf.classShown !== classShown) {
      let [low, high] = [Infinity, 0];
      const { epsStar, label } = document;
      for (let i = 0; i < epsStar.length; i++) {
        if (classShown >= 0 && label[i] !== classShown) continue;
        const value = epsStar[i];
        if (value > 0 && value < low) low = value;
        if (value > high && value < Infinity) high = value;
      }
      if (!(low < high)) [low, high] = [(high || 1) / 10, (high || 1) * 10];
      this.rangeOf = { epsStar: document.epsStar, classShown, low, high };
    }
    return this.rangeOf;
  }

  /** @param {number} step */
  epsAt(step) {
    const { low, high } = this.epsRange();
    if (step >= EPS_STEPS) return high;
    return low * (high / low) ** (step / EPS_STEPS);
  }

  /** @param {number} eps */
  stepOf(eps) {
    const { low, high } = this.epsRange();
    return Math.round((EPS_STEPS * Math.log(eps / low)) / Math.log(high / low));
  }

  /** The eps of the slider: that of the class shown, the common one of all classes, or their mean. */
  shownEps() {
    const { document, classShown } = this.app;
    const all = document.settings.eps.filter((eps) => Number.isFinite(eps));
    if (classShown >= 0) return { eps: document.settings.eps[classShown], same: true };
    const same = all.every((eps) => eps === all[0]);
    return { eps: same ? all[0] : Math.exp(all.reduce((sum, eps) => sum + Math.log(eps), 0) / all.length), same };
  }

  render() {
    const { app } = this;
    const { document, classShown } = app;
    const { settings } = document;
    checkRadio(byId("mode"), (button) => button.dataset.mode === settings.mode);
    checkRadio(byId("document-choice"), (button) => Number(button.dataset.index) === app.active);
    byId("fraction-field").classList.toggle("off", settings.mode !== "fraction");
    setField(inputById("drop"), 100 * settings.drop);
    setField(inputById("drop-number"), Number((100 * settings.drop).toFixed(4)));
    inputById("per-class").checked = settings.per_class;
    const { eps, same } = this.shownEps();
    const name = classShown < 0 ? "of all classes" : `of class ${document.classes[classShown]}`;
    setText(byId("eps-of"), same ? name : `${name} (they differ: mean)`);
    setField(inputById("eps"), this.stepOf(eps));
    inputById("eps").setAttribute("aria-valuetext", `eps ${short(eps)}`);
    setField(inputById("eps-number"), Number.isFinite(eps) ? Number(eps.toPrecision(6)) : "");
    for (const id of ["min-samples", "min-samples-number"]) {
      inputById(id).max = String(document.about.min_samples_max);
      setField(inputById(id), settings.min_samples);
    }
    this.histogram.draw(document, classShown, this.epsRange(), eps);
    setText(byId("saved"), document.unsaved === null ? "" : `Not saved: ${document.unsaved}`);
  }
}

/**
 * Call `move` with each value a slider passes, and `rest` when it is released.
 * @param {HTMLInputElement} slider
 * @param {(value: number) => void} move
 * @param {() => void} rest
 */
function onSlide(slider, move, rest) {
  slider.addEventListener("input", () => move(Number(slider.value)));
  slider.addEventListener("change", rest);
}

/**
 * Call `take` with a number that is typed in and valid; restore the field otherwise.
 * @param {HTMLInputElement} field
 * @param {(value: number) => boolean} isValid
 * @param {(value: number) => void} take
 */
function onChange(field, isValid, take) {
  field.addEventListener("change", () => {
    const value = Number(field.value);
    if (field.value.trim() !== "" && isValid(value)) take(value);
    else field.value = field.dataset.shown ?? "";
  });
}

/**
 * Set the value of a field, unless the user is typing into it or moving it.
 * @param {HTMLInputElement} field
 * @param {number | string} value
 */
function setField(field, value) {
  field.dataset.shown = String(value);
  const inUse = field.type === "number" ? document.activeElement === field : field.matches(":active");
  if (inUse) return;
  if (field.value !== String(value)) field.value = String(value);
}
