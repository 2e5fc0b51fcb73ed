// The SQL that reads a stream's source. Identifiers are quoted; nothing else of the configuration but a
// `{ query }` source becomes SQL text.
import type { Source, Stream } from '../streams/streams.js';

/** Alias of the source in every statement; its text form is the whole row. */
const ROW = 'slotsync_row';

export function quoteIdentifier(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}

export function relation(source: Source): string {
  return 'table' in source
    ? `${source.table.map(quoteIdentifier).join('.')} AS ${ROW}`
    : `(\n${source.query.replace(/;\s*$/, '')}\n) AS ${ROW}`;
}

const column = (name: string) => `${ROW}.${quoteIdentifier(name)}`;

/** The local key as text, exactly as streams/local-key.ts joins it. Null when a part is null. */
export function keyExpression({ key }: Pick<Stream, 'key'>): string {
  const [only] = key;
  if (key.length === 1 && only !== undefined) return `${column(only)}::text`;
  return key
    .map((name) => String.raw`replace(replace(${column(name)}::text, '\', '\\'), '|', '\|')`)
    .join(` || '|' || `);
}

/** 64 bits over the whole row as text, seeded with the declaration. */
function hashExpression({ fingerprint }: Pick<Stream, 'fingerprint'>): string {
  return `hashtextextended(${ROW}::text, (${fingerprint})::bigint)`;
}

/** `(key, row hash)` in the byte order of the key. */
export function copyHashes(stream: Stream): string {
  return `COPY (SELECT k, h FROM (SELECT ${keyExpression(stream)} AS k, ${hashExpression(stream)} AS h
    FROM ${relation(stream.source)}) AS hashed ORDER BY k COLLATE "C") TO STDOUT`;
}

/** Columns that carry key and hash beside the row's own. */
export const KEY_COLUMN = 'slotsync_key';
export const HASH_COLUMN = 'slotsync_hash';

/** Rows by the parts of their keys: one text[] parameter per key column, cast to the column's type so that its index serves. */
export function selectRows(stream: Stream, types: ReadonlyMap<string, string>): string {
  const wanted = stream.key.map((name, at) => `$${at + 1}::text[]::${types.get(name) ?? 'text'}[]`);
  const names = stream.key.map((_, at) => `k${at}`);
  const matches = stream.key.map((name, at) => `${column(name)} = wanted.k${at}`);
  return `SELECT ${ROW}.*, ${keyExpression(stream)} AS ${KEY_COLUMN}, ${hashExpression(stream)}::text AS ${HASH_COLUMN}
    FROM unnest(${wanted.join(', ')}) AS wanted(${names.join(', ')}) JOIN ${relation(stream.source)} ON ${matches.join(' AND ')}`;
}

/** The same by the joined key, without an index: for keys that do not read as the column's type. */
export function selectRowsByText(stream: Stream): string {
  return `SELECT ${ROW}.*, ${keyExpression(stream)} AS ${KEY_COLUMN}, ${hashExpression(stream)}::text AS ${HASH_COLUMN}
    FROM ${relation(stream.source)} WHERE ${keyExpression(stream)} = ANY ($1::text[])`;
}

/** External ids that more than one row would give, with the keys of those rows. */
export function selectSharedExternalIds(stream: Stream, limit: number): string {
  const externalId = stream.externalId
    .map((part) =>
      'literal' in part ? `'${part.literal.replaceAll("'", "''")}'` : `${column(part.column)}::text`,
    )
    .join(' || ');
  return `SELECT ext AS "externalId", json_agg(k ORDER BY k COLLATE "C") AS keys
    FROM (SELECT ${externalId} AS ext, ${keyExpression(stream)} AS k FROM ${relation(stream.source)}) AS ids
    WHERE ext IS NOT NULL GROUP BY ext HAVING count(*) > 1 ORDER BY ext COLLATE "C" LIMIT ${limit}`;
}

/** Whether the template alone makes two ids differ when the keys do. */
export function isExternalIdUniqueByKey({ key, externalId }: Pick<Stream, 'key' | 'externalId'>): boolean {
  const columns = externalId.flatMap((part) => ('column' in part ? [part.column] : []));
  return key.length === 1 && columns.length === 1 && columns[0] === key[0];
}
