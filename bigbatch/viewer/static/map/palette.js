// Colours. The ten of classes were searched for so that any two differ for people with and without each kind of
// colour blindness (Machado et al. 2009), and from noise and background of both themes: docs/viewer.md has distances.

/** @typedef {"light" | "dark"} Theme */
/** @typedef {"dark" | "grey" | "hidden"} DroppedStyle  how dropped samples are drawn */

const CLASS_COLOURS = [
  "#3842ca", "#f3a022", "#3b975b", "#dc5900", "#21a1f8", "#a73f6a", "#7fd088", "#7d6fb9", "#79531a", "#ccafe7",
];
/** After ten classes the hues come again, darker, then lighter, then in between. */
const LIGHTNESS_OF_ROUND = [0, -0.28, 0.34, -0.14, 0.18];

// `lift` brings colours nearer to white where the background is dark; styles/page.css does the same to swatches
const THEMES = {
  light: { background: "#ffffff", ink: "#111418", noise: "#101215", noiseGrey: "#9aa0a8", faded: 0.76, lift: 0 },
  dark: { background: "#12151a", ink: "#e9ecf1", noise: "#f4f5f7", noiseGrey: "#4a4d53", faded: 0.74, lift: 0.1 },
};

/** @param {Theme} theme */
export function themeColours(theme) {
  return THEMES[theme];
}

/** The colour of a class, or of a cluster within it. @param {number} index */
export function classColour(index) {
  const colour = parseColour(CLASS_COLOURS[index % CLASS_COLOURS.length]);
  const shift = LIGHTNESS_OF_ROUND[Math.floor(index / CLASS_COLOURS.length) % LIGHTNESS_OF_ROUND.length];
  return formatColour(mix(colour, shift < 0 ? [0, 0, 0] : [255, 255, 255], Math.abs(shift)));
}

/**
 * What the renderers look colours up in: four entries for each class.
 * @returns {{background: number, table: Uint32Array}} table[4 c] kept, + 1 dropped, + 2 kept and faded, + 3 both
 * @param {number} classCount
 * @param {Theme} theme
 * @param {DroppedStyle} droppedStyle
 */
export function makePaints(classCount, theme, droppedStyle) {
  const colours = THEMES[theme];
  const background = parseColour(colours.background);
  const noise = parseColour(droppedStyle === "grey" ? colours.noiseGrey : colours.noise);
  const table = new Uint32Array(4 * classCount);
  for (let index = 0; index < classCount; index++) {
    const colour = mix(parseColour(classColour(index)), [255, 255, 255], colours.lift);
    table[4 * index] = packColour(colour);
    table[4 * index + 1] = packColour(noise);
    table[4 * index + 2] = packColour(mix(colour, background, colours.faded));
    table[4 * index + 3] = packColour(mix(noise, background, colours.faded));
  }
  return { background: packColour(background), table };
}

/** @param {string} hex */
function parseColour(hex) {
  return [1, 3, 5].map((at) => Number.parseInt(hex.slice(at, at + 2), 16));
}

/** @param {number[]} rgb */
function formatColour(rgb) {
  return `#${rgb.map((value) => Math.round(value).toString(16).padStart(2, "0")).join("")}`;
}

/** @param {number[]} from @param {number[]} to @param {number} fraction */
function mix(from, to, fraction) {
  return from.map((value, channel) => value + (to[channel] - value) * fraction);
}

/** Opaque, in the byte order of canvas pixels on little-endian machines. @param {number[]} rgb */
function packColour(rgb) {
  const [red, green, blue] = rgb.map(Math.round);
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}
