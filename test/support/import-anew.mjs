// JavaScript, which the test runner leaves to Node: the built program is imported as it is.
let imports = 0;

/** Runs a module again. What it imports is loaded once. */
export function importAnew(url) {
  return import(`${url.href}?${++imports}`);
}
