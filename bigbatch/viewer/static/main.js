// From an address with a token to a page that works: session, documents, panels, in this order.

import { Accuracy } from "./accuracy.js";
import { Api, Gone, Refused } from "./api.js";
import { App } from "./app.js";
import { Card } from "./card.js";
import { ClassList } from "./classes.js";
import { Compare } from "./compare.js";
import { follow } from "./connection.js";
import { Controls } from "./controls.js";
import { Document } from "./document.js";
import { at, say } from "./dom.js";
import { Export } from "./export.js";
import { Gallery } from "./gallery.js";
import { listen, shortcuts } from "./keys.js";
import { Log } from "./log.js";
import { MapPanel } from "./map.js";
import { Notices } from "./notices.js";
import { Header, SelectionBar, Toolbar, Tooltip, makeTabs, makeTheme } from "./panels.js";
import { openSession, reloadOnNewToken } from "./session.js";
import { Summary } from "./summary.js";
import { Thumbnails } from "./thumbnails.js";

reloadOnNewToken();
try {
  await start();
} catch (problem) {
  refuse(problem);
}

async function start() {
  const api = new Api(await openSession());
  const { documents: listed } = await api.get("documents");
  const documents = listed.map((about) => new Document(api, about));
  await Promise.all(documents.map((document) => document.load()));
  const app = new App(api, documents, new Notices());
  globalThis.viewer = app; // for the console
  build(app);
  document.body.dataset.stage = "ready";
  await shown();
  performance.mark("first full paint");
  for (const document of documents) fetchTheRest(app, document);
  follow(app);
}

/** Panels in the order they are drawn in: the map first, since it is what a moving hand looks at. */
function build(app) {
  const thumbnails = app.documents.map((document) => new Thumbnails(document));
  const maps = app.documents.map((document) => new MapPanel(app, document));
  at("map-row").append(...maps.map((map) => map.element));
  const toggleTheme = makeTheme(app);
  const openTab = makeTabs(app);
  const gallery = new Gallery(app, thumbnails);
  const exporting = new Export(app, maps);
  app.maps = maps;
  app.panels = [
    ...maps,
    new Header(app),
    new Controls(app),
    new ClassList(app),
    new Toolbar(app, maps),
    new SelectionBar(app),
    new Tooltip(app, thumbnails),
    new Card(app, thumbnails),
    gallery,
    new Compare(app),
    new Summary(app),
    new Log(app),
    new Accuracy(app),
  ];
  listen(shortcuts(app, { maps, gallery, exporting, toggleTheme, openTab }));
  app.changed("document", "decision", "settings", "class", "focus", "log", "tool", "look", "accuracy");
}

/** What the first look does without. */
async function fetchTheRest(app, document) {
  try {
    await app.fetchLog(document);
    document.accuracy = await app.api.get(`${document.id}/accuracy`);
    app.changed("accuracy");
  } catch (problem) {
    app.report(problem);
  }
}

/** The page cannot start: say why, in the server's words where it gave some. */
function refuse(problem) {
  const known = problem instanceof Refused || problem instanceof Gone;
  const restarted = problem instanceof Refused && problem.status === 401;
  const words = restarted
    ? "The server was started again: open the new address that 'bigbatch view' printed. Nothing is lost."
    : problem.message;
  document.body.dataset.stage = "refused";
  say(at("start-words"), known ? words : `This page failed: ${words}`);
  if (!known) throw problem;
}

/** After the next frame is on the screen. */
function shown() {
  return new Promise((resolve) => {
    requestAnimationFrame(() => requestAnimationFrame(resolve));
  });
}
