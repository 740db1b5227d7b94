// What a renderer draws of one document: points, colours, fading, sizes.

import { Grid } from "./grid.js";
import { makePaints } from "./palette.js";
/** @import { FilterDocument } from "../state/document.js" */
/** @import { DroppedStyle, Theme } from "./palette.js" */

const LARGEST_POINT = 14; // pixels across, of the screen's own where it has more than one for a CSS pixel
const POINTS_AT_FULL_SIZE = 1500;
const RIM_FROM = 6;

/**
 * Pixels of background around a point: large ones get a rim, so that neighbours stay apart.
 * @param {number} diameter
 */
export function rimWidth(diameter) {
  return diameter >= RIM_FROM ? 0.9 : 0;
}

export class Scene {
  /** @param {FilterDocument} document */
  constructor(document) {
    this.document = document;
    this.grid = new Grid(document.position);
    /** @type {Int32Array | null} cluster of each sample, -1 for noise; null colours by class */
    this.clusters = null;
    /** @type {Uint8Array} 1 where a point is faded: outside of the class shown or of the selection */
    this.faded = new Uint8Array(document.samples);
    /** @type {DroppedStyle} */
    this.droppedStyle = "dark";
    this.paint = makePaints(document.classes.length, "light", this.droppedStyle);
  }

  /**
   * Colours by class, or by cluster within its class.
   * @param {Theme} theme
   * @param {DroppedStyle} droppedStyle
   * @param {Int32Array | null} clusters
   */
  colour(theme, droppedStyle, clusters) {
    this.clusters = clusters;
    this.droppedStyle = droppedStyle;
    this.paint = makePaints(Math.max(this.document.classes.length, clusters ? 10 : 1), theme, droppedStyle);
  }

  /**
   * Fade what is not of the class shown (-1: all) and, where something is selected, what is not selected.
   * @param {number} classShown
   * @param {Uint8Array} selected
   * @param {number} selectedCount
   */
  fade(classShown, selected, selectedCount) {
    const { faded } = this;
    const { label } = this.document;
    if (classShown < 0 && selectedCount === 0) {
      faded.fill(0);
      return;
    }
    for (let i = 0; i < faded.length; i++) {
      const outside = (classShown >= 0 && label[i] !== classShown) || (selectedCount > 0 && selected[i] === 0);
      faded[i] = outside ? 1 : 0;
    }
  }

  /**
   * The index of a sample's colour. Clusters of neighbouring classes start at unlike colours.
   * @param {number} sample
   */
  colourIndex(sample) {
    const label = this.document.label[sample];
    return this.clusters ? (Math.max(this.clusters[sample], 0) + 3 * label) % 10 : label;
  }

  /**
   * Pixels across a point: many points are small, and grow as they are zoomed into.
   * @param {number} zoom
   * @param {number} ratio
   */
  diameter(zoom, ratio) {
    const crowd = Math.min(1, (POINTS_AT_FULL_SIZE / Math.max(this.grid.count, 1)) ** 0.36);
    const size = 7 * crowd * Math.max(zoom, 1) ** 0.4;
    return Math.max(1, Math.round(Math.min(size, LARGEST_POINT) * ratio));
  }
}
