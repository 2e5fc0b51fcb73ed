// Values and names as SQL text, where a statement takes no parameters or the driver would have to ask for types.

/** Any name as an SQL identifier. */
export function quoteIdentifier(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}

/** Any text as an SQL literal. */
export function quoteLiteral(text: string): string {
  const quoted = `'${text.replaceAll("'", "''").replaceAll('\\', '\\\\')}'`;
  return text.includes('\\') ? ` E${quoted}` : quoted;
}

/** The body of a function in dollar quotes, by a tag that does not occur in it: names in it are written by others. */
export function quoteBody(body: string): string {
  let tag = '$slotsync$';
  for (let at = 1; `${body}${tag}`.indexOf(tag) < body.length; at++) tag = `$slotsync${at}$`;
  return `${tag}${body}${tag}`;
}

/** A list of texts as an array literal of PostgreSQL; undefined is null. */
export function arrayLiteral(texts: readonly (string | undefined)[]): string {
  return `{${texts.map((text) => (text === undefined ? 'NULL' : quoteElement(text))).join(',')}}`;
}

const quoteElement = (text: string) => `"${/["\\]/.test(text) ? text.replace(/["\\]/g, '\\$&') : text}"`;
