// Starts the page: session, documents, panels.

import { AccuracyChart } from "./panels/accuracy.js";
import { Api, ServerUnreachable, RequestError } from "./server/api.js";
import { App } from "./state/app.js";
import { SampleCard } from "./panels/card.js";
import { ClassList } from "./panels/classes.js";
import { Comparison } from "./panels/comparison.js";
import { followChanges } from "./server/connection.js";
import { Controls } from "./panels/controls.js";
import { FilterDocument } from "./state/document.js";
import { byId, setText } from "./ui/dom.js";
import { ExportMenu } from "./panels/export.js";
import { Gallery } from "./panels/gallery.js";
import { listenToKeys, makeShortcuts } from "./ui/shortcuts.js";
import { OverrideLog } from "./panels/log.js";
import { MapPanel } from "./map/panel.js";
import { Notices } from "./ui/notices.js";
import { Header } from "./panels/header.js";
import { SelectionBar, Toolbar, Tooltip } from "./panels/toolbar.js";
import { makeTabs } from "./ui/tabs.js";
import { makeTheme } from "./ui/theme.js";
import { openSession, reloadOnNewToken } from "./server/session.js";
import { SummaryTable } from "./panels/summary.js";
import { Thumbnails } from "./ui/thumbnails.js";
/** @import { About } from "./state/document.js" */

reloadOnNewToken();
try {
  await start();
} catch (problem) {
  showStartError(problem);
}

async function start() {
  const api = new Api(await openSession());
  /** @type {{documents: About[]}} */
  const { documents: listed } = await api.getJson("documents");
  const documents = listed.map((about) => new FilterDocument(api, about));
  await Promise.all(documents.map((document) => document.load()));
  const app = new App(api, documents, new Notices());
  Object.assign(globalThis, { viewer: app }); // for the console
  buildPanels(app);
  document.body.dataset.stage = "ready";
  await waitForPaint();
  performance.mark("first full paint");
  for (const document of documents) fetchLogAndAccuracy(app, document);
  followChanges(app);
}

/**
 * Create the panels in the order of drawing: the map first, because it must follow a moving slider.
 * @param {App} app
 */
function buildPanels(app) {
  const thumbnails = app.documents.map((document) => new Thumbnails(document));
  const maps = app.documents.map((document) => new MapPanel(app, document));
  byId("map-row").append(...maps.map((map) => map.element));
  const toggleTheme = makeTheme(app);
  const openTab = makeTabs(app);
  const gallery = new Gallery(app, thumbnails);
  const exportMenu = new ExportMenu(app, maps);
  app.maps = maps;
  app.panels = [
    ...maps,
    new Header(app),
    new Controls(app),
    new ClassList(app),
    new Toolbar(app, maps),
    new SelectionBar(app),
    new Tooltip(app, thumbnails),
    new SampleCard(app, thumbnails),
    gallery,
    new Comparison(app),
    new SummaryTable(app),
    new OverrideLog(app),
    new AccuracyChart(app),
  ];
  listenToKeys(makeShortcuts(app, { maps, gallery, exportMenu, toggleTheme, openTab }));
  app.invalidate("document", "decision", "settings", "class", "focus", "log", "tool", "appearance", "accuracy");
}

/** Fetch what the first paint does not need. @param {App} app @param {FilterDocument} document */
async function fetchLogAndAccuracy(app, document) {
  try {
    await app.fetchLog(document);
    document.accuracy = (await app.api.getJson(`${document.id}/accuracy`)).series;
    app.invalidate("accuracy");
  } catch (problem) {
    app.reportProblem(problem);
  }
}

/** Show why the page cannot start, in the server's words if there are any. @param {any} problem */
function showStartError(problem) {
  const known = problem instanceof RequestError || problem instanceof ServerUnreachable;
  const restarted = problem instanceof RequestError && problem.status === 401;
  const words = restarted
    ? "The server was restarted: open the new address that 'bigbatch view' printed. Nothing is lost."
    : problem.message;
  document.body.dataset.stage = "refused";
  setText(byId("start-words"), known ? words : `This page failed: ${words}`);
  if (!known) throw problem;
}

/** After the next frame is on the screen. */
function waitForPaint() {
  return new Promise((resolve) => {
    requestAnimationFrame(() => requestAnimationFrame(resolve));
  });
}
