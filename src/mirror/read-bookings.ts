// The bookings of the mirror, a stretch of time at a time. Times without a zone become instants here, by PostgreSQL,
// which knows when a zone's clocks are changed; from here on a time is a number of milliseconds.
import { closest } from 'fastest-levenshtein';
import type postgres from 'postgres';
import { arrayLiteral, quoteLiteral } from '../sql-text.js';
import { messageOf, SlotsyncError } from '../errors.js';
import type { Row } from '../streams/config-schema.js';
import { templateColumns } from '../streams/external-id.js';
import { toBooking, type Booking, type BookingSource } from '../streams/bookings.js';
import type { Source } from '../streams/stream.js';
import { isDataFault, isSourceFault, read } from './mirror-errors.js';
import * as sourceSql from './source-sql.js';
import { keyColumns, readArrays } from './column-values.js';

/** A stretch of time, in Unix seconds. A booking belongs to the one it begins in. */
export interface Slice {
  from: number;
  to: number;
  /** What began before and lasts into it belongs to it as well. */
  isFirst: boolean;
}

export type BookingReader = ReturnType<typeof createBookingReader>;

/** Rows handed over at once where nothing else bounds them. */
const ROWS_AT_ONCE = 1000;
const MOST_SHARED = 1000;

const KEY = 'slotsync_key';
const BEGIN = 'slotsync_begin';
const END = 'slotsync_end';
const CANCELLED = 'slotsync_cancelled';

/** Readings of bookings over the mirror's connections. Errors are SlotsyncError `mirror_…`. */
export function createBookingReader(
  sql: postgres.Sql,
  describeSource: (source: Source) => Promise<Map<string, string>>,
) {
  const described = new WeakMap<BookingSource, Promise<Map<string, string>>>();

  function typesOf(bookings: BookingSource): Promise<Map<string, string>> {
    const known = described.get(bookings);
    if (known) return known;
    const types = describeSource(bookings.source);
    described.set(bookings, types);
    types.catch(() => described.delete(bookings));
    return types;
  }

  async function expressionsOf(bookings: BookingSource) {
    const types = await typesOf(bookings);
    const [fault] = faultsOf(bookings, types);
    if (fault !== undefined) throw sourceFault(`reservations.${fault}`);
    return {
      types,
      begin: instant(bookings.begin, types, bookings.timezone),
      end: instant(bookings.end, types, bookings.timezone),
      cancelled: bookings.cancelled === undefined ? 'false' : truth(bookings.cancelled, types),
    };
  }

  async function select(bookings: BookingSource, condition: string): Promise<string> {
    const { begin, end, cancelled } = await expressionsOf(bookings);
    return `SELECT ${sourceSql.ROW}.*, ${sourceSql.keyExpression(bookings)} AS ${KEY},
      ${seconds(begin)} AS ${BEGIN}, ${seconds(end)} AS ${END}, ${cancelled} AS ${CANCELLED}
      FROM ${sourceSql.relation(bookings.source)} WHERE ${condition}`;
  }

  async function readWhere(bookings: BookingSource, condition: string): Promise<Booking[]> {
    const { types } = await expressionsOf(bookings);
    const statement = await select(bookings, condition);
    const rows = await read(() => sql.unsafe<Row[]>(statement));
    return rows.map((row) => fromRow(bookings, row, types));
  }

  /** Tries conditions, the fastest first; the next serves where a text does not read as its column's type. */
  async function readFirst(bookings: BookingSource, conditions: readonly string[]): Promise<Booking[]> {
    for (const condition of conditions.slice(0, -1)) {
      const statement = await select(bookings, condition);
      try {
        const { types } = await expressionsOf(bookings);
        return (await sql.unsafe<Row[]>(statement)).map((row) => fromRow(bookings, row, types));
      } catch (error) {
        if (!isDataFault(error)) return await read(() => Promise.reject(error as Error));
      }
    }
    return readWhere(bookings, conditions.at(-1) ?? 'false');
  }

  async function within(bookings: BookingSource, { from, to, isFirst }: Slice): Promise<string> {
    const { begin, end } = await expressionsOf(bookings);
    const inside = `(${begin} >= to_timestamp(${from}) AND ${begin} < to_timestamp(${to}))`;
    return isFirst
      ? `(${inside} OR (${begin} < to_timestamp(${from}) AND ${end} > to_timestamp(${from})))`
      : inside;
  }

  return {
    /** What is wrong with the source, in words; empty when every column it names is there and can be used. */
    async check(bookings: BookingSource): Promise<string[]> {
      try {
        return faultsOf(bookings, await typesOf(bookings));
      } catch (error) {
        if (!isSourceFault(error)) throw error;
        return [`from: ${messageOf(error)}`];
      }
    },

    /** How many bookings belong to a slice. */
    async count(bookings: BookingSource, slice: Slice): Promise<number> {
      const condition = await within(bookings, slice);
      const [row] = await read(() =>
        sql.unsafe<{ count: number }[]>(
          `SELECT count(*)::int AS count FROM ${sourceSql.relation(bookings.source)} WHERE ${condition}`,
        ),
      );
      return row?.count ?? 0;
    },

    /** The bookings that belong to a slice. */
    readSlice: async (bookings: BookingSource, slice: Slice): Promise<Booking[]> =>
      readWhere(bookings, await within(bookings, slice)),

    /** Bookings without a begin or an end, which belong to no time, some at once. */
    async *readUndated(bookings: BookingSource): AsyncGenerator<Booking[]> {
      const { begin, end, types } = await expressionsOf(bookings);
      const dated = [begin, end].map((time) => `coalesce(isfinite(${time}), false)`).join(' AND ');
      const rows = sql.unsafe<Row[]>(await select(bookings, `NOT (${dated})`)).cursor(ROWS_AT_ONCE);
      const reading = rows[Symbol.asyncIterator]();
      for (let step = await read(() => reading.next()); !step.done; step = await read(() => reading.next()))
        yield step.value.map((row) => fromRow(bookings, row, types));
    },

    /** The bookings with these external ids, whenever they are. */
    async readByExternalIds(bookings: BookingSource, extIds: readonly string[]): Promise<Booking[]> {
      if (extIds.length === 0) return [];
      const all = `${sourceSql.externalIdExpression(bookings)} = ANY (${quoteLiteral(arrayLiteral(extIds))}::text[])`;
      const byColumn = await matchTemplate(bookings, extIds);
      const found = await readFirst(bookings, byColumn === undefined ? [all] : [byColumn, all]);
      const wanted = new Set(extIds);
      return found.filter(({ externalId }) => externalId !== undefined && wanted.has(externalId));
    },

    /** The bookings with these keys; one whose row is gone is not in the answer. */
    async readByKeys(bookings: BookingSource, keys: readonly string[]): Promise<Booking[]> {
      if (keys.length === 0) return [];
      const types = await typesOf(bookings);
      return readFirst(bookings, [
        sourceSql.matchKeys(bookings, types, keyColumns(bookings, keys)),
        sourceSql.matchKeysByText(bookings, arrayLiteral(keys)),
      ]);
    },

    /** Throws `key_not_unique` or `key_null` when bookings of the window cannot be told apart. */
    async requireKeys(bookings: BookingSource, window: Slice): Promise<void> {
      const condition = await within(bookings, window);
      const rows = await read(() =>
        sql.unsafe<{ key: string | null; count: number }[]>(
          `SELECT ${sourceSql.keyExpression(bookings)} AS key, count(*)::int AS count
          FROM ${sourceSql.relation(bookings.source)} WHERE ${condition}
          GROUP BY 1 HAVING count(*) > 1 OR ${sourceSql.keyExpression(bookings)} IS NULL LIMIT 5`,
        ),
      );
      if (rows.length === 0) return;
      const isNull = rows.some(({ key }) => key === null);
      throw new SlotsyncError(
        isNull ? 'key_null' : 'key_not_unique',
        isNull
          ? 'reservations: the key is null in some bookings'
          : 'reservations: the key is not unique; some bookings share theirs',
        {
          remedy: 'Name the columns that identify a booking in reservations.key.',
          detail: rows.flatMap(({ key }) => key ?? []).join(', '),
        },
      );
    },

    /** Keys of bookings whose external id another booking has too. Reads the whole source, unless the template rules it out. */
    async findShared(bookings: BookingSource): Promise<Set<string>> {
      if (sourceSql.isExternalIdUniqueByKey(bookings)) return new Set();
      const shared = await read(() =>
        sql.unsafe<{ keys: string[] }[]>(sourceSql.selectSharedExternalIds(bookings, MOST_SHARED + 1)),
      );
      if (shared.length <= MOST_SHARED) return new Set(shared.flatMap(({ keys }) => keys));
      throw new SlotsyncError(
        'external_ids_not_unique',
        `reservations: more than ${MOST_SHARED} external ids stand for several bookings each`,
        {
          remedy: 'Name the columns that identify a booking in reservations.externalId.',
        },
      );
    },
  };

  /** A template of one column can be undone, so that the column's index serves. */
  async function matchTemplate(
    bookings: BookingSource,
    extIds: readonly string[],
  ): Promise<string | undefined> {
    const at = bookings.externalId.findIndex((part) => 'column' in part);
    const part = bookings.externalId[at];
    if (!part || !('column' in part) || templateColumns(bookings.externalId).length > 1) return undefined;
    const literal = (parts: BookingSource['externalId']) =>
      parts.map((other) => ('literal' in other ? other.literal : '')).join('');
    const prefix = literal(bookings.externalId.slice(0, at));
    const suffix = literal(bookings.externalId.slice(at + 1));
    const values = extIds
      .filter((extId) => extId.length > prefix.length + suffix.length)
      .filter((extId) => extId.startsWith(prefix) && extId.endsWith(suffix))
      .map((extId) => extId.slice(prefix.length, extId.length - suffix.length));
    const type = (await typesOf(bookings)).get(part.column) ?? 'text';
    return `${sourceSql.column(part.column)} = ANY (${quoteLiteral(arrayLiteral(values))}::text[]::${type}[])`;
  }
}

function faultsOf(bookings: BookingSource, types: ReadonlyMap<string, string>): string[] {
  const named: (readonly [place: string, column: string])[] = [
    ...bookings.key.map((column) => ['key', column] as const),
    ...templateColumns(bookings.externalId).map((column) => ['externalId', column] as const),
    ['begin', bookings.begin],
    ['end', bookings.end],
    ...(bookings.cancelled === undefined ? [] : [['cancelled', bookings.cancelled] as const]),
    ...bookings.objects.flatMap(({ key }, at) => key.map((column) => [`objects.${at}.key`, column] as const)),
    ...[...bookings.fields].flatMap(([fieldId, from]) =>
      typeof from === 'string' ? [[`fields['${fieldId}']`, from] as const] : [],
    ),
  ];
  const missing = named
    .filter(([, column]) => !types.has(column))
    .map(
      ([place, column]) =>
        `${place}: there is no column ${column}; did you mean ${closest(column, [...types.keys()])}?`,
    );
  if (missing.length > 0) return missing;
  const { begin, end, cancelled } = bookings;
  return [
    ...(['begin', 'end'] as const).flatMap((place) => {
      const column = place === 'begin' ? begin : end;
      const type = types.get(column) ?? '';
      return isTime(type)
        ? []
        : [`${place}: column ${column} is ${type}; a timestamp is needed (a query can convert it)`];
    }),
    ...(cancelled === undefined || isTruth(types.get(cancelled) ?? '')
      ? []
      : [
          `cancelled: column ${cancelled} is ${types.get(cancelled) ?? ''}; a boolean, an integer or a time is needed (a query can convert it)`,
        ]),
  ];
}

const WITH_ZONE = 'timestamp with time zone';
const isTime = (type: string) => [WITH_ZONE, 'timestamp without time zone', 'date'].includes(type);
const isInteger = (type: string) => ['smallint', 'integer', 'bigint'].includes(type);
const isTruth = (type: string) => type === 'boolean' || isInteger(type) || isTime(type);

/** A column as an instant. */
function instant(name: string, types: ReadonlyMap<string, string>, timezone: string): string {
  const column = sourceSql.column(name);
  if (types.get(name) === WITH_ZONE) return column;
  return `(${column}::timestamp AT TIME ZONE ${quoteLiteral(timezone)})`;
}

/** Whole seconds since 1970 as text; null for no time, and for infinity. */
function seconds(time: string): string {
  return `CASE WHEN isfinite(${time}) THEN floor(extract(epoch FROM ${time}))::bigint::text END`;
}

function truth(name: string, types: ReadonlyMap<string, string>): string {
  const column = sourceSql.column(name);
  const type = types.get(name) ?? '';
  if (type === 'boolean') return `coalesce(${column}, false)`;
  return isInteger(type) ? `coalesce(${column} <> 0, false)` : `(${column} IS NOT NULL)`;
}

function fromRow(bookings: BookingSource, columns: Row, types: ReadonlyMap<string, string>): Booking {
  const {
    [KEY]: key,
    [BEGIN]: begin,
    [END]: end,
    [CANCELLED]: isCancelled,
    ...row
  } = columns as Record<string, unknown>;
  if (typeof key !== 'string') {
    throw new SlotsyncError('key_null', 'reservations: the key is null in some bookings', {
      remedy: 'Name the columns that identify a booking in reservations.key.',
    });
  }
  const milliseconds = (text: unknown) => (typeof text === 'string' ? Number(text) * 1000 : undefined);
  return toBooking(bookings, {
    row: readArrays(row, types),
    key,
    begin: milliseconds(begin),
    end: milliseconds(end),
    isCancelled: isCancelled === true,
  });
}

function sourceFault(message: string): SlotsyncError {
  return new SlotsyncError('mirror_source', message, {
    remedy: 'Correct the configuration; `slotsync check` reads every source.',
  });
}
