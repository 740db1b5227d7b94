// The filter's settings: mode, share to drop, eps on a log scale, min_samples. Changes show while a slider moves and
// are saved when the hand is off it.

import { at, say } from "./dom.js";
import { EpsHistogram } from "./histogram.js";
import { short } from "./numbers.js";

const EPS_STEPS = 1000;

export class Controls {
  topics = ["decision", "settings", "class", "document", "saved", "look"];

  /** @param {import("./app.js").App} app */
  constructor(app) {
    this.app = app;
    this.histogram = new EpsHistogram(at("eps-histogram"));
    radios(at("mode"), (button) => app.setMode(button.dataset.mode));
    this.makeDocumentChoice();
    live(at("drop"), (value) => app.set({ mode: "fraction", drop: value / 100 }), () => app.save());
    onChange(at("drop-number"), (value) => value >= 0 && value < 100, (value) => {
      app.set({ mode: "fraction", drop: value / 100 });
      app.save();
    });
    at("per-class").addEventListener("change", () => {
      app.set({ mode: "fraction", per_class: at("per-class").checked });
      app.save();
    });
    live(at("eps"), (value) => app.setEps(this.epsAt(value)), () => app.save());
    onChange(at("eps-number"), (value) => value > 0, (value) => {
      app.setEps(value);
      app.save();
    });
    live(at("min-samples"), (value) => app.setMinSamples(value), () => {});
    const possible = (value) => value >= 1 && value <= app.document.about.min_samples_max;
    onChange(at("min-samples-number"), possible, (value) => app.setMinSamples(Math.round(value)));
  }

  makeDocumentChoice() {
    const { app } = this;
    const choice = at("document-choice");
    choice.hidden = app.documents.length < 2;
    for (const [index, { name }] of app.documents.entries()) {
      const button = document.createElement("button");
      button.setAttribute("role", "radio");
      button.dataset.index = String(index);
      button.textContent = `${"AB"[index]}: ${name}`;
      button.title = name;
      choice.append(button);
    }
    radios(choice, (button) => app.setActive(Number(button.dataset.index)));
  }

  /** The slider's ends: the smallest and largest finite eps* of the class shown. */
  range() {
    const { document, classShown } = this.app;
    if (this.rangeOf?.epsStar !== document.epsStar || this.rangeOf.classShown !== classShown) {
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

  epsAt(step) {
    const { low, high } = this.range();
    if (step >= EPS_STEPS) return high;
    return low * (high / low) ** (step / EPS_STEPS);
  }

  stepOf(eps) {
    const { low, high } = this.range();
    return Math.round((EPS_STEPS * Math.log(eps / low)) / Math.log(high / low));
  }

  /** The eps that the slider stands for: of the class shown, or of all where they share one, else their mean. */
  eps() {
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
    choose(at("mode"), (button) => button.dataset.mode === settings.mode);
    choose(at("document-choice"), (button) => Number(button.dataset.index) === app.active);
    at("fraction-field").classList.toggle("off", settings.mode !== "fraction");
    show(at("drop"), 100 * settings.drop);
    show(at("drop-number"), Number((100 * settings.drop).toFixed(4)));
    at("per-class").checked = settings.per_class;
    const { eps, same } = this.eps();
    const name = classShown < 0 ? "of all classes" : `of class ${document.classes[classShown]}`;
    say(at("eps-of"), same ? name : `${name} (they differ: mean)`);
    show(at("eps"), this.stepOf(eps));
    at("eps").setAttribute("aria-valuetext", `eps ${short(eps)}`);
    show(at("eps-number"), Number.isFinite(eps) ? Number(eps.toPrecision(6)) : "");
    for (const id of ["min-samples", "min-samples-number"]) {
      at(id).max = String(document.about.min_samples_max);
      show(at(id), settings.min_samples);
    }
    this.histogram.draw(document, classShown, this.range(), eps);
    say(at("saved"), document.unsaved === null ? "" : `Not saved: ${document.unsaved}`);
  }
}

/** Call `move` with each value a slider passes, and `rest` when it is let go. */
function live(slider, move, rest) {
  slider.addEventListener("input", () => move(Number(slider.value)));
  slider.addEventListener("change", rest);
}

/** A number typed in: taken when it makes sense, else put back. */
function onChange(field, makesSense, take) {
  field.addEventListener("change", () => {
    const value = Number(field.value);
    if (field.value.trim() !== "" && makesSense(value)) take(value);
    else field.value = field.dataset.shown;
  });
}

/** A field that somebody is writing in, or a slider in somebody's hand, is left alone. */
function show(field, value) {
  field.dataset.shown = String(value);
  const inUse = field.type === "number" ? document.activeElement === field : field.matches(":active");
  if (inUse) return;
  if (field.value !== String(value)) field.value = String(value);
}

/** A row of buttons of which one is chosen; arrow keys go from one to the next. */
export function radios(group, choose) {
  group.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button) choose(button);
  });
  group.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    const buttons = [...group.querySelectorAll("button")];
    const next = buttons[(buttons.indexOf(document.activeElement) + step + buttons.length) % buttons.length];
    next.focus();
    choose(next);
  });
}

/** Mark the chosen button of a row. */
export function choose(group, isChosen) {
  for (const button of group.querySelectorAll("button")) {
    const chosen = isChosen(button);
    button.setAttribute("aria-checked", String(chosen));
    button.tabIndex = chosen ? 0 : -1;
  }
}
