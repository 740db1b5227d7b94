// Colours. The ten of classes were searched for so that any two differ for people with and without each kind of
// colour blindness (Machado et al. 2009), and from noise and background of both themes: docs/viewer.md has distances.

const CLASS_COLOURS = [
  "#3842ca", "#f3a022", "#3b975b", "#dc5900", "#21a1f8", "#a73f6a", "#7fd088", "#7d6fb9", "#79531a", "#ccafe7",
];
/** After ten classes the hues come again, darker, then lighter, then in between. */
const LIGHTNESS_OF_ROUND = [0, -0.28, 0.34, -0.14, 0.18];

// `lift` brings colours nearer to white where the background is dark; style.css does the same to swatches
const THEMES = {
  light: { background: "#ffffff", ink: "#111418", noise: "#101215", noiseGrey: "#9aa0a8", faded: 0.76, lift: 0 },
  dark: { background: "#12151a", ink: "#e9ecf1", noise: "#f4f5f7", noiseGrey: "#4a4d53", faded: 0.74, lift: 0.1 },
};

export function themeColours(theme) {
  return THEMES[theme];
}

/** The colour of a class, or of a cluster within it. */
export function classColour(index) {
  const colour = parse(CLASS_COLOURS[index % CLASS_COLOURS.length]);
  const shift = LIGHTNESS_OF_ROUND[Math.floor(index / CLASS_COLOURS.length) % LIGHTNESS_OF_ROUND.length];
  return format(mix(colour, shift < 0 ? [0, 0, 0] : [255, 255, 255], Math.abs(shift)));
}

/**
 * What the renderers look colours up in: four entries for each class.
 * @returns {{background: number, table: Uint32Array}} table[4 c] kept, + 1 dropped, + 2 kept and faded, + 3 both
 */
export function paints(classCount, theme, dropLook) {
  const colours = THEMES[theme];
  const background = parse(colours.background);
  const noise = parse(dropLook === "grey" ? colours.noiseGrey : colours.noise);
  const table = new Uint32Array(4 * classCount);
  for (let index = 0; index < classCount; index++) {
    const colour = mix(parse(classColour(index)), [255, 255, 255], colours.lift);
    table[4 * index] = packed(colour);
    table[4 * index + 1] = packed(noise);
    table[4 * index + 2] = packed(mix(colour, background, colours.faded));
    table[4 * index + 3] = packed(mix(noise, background, colours.faded));
  }
  return { background: packed(background), table };
}

function parse(hex) {
  return [1, 3, 5].map((at) => Number.parseInt(hex.slice(at, at + 2), 16));
}

function format(rgb) {
  return `#${rgb.map((value) => Math.round(value).toString(16).padStart(2, "0")).join("")}`;
}

function mix(from, to, share) {
  return from.map((value, channel) => value + (to[channel] - value) * share);
}

/** Opaque, in the byte order of canvas pixels on little-endian machines. */
function packed([red, green, blue]) {
  return ((255 << 24) | (Math.round(blue) << 16) | (Math.round(green) << 8) | Math.round(red)) >>> 0;
}
