// Messages to the user: a banner while a condition lasts, a short notice after an event.

import { byId, make, setText } from "./dom.js";

const NOTICE_MS = 4000;

const UNREACHABLE =
  "The server does not answer. Everything up to your last change is saved; this page keeps trying. " +
  "If you stopped it, start 'bigbatch view' again and open the address it prints.";
const RESTARTED =
  "The server was restarted, so this page's session has ended. Nothing is lost: open the new address that " +
  "'bigbatch view' printed.";

export class Notices {
  showUnreachable() {
    this.showBanner(UNREACHABLE, "problem");
  }

  showRestarted() {
    this.showBanner(RESTARTED, "problem");
  }

  /** @param {string} text @param {string} kind */
  showBanner(text, kind) {
    const banner = byId("banner");
    banner.dataset.kind = kind;
    setText(banner, text);
    banner.hidden = false;
  }

  clearBanner() {
    byId("banner").hidden = true;
    setText(byId("banner"), "");
  }

  /** For some seconds, in the corner; screen readers hear it. @param {string} text */
  show(text, kind = "done") {
    const notice = make("div.notice", { data: { kind } }, text);
    byId("notices").append(notice);
    while (byId("notices").children.length > 3) byId("notices").firstElementChild?.remove();
    setTimeout(() => notice.remove(), kind === "problem" ? 3 * NOTICE_MS : NOTICE_MS);
  }
}
