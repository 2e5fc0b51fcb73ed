// The SQL that reads a source. Identifiers are quoted; of the configuration only the query of a source becomes SQL as it
// is.
import { column, hashExpression, keyExpression, ROW } from './row-key-and-hash.js';
import { arrayLiteral, quoteIdentifier, quoteLiteral } from '../text/sql-text.js';
import { keySql } from '../streams/external-id-rule.js';
import { MAX_ID_BYTES } from '../streams/local-key.js';
import type { DeclaredSource, Source, Stream } from '../streams/stream.js';
import { mappedText } from './mapped-text.js';
import type { Described } from './source-columns.js';

export function relation(source: Source): string {
  return 'table' in source
    ? `${source.table.map(quoteIdentifier).join('.')} AS ${ROW}`
    : `(\n${source.query.replace(/;\s*$/, '')}\n) AS ${ROW}`;
}

/** Selects the rows of a source that are read; all of them when it is empty. */
export interface Selection {
  keys?: readonly string[] | undefined;
  /** From this value of the cursor on, and before that one. As text, at full precision. */
  from?: string | undefined;
  to?: string | undefined;
  /** A condition in SQL over the source's columns. */
  where?: string | undefined;
}

/**
 * `(key, row hash)` in the byte order of the key. Behind the hash of a row that has one of the `shared` external ids
 * stands `:shared:` and the place of that id in the list.
 */
export function selectHashes(
  stream: Described<Stream>,
  condition = '',
  shared: readonly string[] = [],
): string {
  const key = keyExpression(stream);
  const hash = hashExpression(stream);
  const from = relation(stream.source);
  if (shared.length === 0) {
    return `SELECT k, h FROM (SELECT ${key} AS k, ${hash} AS h FROM ${from} ${condition}) AS hashed
      ORDER BY k COLLATE "C"`;
  }
  return `SELECT k, h || coalesce(':shared:' || place - 1, '')
    FROM (SELECT ${key} AS k, ${hash} AS h, slotsync_place AS place
      FROM ${from} LEFT JOIN unnest(${quoteLiteral(arrayLiteral(shared))}::text[])
        WITH ORDINALITY AS slotsync_shared(slotsync_id, slotsync_place)
        ON slotsync_id = ${externalIdExpression(stream)} ${condition}) AS hashed
    ORDER BY k COLLATE "C"`;
}

/** The rows that a poll reads: from its watermark on, and some time before it where the cursor is a time. */
export interface CursorRange {
  /** A cursor's value as text, at full precision, and the key it was read with. Without one: from the beginning. */
  watermark: { cursor: string; localKey: string } | undefined;
  overlapSeconds: number;
  lagSeconds: number;
}

export const TIME_WITH_ZONE = 'timestamp with time zone';
const TIME_WITHOUT_ZONE = 'timestamp without time zone';

export function isTimeType(type: string): boolean {
  return [TIME_WITH_ZONE, TIME_WITHOUT_ZONE, 'date'].includes(type);
}

/** When clocks are set back, an hour comes twice, and what is written in the second has a cursor of the first. */
const SET_BACK_SECONDS = 60 * 60;

/** Infinities and NaN are after or before everything: no later value is beyond them. Undefined: the type has neither. */
function isFiniteValue(value: string, type: string): string | undefined {
  if (isTimeType(type)) return `isfinite(${value})`;
  return ['numeric', 'real', 'double precision'].includes(type) ? `${value}::text !~ '[NI]'` : undefined;
}

/** No clock is further ahead, whatever its zone. */
const MOST_AHEAD_SECONDS = 2 * 24 * 60 * 60;

/** Counts the rows whose cursor comes from no clock or sequence. No statement: the type has no such values. */
export function countImpossible(stream: Described<Stream>, cursor: string): string[] {
  const type = stream.types.get(cursor) ?? 'text';
  const value = column(cursor);
  const finite = isFiniteValue(value, type);
  if (finite === undefined) return [];
  const isAhead = isTimeType(type)
    ? ` OR ${value} > now()::timestamp + make_interval(secs => ${MOST_AHEAD_SECONDS})`
    : '';
  return [`SELECT count(*)::int AS count FROM ${relation(stream.source)} WHERE NOT (${finite})${isAhead}`];
}

/**
 * `(cursor, key, row hash, whether it is beyond the watermark)` in the order of the cursor, and of the key's bytes where
 * cursors are equal. Rows without a cursor, or with one that is not finite, are
 * not read.
 */
export function selectByCursor(stream: Described<Stream>, cursor: string, range: CursorRange): string {
  const { watermark } = range;
  const mark = watermark && markOf(stream, cursor, watermark);
  const isAhead =
    watermark && mark !== undefined
      ? `(c > ${mark} OR (c = ${mark} AND k COLLATE "C" > ${quoteLiteral(watermark.localKey)}))`
      : 'true';
  // Without its table, `c` would be the text that is put out, and 10 before 9.
  return `SELECT c::text, k, h, ${isAhead}
    FROM (SELECT ${column(cursor)} AS c, ${keyExpression(stream)} AS k, ${hashExpression(stream)} AS h
      FROM ${relation(stream.source)} WHERE ${inRange(stream, cursor, range)}) AS polled
    WHERE k IS NOT NULL ORDER BY polled.c, k COLLATE "C"`;
}

/** Answers a row where the source has one at the watermark or beyond it. */
export function findReached(
  stream: Described<Stream>,
  cursor: string,
  watermark: NonNullable<CursorRange['watermark']>,
): string {
  const condition = inRange(stream, cursor, {
    watermark,
    overlapSeconds: 0,
    lagSeconds: -MOST_AHEAD_SECONDS,
  });
  return `SELECT 1 FROM ${relation(stream.source)} WHERE ${condition} LIMIT 1`;
}

const markOf = (stream: Described<Stream>, cursor: string, watermark: { cursor: string }) =>
  `${quoteLiteral(watermark.cursor)}::text::${stream.types.get(cursor) ?? 'text'}`;

/** The condition of the rows of a range. */
function inRange(
  stream: Described<Stream>,
  cursor: string,
  { watermark, overlapSeconds, lagSeconds }: CursorRange,
): string {
  const type = stream.types.get(cursor) ?? 'text';
  const overlap = type === TIME_WITHOUT_ZONE ? Math.max(overlapSeconds, SET_BACK_SECONDS) : overlapSeconds;
  const value = column(cursor);
  const isTime = isTimeType(type);
  const conditions = [`${value} IS NOT NULL`];
  const finite = isFiniteValue(value, type);
  if (finite !== undefined) conditions.push(finite);
  if (watermark) {
    const before = isTime ? ` - make_interval(secs => ${overlap})` : '';
    conditions.push(`${value} >= ${markOf(stream, cursor, watermark)}${before}`);
  }
  if (type === TIME_WITH_ZONE) conditions.push(`${value} <= now() - make_interval(secs => ${lagSeconds})`);
  // A time without a zone may be one of any zone: up to fourteen hours ahead of this session's.
  else if (isTime) conditions.push(`${value} <= now()::timestamp + interval '14 hours'`);
  return conditions.join(' AND ');
}

/** The WHERE of a selection, empty when it selects all rows. Keys are matched by `keyCondition`. */
export function selectCondition(
  { cursor }: Pick<Stream, 'cursor'>,
  { from, to, where }: Selection,
  keyCondition?: string,
): string {
  const conditions = [
    ...(keyCondition === undefined ? [] : [keyCondition]),
    ...(from === undefined || cursor === undefined ? [] : [`${column(cursor)} >= ${quoteLiteral(from)}`]),
    ...(to === undefined || cursor === undefined ? [] : [`${column(cursor)} < ${quoteLiteral(to)}`]),
    ...(where === undefined ? [] : [`(${where}\n)`]),
  ];
  return conditions.length === 0 ? '' : `WHERE ${conditions.join(' AND ')}`;
}

/** Why PostgreSQL takes a statement that cannot be executed. */
export const NO_PARAMETERS = 'parameters such as $1 have no value here';

/**
 * Statements that parse only when a selection is one condition. The second refuses a condition with an ORDER BY or a UNION
 * behind it. The third has no parenthesis that a condition such as `false) OR (true` could close, by which it would
 * escape from what else is selected.
 */
export function tryConditions(stream: Stream, selection: Selection): string[] {
  const { where } = selection;
  const from = `FROM ${relation(stream.source)}`;
  const plain = `SELECT 1 ${from} ${selectCondition(stream, selection)}`;
  if (where === undefined) return [plain];
  return [plain, `SELECT CASE WHEN (${where}\n) THEN 1 END ${from}`, `SELECT 1 ${from} WHERE ${where}\n`];
}

/**
 * A condition for these keys: one array for each key column, cast to the column's type so that an index serves. Each
 * column is compared with its array, which PostgreSQL also does inside a view with volatile functions: so they are not
 * called for other rows.
 */
export function matchKeys(
  { key, types }: Pick<Described<Stream>, 'key' | 'types'>,
  columns: readonly string[],
): string {
  const names = key.map((name) => column(name));
  const wanted = key.map(
    (name, at) => `${quoteLiteral(columns[at] ?? '{}')}::text[]::${types.get(name) ?? 'text'}[]`,
  );
  const each = names.map((name, at) => `${name} = ANY (${wanted[at]})`);
  if (each.length > 1) each.push(`(${names.join(', ')}) IN (SELECT * FROM unnest(${wanted.join(', ')}))`);
  return `(${each.join(' AND ')})`;
}

/** The same by the joined key, without an index: for keys that do not read as the column's type, or cannot be compared. */
export function matchKeysByText(stream: Pick<Described<Stream>, 'key' | 'types'>, keys: string): string {
  return `${keyExpression(stream)} = ANY (${quoteLiteral(keys)}::text[])`;
}

export function aliasOf(name: string): string {
  return `slotsync_${name}`;
}

const ROW_BYTES = `octet_length(${ROW}::text)`;
const READ = 'slotsync_read';
/** Whether the row of `selectRows` is too large to be read. */
export const IS_TOO_LARGE = `${READ} IS NOT DISTINCT FROM NULL`;
/** Its bytes as text; null for the others. */
export const BYTES_TOO_MANY = `CASE WHEN ${IS_TOO_LARGE} THEN ${ROW_BYTES} END`;

/**
 * Rows, and what is computed of each beside its own columns: expressions by name. The columns of a row that is larger than
 * its source permits are null: rows that are read together are in memory together.
 */
export function selectRows(
  { source, rowLimitMegabytes }: Pick<DeclaredSource, 'source' | 'rowLimitMegabytes'>,
  computed: Readonly<Record<string, string>>,
  condition: string,
): string {
  const extra = Object.entries(computed).map(
    ([name, expression]) => `, ${expression} AS ${quoteIdentifier(aliasOf(name))}`,
  );
  return `SELECT ${READ}.*${extra.join('')} FROM ${relation(source)}
    LEFT JOIN LATERAL (SELECT ${ROW}.*) AS ${READ} ON ${ROW_BYTES} <= ${rowLimitMegabytes * 1024 * 1024} WHERE ${condition}`;
}

/** The external id of a row, as streams/external-id.ts renders it. Null when the row has none. */
export function externalIdExpression({
  externalId,
  types,
}: Pick<Described<Stream>, 'externalId' | 'types'>): string {
  const parts = externalId.parts.map((part) =>
    'literal' in part
      ? quoteLiteral(part.literal)
      : `nullif(${mappedText(column(part.column), types.get(part.column) ?? 'text')}, '')`,
  );
  return `(${keySql(externalId.rule, parts.join(' || '))}) COLLATE "C"`;
}

type Identified = Pick<Described<Stream>, 'key' | 'externalId' | 'source' | 'types'>;

const keysAndIds = (stream: Identified) =>
  `(SELECT ${externalIdExpression(stream)} AS ext, ${keyExpression(stream)} AS k
    FROM ${relation(stream.source)}) AS ids`;

/** External ids that more than one row has, and how many have it. Rows with one that is too long are each refused alone. */
export function selectSharedExternalIds(stream: Identified, limit: number): string {
  return `SELECT ext AS "externalId", count(*)::int AS count FROM ${keysAndIds(stream)}
    WHERE octet_length(ext) <= ${MAX_ID_BYTES} GROUP BY ext HAVING count(*) > 1 ORDER BY ext LIMIT ${limit}`;
}

/** The first keys of the rows that have these external ids. */
export function selectKeysOfIds(stream: Identified, externalIds: readonly string[], limit: number): string {
  return `SELECT ext AS "externalId", array_to_json(array_agg(k ORDER BY place)) AS keys
    FROM (SELECT ext, k, row_number() OVER (PARTITION BY ext ORDER BY k COLLATE "C") AS place FROM ${keysAndIds(stream)}
      WHERE ext = ANY (${quoteLiteral(arrayLiteral(externalIds))}::text[]) AND k IS NOT NULL) AS placed
    WHERE place <= ${limit} GROUP BY ext`;
}
