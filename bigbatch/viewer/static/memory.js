// What this browser remembers between visits. A frame in a notebook may be allowed no storage: then, until it closes.

const withoutStorage = new Map();

export function remember(key, value) {
  withoutStorage.set(key, value);
  try {
    localStorage.setItem(key, value);
  } catch {
    // private windows and frames of other origins
  }
}

export function remembered(key) {
  try {
    return localStorage.getItem(key) ?? withoutStorage.get(key) ?? null;
  } catch {
    return withoutStorage.get(key) ?? null;
  }
}
