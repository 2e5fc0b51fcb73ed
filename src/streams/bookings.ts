// Bookings as the configuration declares them, and one of them as both sides are compared: our row becomes what a
// reservation at the service is made of. Pure; the objects' external ids are looked up by whoever knows the state.
import { messageOf } from '../errors.js';
import type { FieldFunction, ParsedConfig, Row } from './config-schema.js';
import { parseTemplate, renderExternalId, type ExternalIdTemplate } from './external-id.js';
import type { Fault } from './config-faults.js';
import { guardColumns, referencedKeys } from './map-row.js';
import type { FieldValues } from './destination-object.js';
import { parseTable, toList, type Source, type Stream } from './stream.js';
import { toValues } from './field-values.js';

/** Where the bookings are here, and how a row of theirs is read. */
export interface BookingSource {
  source: Source;
  key: readonly string[];
  externalId: ExternalIdTemplate;
  begin: string;
  end: string;
  /** For times without a zone. */
  timezone: string;
  cancelled: string | undefined;
  objects: readonly { stream: string; key: readonly string[] }[];
  fields: ReadonlyMap<string, string | FieldFunction>;
}

/** What of a reservation there is compared, and what makes it agree. */
export interface CompareRules {
  /** Types of the objects the bookings name; of others the bookings say nothing. */
  types: ReadonlySet<string>;
  /** Field ids. */
  fields: readonly string[];
  /** Statuses in which it agrees. */
  status: ReadonlySet<string>;
}

export interface ReservationConfig {
  /** Undefined: the service's are kept in the state and compared with nothing. */
  bookings: BookingSource | undefined;
  rules: CompareRules;
  window: { pastDays: number; futureDays: number };
  everyMinutes: number;
}

/** What is wrong with a booking here, so that it can't agree with anything. */
export type BookingProblem =
  | 'no_begin_or_end'
  | 'ends_before_begin'
  | 'external_id_empty'
  | 'external_id_shared'
  | 'object_unknown'
  | 'not_mappable';

/** One booking here. Times in milliseconds since 1970, whole seconds. */
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

/** A row of the mirror, with what SQL has worked out of it. */
export interface RawBooking {
  row: Row;
  key: string;
  begin: number | undefined;
  end: number | undefined;
  isCancelled: boolean;
}

/** When no reservations are configured: what stands there is kept, and nothing compared. */
export const NO_RESERVATIONS: ReservationConfig = {
  bookings: undefined,
  rules: { types: new Set(), fields: [], status: new Set() },
  window: { pastDays: 7, futureDays: 180 },
  everyMinutes: 0,
};

/** Resolves the declaration; what is wrong is added to `faults`. */
export function resolveReservations(
  declaration: NonNullable<ParsedConfig['reservations']>,
  streams: readonly Stream[],
  faults: Fault[],
): ReservationConfig {
  const byName = new Map(streams.map((stream) => [stream.name, stream]));
  declaration.objects.forEach(({ stream, key }, at) => {
    const target = byName.get(stream);
    const path = `reservations.objects.${at}`;
    if (!target) {
      const known = [...byName.keys()].join(', ');
      faults.push({ path: `${path}.stream`, message: `no stream '${stream}'; there are: ${known}` });
    } else if (target.key.length !== toList(key).length) {
      faults.push({
        path: `${path}.key`,
        message: `name one column for each key column of ${stream} (${target.key.join(', ')})`,
      });
    }
  });
  try {
    Intl.DateTimeFormat('en', { timeZone: declaration.timezone });
  } catch {
    const message = `'${declaration.timezone}' is not a time zone; write one such as 'Europe/Stockholm'`;
    faults.push({ path: 'reservations.timezone', message });
  }
  const { window, everyMinutes, status, fields, objects } = declaration;
  return {
    bookings: resolveBookings(declaration, faults),
    rules: {
      types: new Set(objects.flatMap(({ stream }) => byName.get(stream)?.type ?? [])),
      fields: Object.keys(fields).sort(),
      status: new Set(status),
    },
    window,
    everyMinutes,
  };
}

function resolveBookings(
  declaration: NonNullable<ParsedConfig['reservations']>,
  faults: Fault[],
): BookingSource | undefined {
  const { from, key, externalId, begin, end, timezone, cancelled, objects, fields } = declaration;
  // All of them or none: the file's check sees to it.
  if (
    from === undefined ||
    key === undefined ||
    externalId === undefined ||
    begin === undefined ||
    end === undefined
  )
    return undefined;
  const source = typeof from === 'string' ? parseTable(from) : from;
  if (typeof source === 'string') faults.push({ path: 'reservations.from', message: source });
  const template = parseTemplate(externalId);
  if (typeof template === 'string') faults.push({ path: 'reservations.externalId', message: template });
  if (typeof source === 'string' || typeof template === 'string') return undefined;
  return {
    source,
    key: toList(key),
    externalId: template,
    begin,
    end,
    timezone,
    cancelled,
    objects: objects.map((object) => ({ stream: object.stream, key: toList(object.key) })),
    fields: new Map(Object.entries(fields)),
  };
}

/** A row as a booking. Never throws: what cannot be read of it is its problem. */
export function toBooking(source: BookingSource, { row, key, begin, end, isCancelled }: RawBooking): Booking {
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
    source.objects.flatMap((object) =>
      referencedKeys(guarded, object.key).map((localKey) => ({ stream: object.stream, localKey })),
    ),
  );
  const fields = attempt([], 'not_mappable', () =>
    [...source.fields].map(([fieldId, from]) => ({
      fieldId,
      values: toValues(typeof from === 'function' ? from(guarded) : guarded[from]),
    })),
  );
  return { key, externalId, begin, end, isCancelled, references, fields, problem };
}

/** What is wrong with a booking, in words. */
export function describeProblem(problem: string): string {
  switch (problem as BookingProblem) {
    case 'no_begin_or_end':
      return 'it has no begin or no end here';
    case 'ends_before_begin':
      return 'its end is not after its begin here';
    case 'external_id_empty':
      return 'a column of its external id is empty here';
    case 'external_id_shared':
      return 'another booking here has the same external id';
    case 'object_unknown':
      return 'it books a record the service has not accepted, or that no stream has: sync it first';
    case 'not_mappable':
      return 'a column or function of its mapping failed';
    default:
      return messageOf(problem);
  }
}
