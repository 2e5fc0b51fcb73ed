// A row's key as one text. A single column is used as it is; several are joined by `|`, with `|` and
// `\` inside a part escaped by `\`, so that two different keys never read the same.

/** Joins the parts of a key, as the mirror's SQL does (mirror/row-key-and-hash.ts). */
export function joinKey(parts: readonly string[]): string {
  const [only] = parts;
  if (parts.length === 1 && only !== undefined) return only;
  return parts.map((part) => part.replace(/[\\|]/g, '\\$&')).join('|');
}

/** The parts of a joined key; undefined when it does not have that many. */
export function splitKey(key: string, count: number): string[] | undefined {
  if (count === 1) return [key];
  const parts: string[] = [''];
  for (let at = 0; at < key.length; at++) {
    const char = key[at] ?? '';
    if (char === '|') parts.push('');
    else if (char === '\\') parts[parts.length - 1] += key[++at] ?? '';
    else parts[parts.length - 1] += char;
  }
  return parts.length === count ? parts : undefined;
}
