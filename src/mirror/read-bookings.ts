// Reads the bookings of the mirror by time, key or external id. PostgreSQL converts times without a zone (`instant`),
// because it knows the clock changes of each zone. Times in the result are in milliseconds. time/zoned-time.ts converts
// times that people write.
import type { KeyFinder } from './find-keys.js';
import { column, keyExpression, type ColumnTypes, type Described } from './source-sql.js';
import { arrayLiteral, quoteLiteral } from '../text/sql-text.js';
import { SlotsyncError } from '../errors/errors.js';
import { mayGive } from '../streams/external-id.js';
import { MAX_ID_BYTES } from '../streams/local-key.js';
import { toBooking, type Booking, type BookingSource } from '../streams/bookings.js';
import {
  collect,
  findMissingColumns,
  keyConditions,
  type NamedColumn,
  type SourceReader,
  type SourceRow,
} from './source-reader.js';
import * as sourceSql from './source-sql.js';

/** A period in Unix seconds. A booking belongs to the slice in which it begins. */
export interface Slice {
  from: number;
  to: number;
  /** If true, a booking that began before the slice and lasts into it also belongs to the slice. */
  isFirst: boolean;
}

const KEY_REMEDY = 'Name the columns that identify a booking in reservations.key.';
const SOURCE_REMEDY = 'Correct the configuration; `slotsync check` reads every source.';

const ROWS_AT_ONCE = 1000;

/** Creates the queries of bookings. They throw SlotsyncError `mirror_…`. */
export function createBookingReader(reader: SourceReader, { findShared }: Pick<KeyFinder, 'findShared'>) {
  async function readAll(
    bookings: BookingSource,
    conditionsFor: (described: Described<BookingSource>) => readonly string[],
  ): Promise<Booking[]> {
    const rows = await reader.readRows(bookings, computedFor, conditionsFor);
    return rows.map((row) => fromRow(bookings, row));
  }

  return {
    /** Returns the faults of the bookings' source. The list is empty if every named column exists and fits. */
    check: (bookings: BookingSource): Promise<string[]> =>
      reader.check(bookings, (types) => findFaults(bookings, types)),

    async count(bookings: BookingSource, slice: Slice): Promise<number> {
      const [row] = await collect(
        reader.select<BookingSource, { count: number }>(bookings, (described) => [
          `SELECT count(*)::int AS count FROM ${sourceSql.relation(bookings.source)} WHERE ${within(described, slice)}`,
        ]),
      );
      return row?.count ?? 0;
    },

    /** Returns the bookings that belong to a slice, or none if the configuration has no source of bookings. */
    readSlice: async (bookings: BookingSource | undefined, slice: Slice): Promise<Booking[]> =>
      bookings ? readAll(bookings, (described) => [within(described, slice)]) : [],

    /** Yields, in blocks, the bookings without a valid begin or end. They belong to no slice. */
    async *readUndated(bookings: BookingSource): AsyncGenerator<Booking[]> {
      const found = await collect(
        reader.select<BookingSource, { key: string | null }>(bookings, (described) => [
          `SELECT ${keyExpression(described)} AS key FROM ${sourceSql.relation(bookings.source)} WHERE ${undated(described)}`,
        ]),
      );
      const keys = found.map(({ key }) => {
        if (key === null) throw keyIsNull();
        return key;
      });
      for (let at = 0; at < keys.length; at += ROWS_AT_ONCE) {
        const some = keys.slice(at, at + ROWS_AT_ONCE);
        yield await readAll(bookings, (described) =>
          keyConditions(described, some).map((condition) => `${condition} AND ${undated(described)}`),
        );
      }
    },

    /** Returns the bookings with these external ids, whatever their time. */
    async readByExternalIds(
      bookings: BookingSource | undefined,
      extIds: readonly string[],
    ): Promise<Booking[]> {
      const wanted = new Set(extIds.filter((id) => bookings && mayGive(bookings.externalId, id)));
      if (!bookings || wanted.size === 0) return [];
      const found = await readAll(bookings, (described) => [
        ...sourceSql.narrowToColumn(described, [...wanted]),
        `${sourceSql.externalIdExpression(described)} = ANY (${quoteLiteral(arrayLiteral([...wanted]))}::text[])`,
      ]);
      return found.filter(({ externalId }) => externalId !== undefined && wanted.has(externalId));
    },

    /** Returns the bookings with these keys. Bookings whose row was deleted are missing. */
    readByKeys: async (bookings: BookingSource | undefined, keys: readonly string[]): Promise<Booking[]> =>
      !bookings || keys.length === 0 ? [] : readAll(bookings, (described) => keyConditions(described, keys)),

    /** Throws `key_not_unique` or `key_null` if the key does not identify each booking of the window. */
    async requireKeys(bookings: BookingSource, window: Slice): Promise<void> {
      const rows = await collect(
        reader.select<BookingSource, { key: string | null; count: number }>(bookings, (described) => [
          `SELECT key, count(*)::int AS count FROM (SELECT ${keyExpression(described)} AS key
            FROM ${sourceSql.relation(bookings.source)} WHERE ${within(described, window)}) AS keys
          GROUP BY key HAVING count(*) > 1 OR key IS NULL LIMIT 5`,
        ]),
      );
      if (rows.some(({ key }) => key === null)) throw keyIsNull();
      if (rows.length > 0)
        throw new SlotsyncError(
          'key_not_unique',
          'reservations: the key is not unique: several bookings have the same key',
          { remedy: KEY_REMEDY, detail: rows.map(({ key }) => key).join(', ') },
        );
    },

    /** Returns external ids that several bookings have. Reads the whole source, unless the template rules them out. */
    async findShared(bookings: BookingSource): Promise<Set<string>> {
      const shared = await findShared('reservations', bookings);
      return new Set(shared.map(({ externalId }) => externalId));
    },
  };
}

function timesOf(bookings: Described<BookingSource>) {
  const { begin, end, timezone, types } = bookings;
  const [fault] = findFaults(bookings, types);
  if (fault !== undefined)
    throw new SlotsyncError('mirror_source', `reservations.${fault}`, { remedy: SOURCE_REMEDY });
  return { begin: instant(begin, types, timezone), end: instant(end, types, timezone) };
}

function computedFor(described: Described<BookingSource>) {
  const { begin, end } = timesOf(described);
  const isCancelled =
    described.cancelled === undefined ? 'false' : truth(described.cancelled, described.types);
  const id = sourceSql.externalIdExpression(described);
  const externalId = `CASE WHEN ${sourceSql.IS_TOO_LARGE} AND octet_length(${id}) <= ${MAX_ID_BYTES} THEN ${id} END`;
  return { begin: seconds(begin), end: seconds(end), isCancelled, externalId };
}

function within(bookings: Described<BookingSource>, { from, to, isFirst }: Slice): string {
  const { begin, end } = timesOf(bookings);
  const inside = `(${begin} >= to_timestamp(${from}) AND ${begin} < to_timestamp(${to}))`;
  return isFirst
    ? `(${inside} OR (${begin} < to_timestamp(${from}) AND ${end} > to_timestamp(${from})))`
    : inside;
}

/** Returns an SQL condition for bookings without a valid begin or end. */
function undated(described: Described<BookingSource>): string {
  const { begin, end } = timesOf(described);
  return `NOT (${[begin, end].map((time) => `coalesce(${isDated(time)}, false)`).join(' AND ')})`;
}

function findFaults(bookings: BookingSource, types: ColumnTypes): string[] {
  const { begin, end, cancelled, objects } = bookings;
  const others: readonly NamedColumn[] = [
    ['begin', begin],
    ['end', end],
    ...(cancelled === undefined ? [] : [['cancelled', cancelled] as const]),
    ...objects.flatMap(({ key }, at) => key.map((column) => [`objects.${at}.key`, column] as const)),
  ];
  const missing = findMissingColumns(bookings, others, types);
  if (missing.length > 0) return missing;
  const requireType = (place: string, column: string, fits: (type: string) => boolean, needed: string) => {
    const type = types.get(column) ?? '';
    if (fits(type)) return undefined;
    return `${place}: column ${column} is ${type}; ${needed} is needed (a query can convert the column)`;
  };
  return [
    requireType('begin', begin, sourceSql.isTimeType, 'a timestamp'),
    requireType('end', end, sourceSql.isTimeType, 'a timestamp'),
    cancelled && requireType('cancelled', cancelled, isTruth, 'a boolean, an integer or a time'),
  ].filter((fault) => fault !== undefined);
}

const isInteger = (type: string) => ['smallint', 'integer', 'bigint'].includes(type);
const isTruth = (type: string) => type === 'boolean' || isInteger(type) || sourceSql.isTimeType(type);

/** Returns an SQL condition that is true for a finite time whose year has four digits. */
const isDated = (time: string) => `${time} BETWEEN '0001-01-02' AND '9999-12-30'`;

/**
 * Returns SQL for a column as an instant. An invalid time without a zone becomes null, since conversion would fail.
 */
function instant(name: string, types: ColumnTypes, timezone: string): string {
  const value = column(name);
  if (types.get(name) === sourceSql.TIME_WITH_ZONE) return value;
  return `(CASE WHEN ${isDated(value)} THEN ${value}::timestamp AT TIME ZONE ${quoteLiteral(timezone)} END)`;
}

/** Returns SQL for whole seconds since 1970, as text. Null if the time is no valid date. */
function seconds(time: string): string {
  return `CASE WHEN ${isDated(time)} THEN floor(extract(epoch FROM ${time}))::bigint::text END`;
}

function truth(name: string, types: ColumnTypes): string {
  const value = column(name);
  const type = types.get(name) ?? '';
  if (type === 'boolean') return `coalesce(${value}, false)`;
  return isInteger(type) ? `coalesce(${value} <> 0, false)` : `(${value} IS NOT NULL)`;
}

function fromRow(bookings: BookingSource, { key, row, computed, bytes }: SourceRow): Booking {
  if (key === null) throw keyIsNull();
  const text = (value: unknown) => (typeof value === 'string' ? value : undefined);
  const milliseconds = (value: unknown) => (text(value) === undefined ? undefined : Number(value) * 1000);
  return toBooking(bookings, {
    row,
    key,
    begin: milliseconds(computed['begin']),
    end: milliseconds(computed['end']),
    isCancelled: computed['isCancelled'] === true,
    unread: bytes === undefined ? undefined : { externalId: text(computed['externalId']) },
  });
}

function keyIsNull(): SlotsyncError {
  const message = 'reservations: the key is null in some bookings';
  return new SlotsyncError('key_null', message, { remedy: KEY_REMEDY });
}
