// Waits for changes that other tabs make, and for a server that went away.

import { Gone, Refused } from "./api.js";
import { onNewSession } from "./session.js";

const RETRY_MS = 1000;
const ANOTHER_TAB = "Another tab changed the filter: this one shows it now.";

/** Follow all documents for as long as the page is open. @param {import("./app.js").App} app */
export async function follow(app) {
  let wake = () => {};
  onNewSession((session) => {
    app.api.session = session;
    wake();
  });
  let away = false;
  for (;;) {
    await untilVisible();
    try {
      if (away) await comeBack(app);
      away = false;
      await takeIn(app, await changes(app));
      app.notices.clear();
    } catch (problem) {
      if (problem.name === "AbortError") continue;
      if (!(problem instanceof Gone || problem instanceof Refused)) throw problem;
      away = true;
      app.report(problem);
      await new Promise((resolve) => {
        wake = resolve;
        // a server that does not know us will not until another tab has opened its new address
        if (problem.status !== 401) setTimeout(resolve, RETRY_MS);
      });
    }
  }
}

/** The revision of each document, when one of them is new or half a minute has passed. */
async function changes(app) {
  const hidden = new AbortController();
  // browsers share six connections to one server among all tabs: a hidden one lets go of its own
  const stop = () => document.hidden && hidden.abort();
  document.addEventListener("visibilitychange", stop);
  try {
    const since = app.documents.map((one) => one.revision).join(",");
    return (await app.api.get(`changes?since=${since}`, hidden.signal)).revisions;
  } finally {
    document.removeEventListener("visibilitychange", stop);
  }
}

async function takeIn(app, revisions) {
  for (const [index, one] of app.documents.entries()) {
    await one.pending; // our own change may be what was heard of
    if (revisions[index] <= one.revision) continue;
    await app.refresh(one);
    app.notices.tell(ANOTHER_TAB);
  }
}

/** The server is there again: settings that could not be saved are sent now, the rest is fetched. */
async function comeBack(app) {
  const { documents } = await app.api.get("documents");
  const named = (list) => JSON.stringify(list.map(({ name, samples }) => [name, samples]));
  if (named(documents) !== named(app.documents)) {
    location.reload();
    return;
  }
  for (const one of app.documents) {
    const unsaved = one.unsaved !== null;
    await app.refresh(one, { settings: !unsaved });
    if (unsaved) await app.save(one);
  }
  app.notices.clear();
}

function untilVisible() {
  if (!document.hidden) return Promise.resolve();
  return new Promise((resolve) => {
    document.addEventListener("visibilitychange", resolve, { once: true });
  });
}
