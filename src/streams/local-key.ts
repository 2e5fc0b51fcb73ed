// The key of a row as one text. Parts are joined by `|` and escaped, so that different keys have different texts. A key
// too long for an index of the state is shortened, so that its record, which is given up, can be found again.
import { createHash } from 'node:crypto';
import { plural } from '../text/format.js';

/** Maximum UTF-8 bytes of a key or an external id, so that it fits an index of the state. */
export const MAX_ID_BYTES = 1024;

/** A shortened key consists of the first `kept` characters of the key, the `mark`, and a hash. */
export const SHORTENED = { kept: 64, mark: '~sha256:' } as const;
/** End of a shortened key, as a regular expression for both JavaScript and PostgreSQL. */
export const SHORTENED_KEY = `${SHORTENED.mark}[0-9a-f]{64}$`;
const IS_SHORTENED = new RegExp(SHORTENED_KEY);

/** Returns true if the text has too many bytes for an index of the state. */
export function isTooLong(text: string): boolean {
  return text.length > MAX_ID_BYTES / 4 && Buffer.byteLength(text) > MAX_ID_BYTES;
}

/** Returns true if the state can store the text as an external id. The service may answer with any text. */
export function isStorable(externalId: string): boolean {
  return !isTooLong(externalId) && !externalId.includes('\0') && externalId.isWellFormed();
}

/** Returns a too long key as its beginning and its hash, as the mirror's SQL does. Other keys are unchanged. */
export function shortenKey(key: string): string {
  if (!isTooLong(key)) return key;
  const kept = Array.from(key.slice(0, 2 * SHORTENED.kept))
    .slice(0, SHORTENED.kept)
    .join('');
  return kept + SHORTENED.mark + createHash('sha256').update(key).digest('hex');
}

/** Returns true if the key has the form of a shortened key. Any key of this form counts as shortened. */
export function isShortenedKey(key: string): boolean {
  return key.length > SHORTENED.mark.length + 64 && IS_SHORTENED.test(key);
}

/** Prefix of the keys of records whose object has no row. Keys of rows must not begin with it. */
const FORMER = '#former ';

/** Returns the key of a record that keeps an object without a row, by the external id of that object. */
export const formerKey = (externalId: string): string => shortenKey(FORMER + externalId);

/** Returns true if the key is reserved for records whose object has no row. */
export const isReservedKey = (key: string): boolean => key.startsWith(FORMER);

/** Joins the parts of a key in the same way as the SQL of mirror/source-sql.ts. */
export function joinKey(parts: readonly string[]): string {
  const [only] = parts;
  if (parts.length === 1 && only !== undefined) return only;
  return parts.map((part) => part.replace(/[\\|]/g, '\\$&')).join('|');
}

/** Splits a joined key into its parts. Returns undefined if the number of parts is not `count`. */
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

/** Describes repeated keys as a fault of a stream. `count` rows repeat the key of an earlier row. */
export const describeRepeatedKeys = (count: number, keys: readonly string[]): string =>
  `the key is not unique: ${plural(count, 'row')} ${count === 1 ? 'repeats' : 'repeat'} a key, such as ${keys.map((key) => `'${key}'`).join(', ')}`;
