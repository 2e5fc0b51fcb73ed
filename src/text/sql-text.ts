// Writes values and names as SQL text, where a statement takes no parameters or the driver would first query types.

export function quoteIdentifier(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}

export function quoteLiteral(text: string): string {
  const quoted = `'${text.replaceAll("'", "''").replaceAll('\\', '\\\\')}'`;
  return text.includes('\\') ? ` E${quoted}` : quoted;
}

/** Returns a function's body in dollar quotes. Names in the body may contain any tag, so a free tag is chosen. */
export function quoteBody(body: string): string {
  let tag = '$slotsync$';
  for (let at = 1; `${body}${tag}`.indexOf(tag) < body.length; at++) tag = `$slotsync${at}$`;
  return `${tag}${body}${tag}`;
}

/** Returns texts as an array literal of PostgreSQL. Undefined becomes NULL. */
export function arrayLiteral(texts: readonly (string | undefined)[]): string {
  return `{${texts.map((text) => (text === undefined ? 'NULL' : quoteElement(text))).join(',')}}`;
}

const quoteElement = (text: string) => `"${/["\\]/.test(text) ? text.replace(/["\\]/g, '\\$&') : text}"`;
