// What this browser stores between visits, or until the page closes where storage is not allowed (notebook frames).

/** @type {Map<string, string>} */
const withoutStorage = new Map();

/** @param {string} key @param {string} value */
export function storeItem(key, value) {
  withoutStorage.set(key, value);
  try {
    localStorage.setItem(key, value);
  } catch {
    // private windows and frames of other origins
  }
}

/** @param {string} key @returns {string | null} */
export function loadItem(key) {
  try {
    return localStorage.getItem(key) ?? withoutStorage.get(key) ?? null;
  } catch {
    return withoutStorage.get(key) ?? null;
  }
}
