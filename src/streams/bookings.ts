// Resolves the declaration of the mirror's bookings, and turns a row into a booking that can be compared with a
// reservation of the service. Pure: callers look up the external ids of the booked objects in the state.
import type { ParsedConfig, Row } from './config-schema.js';
import { ROW_LIMIT_MEGABYTES } from './source.js';
import { renderExternalId } from './external-id.js';
import type { Fault } from './config-schema.js';
import { guardColumns, readField, referencedKeys } from './map-row.js';
import type { FieldValues } from './destination-object.js';
import { resolveDeclared, resolveReference, type DeclaredSource, type Stream } from './stream.js';

/** The source of the bookings in the mirror, with the columns and the mapping for reading a row. */
export interface BookingSource extends DeclaredSource {
  begin: string;
  end: string;
  /** Time zone of begin and end times that have no zone in the mirror. */
  timezone: string;
  cancelled: string | undefined;
  objects: readonly { stream: string; key: readonly string[] }[];
}

export interface CompareRules {
  /** Types of the streams that bookings refer to. The comparison ignores a reservation's objects of other types. */
  types: ReadonlySet<string>;
  /** Ids of the reservation fields that are compared. */
  fields: readonly string[];
  /** Statuses of a reservation that agree with a booking that is not cancelled. */
  status: ReadonlySet<string>;
}

type Declaration = NonNullable<ParsedConfig['reservations']>;

export interface ReservationConfig extends Pick<Declaration, 'window' | 'everyMinutes'> {
  /** If undefined, the service's reservations are only stored in the state, and not compared with bookings. */
  bookings: BookingSource | undefined;
  rules: CompareRules;
}

/** Reasons why a booking cannot agree with any reservation. */
const PROBLEMS = {
  no_begin_or_end: 'it has no begin or no end in the mirror',
  ends_before_begin: 'its end is not after its begin in the mirror',
  external_id_empty: 'a column of its external id is empty in the mirror',
  external_id_shared: 'another booking of the mirror has the same external id',
  reservation_shared:
    'several reservations have its external id at the service: it is compared with the oldest of them',
  object_unknown: 'it books a record without a row in the mirror, or one that the service has not accepted',
  not_mappable: 'a column or function of its mapping failed',
  row_too_large: `its row is larger than ${ROW_LIMIT_MEGABYTES} MB in the mirror: neither its objects nor its fields are read`,
} as const;
export type BookingProblem = keyof typeof PROBLEMS;

/** A booking of the mirror. Times are milliseconds since 1970, in whole seconds. */
export interface Booking {
  key: string;
  externalId: string | undefined;
  begin: number | undefined;
  end: number | undefined;
  isCancelled: boolean;
  references: readonly { stream: string; localKey: string }[];
  fields: readonly FieldValues[];
  problem: BookingProblem | undefined;
}

/** A row of the mirror with values computed by SQL. `unread` is set if the row is too large to read. */
export type RawBooking = Pick<Booking, 'key' | 'begin' | 'end' | 'isCancelled'> & {
  row: Row;
  unread: Pick<Booking, 'externalId'> | undefined;
};

/** Used without a `reservations` section. The service's reservations are stored and compared with nothing. */
export const NO_RESERVATIONS: ReservationConfig = {
  bookings: undefined,
  rules: { types: new Set(), fields: [], status: new Set() },
  window: { pastDays: 7, futureDays: 180 },
  everyMinutes: 0,
};

export function resolveReservations(
  declaration: Declaration,
  streams: readonly Stream[],
  surroundings: Parameters<typeof resolveDeclared>[2],
  faults: Fault[],
): ReservationConfig {
  const { window, everyMinutes, status, fields, from, key, rowSecurity, externalId, begin, end } =
    declaration;
  const known = new Map(streams.map((stream) => [stream.name, stream.key]));
  const objects = declaration.objects.map((reference, at) =>
    resolveReference(reference, `reservations.objects.${at}`, { known }, faults),
  );
  const booked = new Set(objects.map(({ stream }) => stream));
  const rules = {
    types: new Set(streams.flatMap(({ name, objectTypes }) => (booked.has(name) ? [...objectTypes] : []))),
    fields: Object.keys(fields).sort(),
    status: new Set(status),
  };
  const config = { bookings: undefined, rules, window, everyMinutes };
  // The schema accepts only all five keys or no key.
  if (!from || !key || !externalId || !begin || !end) return config;
  const { timezone, cancelled } = declaration;
  const rowLimitMegabytes = ROW_LIMIT_MEGABYTES;
  const declared = { from, key, rowSecurity, externalId, fields, rowLimitMegabytes };
  const source = resolveDeclared(declared, 'reservations', surroundings, faults);
  return { ...config, bookings: { ...source, begin, end, timezone, cancelled, objects } };
}

/** Converts a row to a booking. Never throws: a value that cannot be read sets the `problem` of the booking. */
export function toBooking(source: BookingSource, { row, unread, ...computed }: RawBooking): Booking {
  if (unread) return { ...computed, ...unread, references: [], fields: [], problem: 'row_too_large' };
  const { begin, end } = computed;
  const guarded = guardColumns(row);
  let problem: BookingProblem | undefined;
  const attempt = <T>(otherwise: T, failure: BookingProblem, run: () => T): T => {
    try {
      return run();
    } catch {
      problem ??= failure;
      return otherwise;
    }
  };
  if (begin === undefined || end === undefined) problem = 'no_begin_or_end';
  else if (end <= begin) problem = 'ends_before_begin';
  const externalId = attempt(undefined, 'external_id_empty', () =>
    renderExternalId(source.externalId, guarded),
  );
  const references = attempt([], 'not_mappable', () =>
    source.objects.flatMap(({ stream, key: columns }) =>
      referencedKeys(guarded, columns).map((localKey) => ({ stream, localKey })),
    ),
  );
  const fields = attempt([], 'not_mappable', () =>
    [...source.fields].map(([fieldId, from]) => ({
      fieldId,
      values: readField(from, guarded, source.lookups),
    })),
  );
  return { ...computed, externalId, references, fields, problem };
}

export function describeProblem(problem: string): string {
  return PROBLEMS[problem as BookingProblem] ?? problem;
}
