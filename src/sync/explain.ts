// Everything about one record, or one booking, side by side: what stands here, what stands there, what is known and
// what was asked. Reads on all sides and writes nothing.
import type {
  ReservationSelection,
  Cancellation,
  Destination,
  ServiceObject,
  Reservation,
} from '../destination/destination.js';
import { messageOf } from '../errors.js';
import type { Mirror } from '../mirror/mirror.js';
import type { State } from '../state/database.js';
import {
  countChangesOf,
  listBatchesOf,
  readRecord,
  type RecordBatch,
  type RecordRow,
} from '../state/records/record-history.js';
import { readExternalIds } from '../state/records/records.js';
import {
  readBooking,
  readBookingEvents,
  type ReservationEvent,
  type ReservationRow,
} from '../state/bookings/reservations.js';
import type { Row } from '../streams/config-schema.js';
import { mapRow, toObject } from '../streams/map-row.js';
import {
  diffObjects,
  hashObject,
  mergeObject,
  type DestinationObject,
  type FieldChange,
} from '../streams/destination-object.js';
import type { Booking, ReservationConfig } from '../streams/bookings.js';
import type { Stream } from '../streams/stream.js';
import { resultsOf } from './reconcile/match-bookings.js';

export interface ExplainDeps {
  mirror: Mirror;
  destination: Destination;
  state: State;
}

export interface RecordExplained {
  stream: string;
  key: string;
  /** Undefined: there is no such row. */
  row: Row | undefined;
  object: DestinationObject | undefined;
  /** Why the row does not become an object now. */
  problem: string | undefined;
  record: RecordRow | undefined;
  there: ServiceObject | undefined;
  /** What a write would change there, field by field. */
  changes: FieldChange[];
  /** Whether the object is the one that was accepted last. */
  isAccepted: boolean;
  batches: RecordBatch[];
  /** Times it stands in the inbox. */
  waitingChanges: number;
}

const CONTEXT = { lane: 'incremental' } as const;
const MOST_BATCHES = 5;
const MOST_EVENTS = 20;

/** Explains one record of a stream. Throws what the three sides throw. */
export async function explainRecord(
  { mirror, destination, state }: ExplainDeps,
  stream: Stream,
  key: string,
): Promise<RecordExplained> {
  const row = (await mirror.readRows(stream, [key])).get(key)?.row;
  const record = await readRecord(state.db, stream.name, key);
  const { object, problem } = row ? await mapNow(state, stream, row) : {};
  const externalId = object?.extId ?? record?.externalId ?? undefined;
  const there =
    externalId === undefined
      ? undefined
      : (await destination.findObjects([externalId], stream.type, CONTEXT)).get(externalId);
  const whole = object && (stream.owns === 'object' ? object : mergeObject(object, there, stream.owned));
  return {
    stream: stream.name,
    key,
    row,
    object,
    problem,
    record,
    there,
    changes: whole ? diffObjects(there, whole) : [],
    isAccepted: object !== undefined && record?.objectHash === hashObject(object),
    batches: await listBatchesOf(state.db, stream.name, key, MOST_BATCHES),
    waitingChanges: await countChangesOf(state.db, stream.name, key),
  };
}

async function mapNow(
  { db }: State,
  stream: Stream,
  row: Row,
): Promise<{ object?: DestinationObject; problem?: string }> {
  try {
    const mapped = mapRow(stream, row);
    const result = toObject(stream, mapped, await readExternalIds(db, mapped.references));
    if ('object' in result) return { object: result.object };
    const { fieldId, stream: parent, localKey } = result.missing;
    return { problem: `${fieldId} refers to ${parent} '${localKey}', which is not at the service yet` };
  } catch (error) {
    return { problem: messageOf(error) };
  }
}

export interface BookingExplained {
  key: string;
  /** Undefined: no booking with this key is here. */
  here: Booking | undefined;
  reservations: Reservation[];
  cancellations: Cancellation[];
  known: ReservationRow | undefined;
  /** Latest first. */
  events: ReservationEvent[];
  /** What was asked of the service, and how much it answered. */
  requests: { asked: string; results: number }[];
}

/** Explains one booking, named by its key, its external id, or the service's number. */
export async function explainBooking(
  { mirror, destination, state }: ExplainDeps,
  { bookings }: ReservationConfig,
  name: string,
): Promise<BookingExplained> {
  const known = await readBooking(state.db, name);
  const key = known?.key ?? name;
  const [here] = bookings ? await mirror.bookings.readByKeys(bookings, [key]) : [];
  const extId = here?.externalId ?? known?.externalId ?? undefined;
  const id = known?.destinationId ?? undefined;

  const requests: BookingExplained['requests'] = [];
  const ask = async <B extends { id: number }>(
    find: 'reservations' | 'cancellations',
    by: (selection: ReservationSelection) => Promise<B[]>,
    selections: readonly ReservationSelection[],
  ): Promise<B[]> => {
    const found = new Map<number, B>();
    for (const selection of selections) {
      const results = await by(selection);
      requests.push({ asked: `${find} by ${JSON.stringify(selection)}`, results: results.length });
      for (const one of results) found.set(one.id, one);
    }
    return [...found.values()];
  };
  const byName: ReservationSelection[] = extId === undefined ? [] : [{ extIds: [extId] }];
  const byNumber: ReservationSelection[] = id === undefined ? [] : [{ ids: [id] }];
  const reservations = await ask(
    'reservations',
    async (selection) => resultsOf(await destination.findReservations(selection, CONTEXT)),
    [...byName, ...byNumber],
  );
  const when = here?.begin ?? (known?.beginThere ? Date.parse(known.beginThere) : undefined);
  const around: ReservationSelection[] =
    when === undefined || reservations.length > 0
      ? []
      : [{ window: { from: Math.floor(when / 1000), to: Math.floor(when / 1000) + 1 } }];
  const cancellations = await ask(
    'cancellations',
    async (selection) => resultsOf(await destination.findCancellations(selection, CONTEXT)),
    [...byName, ...around],
  );
  return {
    key,
    here,
    reservations,
    cancellations: cancellations.filter(
      (one) => (extId !== undefined && one.extId === extId) || (id !== undefined && one.reservationId === id),
    ),
    known,
    events: await readBookingEvents(state.db, key, MOST_EVENTS),
    requests,
  };
}
