// The local key and the hash of a row, in SQL. Both are made of the text PostgreSQL prints, so every session prints
// values in the same formats (session-formats.ts).
import { createHash } from 'node:crypto';
import { quoteIdentifier } from '../text/sql-text.js';
import { MAX_ID_BYTES, SHORTENED } from '../streams/local-key.js';
import type { Stream } from '../streams/stream.js';
import { valueText } from './mapped-text.js';
import type { Described } from './source-columns.js';

/** Alias of the source in every statement; its text form is the whole row. */
export const ROW = 'slotsync_row';

export const column = (name: string) => `${ROW}.${quoteIdentifier(name)}`;

/** The local key as text, exactly as streams/local-key.ts joins and shortens it. Null when a part is null. */
export function keyExpression({ key, types }: Pick<Described<Stream>, 'key' | 'types'>): string {
  const whole = joinedText(key.map((name) => valueText(column(name), types.get(name) ?? 'text')));
  return `CASE WHEN octet_length(${whole}) > ${MAX_ID_BYTES} THEN left(${whole}, ${SHORTENED.kept}) || '${SHORTENED.mark}'
    || encode(sha256(convert_to(${whole}, 'UTF8')), 'hex') ELSE ${whole} END`;
}

/** Texts as streams/local-key.ts joins them. Null when one is. */
export function joinedText(texts: readonly string[]): string {
  const [only] = texts;
  if (texts.length === 1 && only !== undefined) return only;
  return texts.map((text) => String.raw`replace(replace(${text}, '\', '\\'), '|', '\|')`).join(` || '|' || `);
}

/** 64 bits over the whole row as text, seeded with the declaration and with the columns that the text does not name. */
export function hashExpression({
  fingerprint,
  layout,
}: Pick<Described<Stream>, 'fingerprint' | 'layout'>): string {
  const seed = createHash('sha256').update(`${fingerprint} ${layout}`).digest().readBigInt64BE();
  return `hashtextextended(${ROW}::text, (${seed})::bigint)`;
}
