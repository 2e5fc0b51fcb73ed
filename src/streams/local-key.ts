// A row's key as one text. A single column is used as it is; several are joined by `|`, with `|` and
// `\` inside a part escaped by `\`, so that two different keys never read the same. A key that no index takes is shortened:
// its record is given up, and has to be found again by a name that stays.
import { createHash } from 'node:crypto';
import { plural } from '../text/format.js';

/** Bytes of UTF-8 that a key or an external id may have. An index of the state takes it, with what stands beside it. */
export const MAX_ID_BYTES = 1024;

/** Characters of a shortened key that are the key's own, and what stands between them and the hash. */
export const SHORTENED = { kept: 64, mark: '~sha256:' } as const;
/** How a shortened key ends, for regular expressions of JavaScript and of PostgreSQL. */
export const SHORTENED_KEY = `${SHORTENED.mark}[0-9a-f]{64}$`;
const IS_SHORTENED = new RegExp(SHORTENED_KEY);

/** Whether an index of the state cannot take it. */
export function isTooLong(text: string): boolean {
  return text.length > MAX_ID_BYTES / 4 && Buffer.byteLength(text) > MAX_ID_BYTES;
}

/** Whether the state can hold it as an external id. What the service answers may be anything. */
export function isStorable(externalId: string): boolean {
  return !isTooLong(externalId) && !externalId.includes('\0') && externalId.isWellFormed();
}

/** A key as readings of the mirror present it: one that is too long as its beginning and its hash. */
export function shortenKey(key: string): string {
  if (!isTooLong(key)) return key;
  const kept = Array.from(key.slice(0, 2 * SHORTENED.kept))
    .slice(0, SHORTENED.kept)
    .join('');
  return kept + SHORTENED.mark + createHash('sha256').update(key).digest('hex');
}

/** Whether a key is a shortened one. What reads like one counts as one. */
export function isShortenedKey(key: string): boolean {
  return key.length > SHORTENED.mark.length + 64 && IS_SHORTENED.test(key);
}

/** How the keys of objects that no row has begin: those of rows must not. */
const FORMER = '#former ';

/** The key of the record that keeps an object which no row has. */
export const formerKey = (externalId: string): string => shortenKey(FORMER + externalId);

/** Whether a row has a key that is kept for objects which no row has. */
export const isReservedKey = (key: string): boolean => key.startsWith(FORMER);

/** Joins the parts of a key, as the mirror's SQL does (mirror/source-sql.ts). */
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

/** The fault of a stream in which `count` rows have the key of a row before them, and some of these keys. */
export const describeRepeatedKeys = (count: number, keys: readonly string[]): string =>
  `the key is not unique: ${plural(count, 'row')} ${count === 1 ? 'repeats' : 'repeat'} a key, such as ${keys.map((key) => `'${key}'`).join(', ')}`;
