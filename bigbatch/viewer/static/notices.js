// What the page says about itself: a banner while something stands, a short notice when something has happened.

import { at, make, say } from "./dom.js";

const NOTICE_MS = 4000;

const GONE =
  "The server does not answer. Everything up to your last change is saved; this page keeps trying. " +
  "If you stopped it, start 'bigbatch view' again and open the address it prints.";
const RESTARTED =
  "The server was started again, so this page's session has ended. Nothing is lost: open the new address that " +
  "'bigbatch view' printed.";

export class Notices {
  gone() {
    this.banner(GONE, "problem");
  }

  restarted() {
    this.banner(RESTARTED, "problem");
  }

  banner(text, kind) {
    const banner = at("banner");
    banner.dataset.kind = kind;
    say(banner, text);
    banner.hidden = false;
  }

  clear() {
    at("banner").hidden = true;
    say(at("banner"), "");
  }

  /** For some seconds, in the corner; screen readers hear it. */
  tell(text, kind = "done") {
    const notice = make("div.notice", { data: { kind } }, text);
    at("notices").append(notice);
    while (at("notices").children.length > 3) at("notices").firstChild.remove();
    setTimeout(() => notice.remove(), kind === "problem" ? 3 * NOTICE_MS : NOTICE_MS);
  }
}
