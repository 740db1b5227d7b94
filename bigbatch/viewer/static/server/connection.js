// Waits for changes of other tabs, and reconnects to a server that was restarted.

import { ServerUnreachable, RequestError } from "./api.js";
import { onNewSession } from "./session.js";
/** @import { App } from "../state/app.js" */

const RETRY_MS = 1000;
const ANOTHER_TAB = "Another tab changed the filter: this one shows it now.";

/** Follow all documents while the page is open. @param {App} app */
export async function followChanges(app) {
  let wake = () => {};
  onNewSession((session) => {
    app.api.session = session;
    wake();
  });
  let away = false;
  for (;;) {
    await waitUntilVisible();
    try {
      if (away) await resume(app);
      away = false;
      await applyRevisions(app, await waitForChanges(app));
      app.notices.clearBanner();
    } catch (problem) {
      if (problem instanceof DOMException && problem.name === "AbortError") continue;
      if (!(problem instanceof ServerUnreachable || problem instanceof RequestError)) throw problem;
      const signedOut = problem instanceof RequestError && problem.status === 401;
      away = true;
      app.reportProblem(problem);
      await /** @type {Promise<void>} */ (
        new Promise((resolve) => {
          wake = resolve;
          // a restarted server accepts this tab only after another one has opened its new address
          if (!signedOut) setTimeout(resolve, RETRY_MS);
        })
      );
    }
  }
}

/**
 * The revision of each document, when one of them is new or half a minute has passed.
 * @param {App} app
 * @returns {Promise<number[]>}
 */
async function waitForChanges(app) {
  const hidden = new AbortController();
  // browsers share six connections to one server among all tabs: a hidden one lets go of its own
  const stop = () => document.hidden && hidden.abort();
  document.addEventListener("visibilitychange", stop);
  try {
    const since = app.documents.map((one) => one.revision).join(",");
    return (await app.api.getJson(`changes?since=${since}`, hidden.signal)).revisions;
  } finally {
    document.removeEventListener("visibilitychange", stop);
  }
}

/** @param {App} app @param {number[]} revisions */
async function applyRevisions(app, revisions) {
  for (const [index, one] of app.documents.entries()) {
    await one.pending; // our own change may be what was heard of
    if (revisions[index] <= one.revision) continue;
    await app.refresh(one);
    app.notices.show(ANOTHER_TAB);
  }
}

/**
 * Send unsaved settings to a server that is back, and fetch the rest.
 * @param {App} app
 */
async function resume(app) {
  const { documents } = await app.api.getJson("documents");
  /** @param {{name: string, samples: number}[]} list */
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
  app.notices.clearBanner();
}

function waitUntilVisible() {
  if (!document.hidden) return Promise.resolve();
  return new Promise((resolve) => {
    document.addEventListener("visibilitychange", resolve, { once: true });
  });
}
