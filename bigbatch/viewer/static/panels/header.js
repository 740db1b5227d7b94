// The header: names of the files, dataset and totals.

import { byId, make, setText } from "../ui/dom.js";
import { count, percent } from "../ui/formatting.js";
/** @import { App, Topic } from "../state/app.js" */

const REST_MS = 500; // a screen reader hears of a moving slider once, when it rests

/** Name, dataset and totals. */
export class Header {
  /** @type {Topic[]} */
  topics = ["decision", "document", "saved"];

  /** @param {App} app */
  constructor(app) {
    this.app = app;
  }

  render() {
    const { document: shown, documents } = this.app;
    const { kept, dropped, fraction } = shown.counts();
    const names = documents.map((one) => one.name).join(" and ");
    // a file of features has no name for its dataset
    const dataset = shown.about.dataset === "arrays" ? "" : ` · ${shown.about.dataset}`;
    setText(byId("about"), `${names}${dataset} · ${count(shown.samples)} samples`);
    byId("about").title = `${names}\n${shown.about.network ?? ""}`;
    document.title = `${names} · bigbatch view`;
    const totals = byId("totals");
    totals.dataset.kept = String(kept);
    totals.dataset.dropped = String(dropped);
    totals.replaceChildren(
      make("span.kept", {}, make("b", {}, count(kept)), " kept"),
      make("span.dropped", {}, make("b", {}, count(dropped)), ` dropped (${percent(fraction)})`)
    );
    clearTimeout(this.resting);
    this.resting = setTimeout(() => setText(byId("totals-announced"), totals.innerText), REST_MS);
  }
}
