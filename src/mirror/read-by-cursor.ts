// Reads the rows that a poll looks at, in the order of the stream's cursor: from the watermark on, in one snapshot.
import { decodeColumn, unescapeColumn } from '../connections/postgres-copy.js';
import type { Stream } from '../streams/stream.js';
import { quoteLiteral } from '../text/sql-text.js';
import { read } from './mirror-errors.js';
import type { ReadOnlySessions } from './read-only-sessions.js';
import { collect, type SourceReader } from './source-reader.js';
import {
  column,
  hashExpression,
  isTimeType,
  keyExpression,
  relation,
  TIME_WITH_ZONE,
  TIME_WITHOUT_ZONE,
  type Described,
} from './source-sql.js';

/** A row as polling reads it. */
export interface CursorRow {
  /** Text at full precision. */
  cursor: string;
  key: string;
  hash: string;
  /** Beyond the watermark, neither at nor before it. */
  isAhead: boolean;
}

/** The rows that a poll reads: from its watermark on, and some time before it where the cursor is a time. */
export interface CursorRange {
  /** A cursor's value as text, at full precision, and the key it was read with. Without one: from the beginning. */
  watermark: { cursor: string; localKey: string } | undefined;
  overlapSeconds: number;
  lagSeconds: number;
}

/** Errors are SlotsyncError `mirror_…`. */
export function createCursorReader(sessions: ReadOnlySessions, reader: SourceReader) {
  const typeOf = async (stream: Stream): Promise<string> =>
    (await reader.describedAs(stream)).types.get(stream.cursor ?? '') ?? '';

  return {
    /**
     * Rows in the order of the stream's cursor, in one snapshot: from the watermark on, and what the overlap adds before
     * it. The reading ends when its consumer stops. Call it within `takeTurn`.
     */
    async *readByCursor(stream: Stream, range: CursorRange): AsyncGenerator<CursorRow[]> {
      const { cursor } = stream;
      if (cursor === undefined) return;
      const blocks = reader.copy(stream, (described) => [selectByCursor(described, cursor, range)]);
      for await (const lines of blocks) yield lines.map(toCursorRow);
    },

    /** The type of the stream's cursor. `isTime`: looking back by seconds has a meaning. */
    async cursorType(stream: Stream): Promise<{ type: string; isTime: boolean }> {
      const type = await typeOf(stream);
      return { type, isTime: isTimeType(type) };
    },

    /** The source has a row whose cursor is the watermark or comes after it: otherwise its values went back. */
    async hasReached(stream: Stream, watermark: NonNullable<CursorRange['watermark']>): Promise<boolean> {
      const { cursor = '' } = stream;
      const rows = reader.select(stream, (described) => [findReached(described, cursor, watermark)]);
      return (await collect(rows)).length > 0;
    },

    /** Number of rows that are never polled: the value of their cursor comes from no clock or sequence. */
    async countImpossible(stream: Stream): Promise<number> {
      const { cursor = '' } = stream;
      const rows = reader.select<Stream, { count: number }>(stream, (described) =>
        countImpossible(described, cursor),
      );
      return (await collect(rows))[0]?.count ?? 0;
    },

    /** Whether one value of the stream's cursor comes before another, as PostgreSQL orders them. */
    async isBefore(stream: Stream, value: string, other: string): Promise<boolean> {
      const type = await typeOf(stream);
      const [one, two] = [value, other].map((text) => `${quoteLiteral(text)}::text::${type}`);
      const [row] = await read(() => sessions.query<{ is: boolean }>(`SELECT ${one} < ${two} AS is`));
      return row?.is ?? true;
    },
  };
}

function toCursorRow(line: string): CursorRow {
  const [cursor = '', key = '', hash = '', isAhead] = line.split('\t');
  const text = (column: string) => decodeColumn(unescapeColumn(column));
  return { cursor: text(cursor), key: text(key), hash, isAhead: isAhead === 't' };
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
function countImpossible(stream: Described<Stream>, cursor: string): string[] {
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
function selectByCursor(stream: Described<Stream>, cursor: string, range: CursorRange): string {
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
function findReached(
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
