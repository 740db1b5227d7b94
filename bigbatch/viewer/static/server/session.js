// Exchanges the one-time token of the printed address for a session that all tabs of this browser share.

import { Api, RequestError } from "./api.js";
import { loadItem, storeItem } from "../ui/storage.js";

const KEY = "bigbatch.session";

/**
 * A session, or a RequestError that says what to do.
 * A token that was used before does no harm where this browser still has the session it was used for.
 */
export async function openSession() {
  const token = tokenOfAddress();
  const old = loadItem(KEY);
  if (!token && !old) {
    throw new RequestError("This page needs the address that 'bigbatch view' printed, with its token: open it.", 403);
  }
  if (token) {
    history.replaceState(null, "", location.pathname + location.search);
    try {
      const { session } = await new Api("").post("session", { token });
      storeItem(KEY, session);
      return session;
    } catch (problem) {
      if (!(problem instanceof RequestError) || !old) throw problem;
      await new Api(old).getJson("documents").catch(() => {
        throw problem;
      });
    }
  }
  return old;
}

/**
 * Call when another tab has opened a new session: the server was restarted and this tab can go on with it.
 * @param {(session: string) => void} call
 */
export function onNewSession(call) {
  window.addEventListener("storage", (event) => {
    if (event.key === KEY && event.newValue) call(event.newValue);
  });
}

/** A new address pasted over the old one changes only the part after #, which does not reload the page. */
export function reloadOnNewToken() {
  window.addEventListener("hashchange", () => {
    if (tokenOfAddress()) location.reload();
  });
}

function tokenOfAddress() {
  return new URLSearchParams(location.hash.slice(1)).get("token");
}
