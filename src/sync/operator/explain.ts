// Collects all facts about one record or booking from mirror, service and state. Writes nothing. An operator names the
// record by its key, by the parts of a composite key, by its object's external id, or by the object's number.
import type {
  ServiceObject,
  Found,
  ReservationSelection,
  FoundObject,
} from '../../destination/destination.js';
import { refusedContent } from '../../destination/http-errors.js';
import type { State } from '../../state/database.js';
import { readPlanMarks } from '../../state/records/read/plan-marks.js';
import { readKnown, readRecordKeys } from '../../state/records/read/record-details.js';
import { readWaiting } from '../../state/records/read/waiting-chains.js';
import { templateColumns } from '../../streams/external-id.js';
import type { Row, StreamOperation } from '../../streams/config-schema.js';
import type { MirrorRow } from '../../mirror/mirror.js';
import { diffObjects, hashObject, type FieldChange } from '../../streams/destination-object.js';
import { differingOf } from '../../streams/field-rules.js';
import { sends, type Stream } from '../../streams/stream.js';
import { externalIdOfRow } from '../identity/row-ids.js';
import { decideOperation, parseMark, type Mark } from '../object/decide-operation.js';
import { deactivate, describeMissing, mergeWithService, renderRows } from '../object/render.js';
import type { SyncDeps } from '../run/sync-deps.js';
import type { Context } from '../../destination/client.js';
import { readBooking, readBookingEvents } from '../../state/bookings/read-reservations.js';
import type { ReservationConfig } from '../../streams/bookings.js';
import { UsageError } from '../../errors/errors.js';
import { listKeysByNumber } from '../../state/records/read/owners.js';
import { keyOf } from '../../streams/external-id-rule.js';
import { joinKey, shortenKey } from '../../streams/local-key.js';
import { whoHas } from '../identity/who-has.js';

/** `signal`: aborted when the client has disconnected. */
export type ExplainDeps = Pick<SyncDeps, 'mirror' | 'destination' | 'state'> & { signal?: AbortSignal };

export type RecordExplained = Awaited<ReturnType<typeof explainRecord>>;

const CONTEXT = { lane: 'incremental' } as const;
const MOST_LISTED = 5;

/** Explains a record: its row, the object made from it, and the object at the service. `isWhole`: all columns. */
export async function explainRecord(
  { mirror, destination, state, signal }: ExplainDeps,
  stream: Stream,
  key: string,
  { isWhole = false } = {},
) {
  const { rows, unreadable } = await mirror.readRows(stream, [key]);
  for (const reason of unreadable.values()) throw reason;
  const found = rows.get(key);
  let rowCount = 0;
  for await (const lines of mirror.readHashes(stream, { keys: [key] })) rowCount += lines.length;
  const known = await readKnown(state.db, stream.name, key, MOST_LISTED);
  const { record, link, former } = known;
  const { columns, watched } = watchColumns(stream, rows);
  const rendered = (await renderRows(state, stream, watched)).get(key);
  const all = Object.entries(found?.row ?? {});
  const shown = all.filter(([column]) => isWhole || columns.has(column));
  const object = rendered && 'object' in rendered ? rendered.object : undefined;
  const missing = rendered && 'missing' in rendered ? describeMissing(rendered.missing) : undefined;
  const externalId =
    object?.extId ??
    link?.externalId ??
    record?.externalId ??
    record?.rowExternalId ??
    (found && externalIdOfRow(stream, found.row)) ??
    undefined;
  const wanted = [externalId, ...former.map((kept) => kept.externalId)].filter(
    (id) => typeof id === 'string',
  );
  const standing: ReadonlyMap<string, ServiceObject> =
    wanted.length === 0
      ? new Map()
      : await destination.findObjects(wanted, stream.type, { ...CONTEXT, signal });
  const there = externalId === undefined ? undefined : standing.get(externalId);
  const decision = decideOperation(found?.hash, await readMark(state, stream.name, key));
  const retired = decision === 'retire' && stream.retire === 'deactivate' && there;
  const merged = object && mergeWithService(stream, object, there, record?.acceptedFields);
  const written = merged?.object ?? (retired && deactivate(stream, retired));
  const changes = written ? diffObjects(there, written) : [];
  return {
    ...known,
    /** Columns of the row. Columns that the mapping does not read may hold personal data, and are hidden. */
    row: found && Object.fromEntries(shown),
    hiddenColumns: all.length - shown.length,
    readFrom: describeSource(stream),
    /** Number of further rows with the same key. */
    repetitions: Math.max(0, rowCount - 1),
    object,
    /** Why no object can be made from the row. */
    problem: rendered && 'problem' in rendered ? rendered.problem : missing,
    /** True if the row refers to a record that is not at the service yet, and has no other problem. */
    isWaiting: missing !== undefined,
    /** External id of the record's object. If undefined, the service was not asked about an object. */
    externalId,
    there,
    /** Objects that the record owned before its external id changed. */
    former: former.map(({ externalId: id, isUndecided }) => ({
      externalId: id,
      there: standing.get(id),
      isUndecided,
    })),
    /** Changes that a write would make at the service, by field. */
    changes,
    /** Fields that differ, but whose values at the service the field rules keep. */
    kept: differingOf(merged?.kept ?? []),
    /** Operation that a write would need, but that the stream's `operations` exclude. */
    leftOut: object && findLeftOut(stream, { there, changes, isMatched: !record && !link && !!stream.match }),
    /** True if the object made from the row equals the object that was accepted last. */
    isAccepted: object !== undefined && record?.objectHash === hashObject(object),
    /** Operation that the next plan chooses for the record. */
    decision,
  };
}

/** Returns the excluded operation that a write would need. `isMatched`: the next run searches by values. */
function findLeftOut(
  stream: Stream,
  row: { there: ServiceObject | undefined; changes: readonly FieldChange[]; isMatched: boolean },
): StreamOperation | undefined {
  const { there, changes, isMatched } = row;
  if (!there) return isMatched || sends(stream, 'create') ? undefined : 'create';
  return changes.length > 0 && !sends(stream, 'update') ? 'update' : undefined;
}

/** Wraps rows to record which columns the mapping reads. Returns the rows and these columns. */
function watchColumns({ key, externalId, fields, graceDays }: Stream, rows: ReadonlyMap<string, MirrorRow>) {
  const declared = [...fields.values()].map((from) => (typeof from === 'object' ? from.column : from));
  const ends = typeof graceDays === 'object' ? [graceDays.column] : [];
  const columns = new Set<unknown>([...key, ...templateColumns(externalId), ...declared, ...ends]);
  const get = (row: Row, column: string) => {
    columns.add(column);
    return row[column];
  };
  const watched = new Map([...rows].map(([name, { row }]) => [name, { row: new Proxy(row, { get }) }]));
  return { columns, watched };
}

/** Returns for example `campus.rooms, by its key room_code`. */
function describeSource({ name, source, key }: Stream): string {
  const from = 'table' in source ? source.table.join('.') : `the query in streams.${name}.from`;
  return `${from}, by its key ${key.join(', ')}`;
}

async function readMark(state: State, stream: string, key: string): Promise<Mark | undefined> {
  for await (const [line] of readPlanMarks(state, stream, [key]))
    if (line !== undefined) return parseMark(line.slice(line.indexOf('\t') + 1));
  return undefined;
}

const MOST_EVENTS = 20;

export type BookingExplained = Awaited<ReturnType<typeof explainBooking>>;

/** Explains a booking. `name`: its key, its external id, or the service's number of its reservation. */
export async function explainBooking(
  { mirror, destination, state, signal }: ExplainDeps,
  { bookings }: ReservationConfig,
  name: string,
) {
  const known = await readBooking(state.db, name);
  const key = known?.key ?? name;
  const [here] = await mirror.bookings.readByKeys(bookings, [key]);
  const extId = here?.externalId ?? known?.externalId ?? undefined;
  const id = known?.destinationId ?? undefined;

  const requests: { asked: string; results: number }[] = [];
  const ask = async <B extends { id: string }>(
    what: string,
    find: (selection: ReservationSelection, context: Context) => Promise<Found<B>>,
    selections: readonly ReservationSelection[],
  ): Promise<B[]> => {
    const found = new Map<string, B>();
    for (const selection of selections) {
      const { results } = await find(selection, { ...CONTEXT, signal });
      requests.push({ asked: `${what} by ${JSON.stringify(selection)}`, results: results.length });
      for (const one of results) found.set(one.id, one);
    }
    return [...found.values()];
  };
  const byName = extId === undefined ? [] : [{ extIds: [extId] }];
  const byNumber = id === undefined ? [] : [{ ids: [id] }];
  const reservations = await ask('reservations', destination.findReservations, [...byName, ...byNumber]);
  const when = here?.begin ?? known?.beginThere?.getTime();
  const from = Math.floor((when ?? 0) / 1000);
  const around = when === undefined || reservations.length > 0 ? [] : [{ window: { from, to: from + 1 } }];
  const cancellations = await ask('cancellations', destination.findCancellations, [...byName, ...around]);
  return {
    key,
    /** Booking in the mirror. Undefined if the mirror has no booking with this key. */
    here,
    reservations,
    cancellations: cancellations.filter(
      (one) => (extId !== undefined && one.extId === extId) || (id !== undefined && one.reservationId === id),
    ),
    known,
    /** Events of the booking, latest first. */
    events: await readBookingEvents(state.db, key, MOST_EVENTS),
    /** Requests sent to the service, each with the number of results. */
    requests,
  };
}

type NameDeps = Pick<SyncDeps, 'mirror' | 'destination' | 'state' | 'streams'>;

/**
 * `key`: key of a row or record. `object`: an object at the service that has no record or row in the stream. Undefined
 * if nothing has the given name.
 */
type NamedRecord = { key: string } | { object: FoundObject } | undefined;

/**
 * Finds the record that an operator has named. Tries keys first, even keys that only appear in references, because a
 * key may look like a number or an external id. Throws UsageError if a composite key has the wrong number of parts.
 */
export async function findRecordByName(
  deps: NameDeps,
  stream: Stream,
  parts: readonly string[],
): Promise<NamedRecord> {
  const [only = ''] = parts;
  if (parts.length > 1 && parts.length !== stream.key.length) {
    throw new UsageError(`a key of ${stream.name} has ${stream.key.length} parts, not ${parts.length}`, {
      remedy: `Name one value for each of: ${stream.key.join(', ')}.`,
    });
  }
  const key = parts.length === 1 ? only : joinKey(parts);
  if (await isKey(deps, stream, shortenKey(key))) return { key: shortenKey(key) };
  if (parts.length > 1) return undefined;
  return (await findByExternalId(deps, stream, only)) ?? findByNumber(deps, stream, only);
}

async function isKey(
  { mirror, state }: NameDeps,
  { name, ...stream }: Stream,
  key: string,
): Promise<boolean> {
  const known = await readRecordKeys(state.db, name, [key]);
  if (known.size > 0) return true;
  if ((await readWaiting(state.db, { stream: name, localKey: key })).length > 0) return true;
  const { rows, unreadable } = await mirror.readRows({ name, ...stream }, [key]);
  return rows.size + unreadable.size > 0;
}

async function findByExternalId(deps: NameDeps, stream: Stream, named: string): Promise<NamedRecord> {
  const extId = keyOf(stream.externalId.rule, named);
  const { record, link, rows } = (await whoHas(deps, [extId], { rows: 'all' }))(extId);
  // A former object's record has a reserved key. `formerKey` is the key of the record that owned the object.
  const ownRecord = record && { ...record, localKey: record.formerKey ?? record.localKey };
  const owner = [ownRecord, link, ...rows].find((holder) => holder?.stream === stream.name);
  if (owner) return { key: owner.localKey };
  const object = (await deps.destination.findObjects([extId], stream.type, CONTEXT)).get(extId);
  return object && { object };
}

async function findByNumber(deps: NameDeps, stream: Stream, named: string): Promise<NamedRecord> {
  const number = named.startsWith('#') ? named.slice(1) : named;
  const [key] = await listKeysByNumber(deps.state.db, stream.name, number);
  if (key !== undefined) return { key };
  if (number === named && !/^\d+$/.test(named)) return undefined;
  const object = await readByNumber(deps, stream, number);
  if (object?.extId === undefined) return object && { object };
  return (await findByExternalId(deps, stream, object.extId)) ?? { object };
}

/** Returns the object with this number. If the service refuses the text as a number, there is no such object. */
async function readByNumber({ destination }: NameDeps, stream: Stream, number: string) {
  try {
    return (await destination.findObjectsByNumber([number], stream.type, CONTEXT)).get(number);
  } catch (error) {
    if (refusedContent(error)) return undefined;
    throw error;
  }
}
