// Reads the rows that a poll checks for changes: from the watermark on, in the order of the stream's cursor column, in
// one snapshot.
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

export interface CursorRow {
  /** Value of the row's cursor column, as text at full precision. */
  cursor: string;
  key: string;
  hash: string;
  /** True if the row comes after the watermark. False for rows that the overlap reads again. */
  isAhead: boolean;
}

/** Rows that one poll reads: from the watermark on. For a time cursor, the range begins `overlapSeconds` earlier. */
export interface CursorRange {
  /** Cursor value (text at full precision) and key of the last polled row. If undefined, all rows are polled. */
  watermark: { cursor: string; localKey: string } | undefined;
  overlapSeconds: number;
  lagSeconds: number;
}

/** Creates the queries that polling needs. They throw SlotsyncError `mirror_…`. */
export function createCursorReader(sessions: ReadOnlySessions, reader: SourceReader) {
  const typeOf = async (stream: Stream) => cursorOf(await reader.describedAs(stream)).type;

  return {
    /**
     * Yields blocks of rows in the order of the stream's cursor, from one snapshot, including the overlap before the
     * watermark. The query ends when the consumer stops iterating. Call this function within `takeTurn`.
     */
    async *readByCursor(stream: Stream, range: CursorRange): AsyncGenerator<CursorRow[]> {
      if (stream.cursor === undefined) return;
      const blocks = reader.copy(stream, (described) => [selectByCursor(described, range)]);
      for await (const lines of blocks) yield lines.map(toCursorRow);
    },

    /** Returns the SQL type of the cursor column. `isTime` is true if the overlap in seconds applies to the type. */
    async cursorType(stream: Stream): Promise<{ type: string; isTime: boolean }> {
      const type = await typeOf(stream);
      return { type, isTime: isTimeType(type) };
    },

    /**
     * Returns true if a row's cursor is at or after the watermark. If not, the source's values have moved backward.
     */
    async hasReached(stream: Stream, watermark: NonNullable<CursorRange['watermark']>): Promise<boolean> {
      const range = { watermark, overlapSeconds: 0, lagSeconds: -MOST_AHEAD_SECONDS };
      const rows = reader.select<Stream, object>(stream, (described) => [
        `SELECT 1 FROM ${relation(stream.source)} WHERE ${inRange(described, range)} LIMIT 1`,
      ]);
      return (await collect(rows)).length > 0;
    },

    /** Returns the number of rows that are never polled, because no clock or sequence produces their cursor value. */
    async countImpossible(stream: Stream): Promise<number> {
      const rows = reader.select<Stream, { count: number }>(stream, (described) => {
        const { value, type } = cursorOf(described);
        const finite = isFiniteValue(value, type);
        if (finite === undefined) return [];
        const ahead = `${value} > now()::timestamp + make_interval(secs => ${MOST_AHEAD_SECONDS})`;
        const impossible = isTimeType(type) ? `NOT (${finite}) OR ${ahead}` : `NOT (${finite})`;
        return [`SELECT count(*)::int AS count FROM ${relation(stream.source)} WHERE ${impossible}`];
      });
      return (await collect(rows))[0]?.count ?? 0;
    },

    /** Returns true if a cursor value comes before another cursor value in PostgreSQL's order. */
    async isBefore(stream: Stream, value: string, other: string): Promise<boolean> {
      const type = await typeOf(stream);
      const [one, two] = [value, other].map((cursor) => markOf({ cursor }, type));
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

/** Returns SQL for the cursor column, and the column's type. */
const cursorOf = ({ cursor = '', types }: Described<Stream>) => ({
  value: column(cursor),
  type: types.get(cursor) ?? 'text',
});

const markOf = ({ cursor }: { cursor: string }, type: string) => `${quoteLiteral(cursor)}::text::${type}`;

/** Minimum overlap of a cursor without a time zone. When clocks are set back, one hour of cursor values repeats. */
const SET_BACK_SECONDS = 60 * 60;

/** Returns SQL that excludes NaN and infinities, beyond which no later value comes. Undefined if the type has none. */
function isFiniteValue(value: string, type: string): string | undefined {
  if (isTimeType(type)) return `isfinite(${value})`;
  return ['numeric', 'real', 'double precision'].includes(type) ? `${value}::text !~ '[NI]'` : undefined;
}

/** Maximum lead of a cursor time over the server's clock. No clock of any time zone is further ahead. */
const MOST_AHEAD_SECONDS = 2 * 24 * 60 * 60;

/**
 * Returns a query for `(cursor, key, row hash, is after the watermark)`, ordered by cursor and then by the bytes of the
 * key. Rows whose cursor is null or not finite are left out.
 */
function selectByCursor(stream: Described<Stream>, range: CursorRange): string {
  const { watermark } = range;
  const { value, type } = cursorOf(stream);
  const mark = watermark && markOf(watermark, type);
  const isAhead =
    watermark && mark !== undefined
      ? `(c > ${mark} OR (c = ${mark} AND k COLLATE "C" > ${quoteLiteral(watermark.localKey)}))`
      : 'true';
  // Sorts by `polled.c`, the typed column. Plain `c` would name the output text, which sorts 10 before 9.
  return `SELECT c::text, k, h, ${isAhead}
    FROM (SELECT ${value} AS c, ${keyExpression(stream)} AS k, ${hashExpression(stream)} AS h
      FROM ${relation(stream.source)} WHERE ${inRange(stream, range)}) AS polled
    WHERE k IS NOT NULL ORDER BY polled.c, k COLLATE "C"`;
}

function inRange(stream: Described<Stream>, { watermark, overlapSeconds, lagSeconds }: CursorRange): string {
  const { value, type } = cursorOf(stream);
  const overlap = type === TIME_WITHOUT_ZONE ? Math.max(overlapSeconds, SET_BACK_SECONDS) : overlapSeconds;
  const isTime = isTimeType(type);
  const conditions = [`${value} IS NOT NULL`];
  const finite = isFiniteValue(value, type);
  if (finite !== undefined) conditions.push(finite);
  if (watermark) {
    const before = isTime ? ` - make_interval(secs => ${overlap})` : '';
    conditions.push(`${value} >= ${markOf(watermark, type)}${before}`);
  }
  if (type === TIME_WITH_ZONE) conditions.push(`${value} <= now() - make_interval(secs => ${lagSeconds})`);
  // A timestamp without a zone may be local time of any zone, up to 14 hours ahead of this session's UTC.
  else if (isTime) conditions.push(`${value} <= now()::timestamp + interval '14 hours'`);
  return conditions.join(' AND ');
}
