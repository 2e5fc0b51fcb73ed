// Collects everything about one record or booking from mirror, service and state, and writes nothing. An operator names
// the record by its key, the parts of a composite key, its object's external id, or the service's number of the object.
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

/** `signal`: aborts when the client that asked has disconnected. */
export type ExplainDeps = Pick<SyncDeps, 'mirror' | 'destination' | 'state'> & { signal?: AbortSignal };

export type RecordExplained = Awaited<ReturnType<typeof explainRecord>>;

const CONTEXT = { lane: 'incremental' } as const;
const MOST_LISTED = 5;

/** Explains a record: row, rendered object, and object at the service. `isWhole`: shows all columns of the row. */
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
    /** Mirror row, if any. Columns that the mapping does not read may hold personal data, and are hidden. */
    row: found && Object.fromEntries(shown),
    hiddenColumns: all.length - shown.length,
    readFrom: describeSource(stream),
    /** Number of further rows with the same key. */
    repetitions: Math.max(0, rowCount - 1),
    object,
    /** Reason why no object can be rendered from the row now. */
    problem: rendered && 'problem' in rendered ? rendered.problem : missing,
    /** True if the only reason is a reference to a record that is not at the service yet. */
    isWaiting: missing !== undefined,
    /** If undefined, the row has no external id, and the service was not asked. */
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
    /** Operation that the write would need, but that the stream's `operations` exclude. */
    leftOut: object && findLeftOut(stream, { there, changes, isMatched: !record && !link && !!stream.match }),
    /** True if the rendered object equals the object that was accepted last. */
    isAccepted: object !== undefined && record?.objectHash === hashObject(object),
    /** Decision that the next plan makes about the record. */
    decision,
  };
}

/** Returns the operation that `operations` exclude. `isMatched`: the next run searches for an object by values. */
function findLeftOut(
  stream: Stream,
  row: { there: ServiceObject | undefined; changes: readonly FieldChange[]; isMatched: boolean },
): StreamOperation | undefined {
  const { there, changes, isMatched } = row;
  if (!there) return isMatched || sends(stream, 'create') ? undefined : 'create';
  return changes.length > 0 && !sends(stream, 'update') ? 'update' : undefined;
}

/** Returns the rows, and the columns that the mapping reads: declared ones, and those that functions access. */
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

/** Explains a booking: its reservations and cancellations. `name`: its key, external id, or the service's number. */
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
    /** Booking in the mirror. Undefined if no booking has this key. */
    here,
    reservations,
    cancellations: cancellations.filter(
      (one) => (extId !== undefined && one.extId === extId) || (id !== undefined && one.reservationId === id),
    ),
    known,
    /** Events of the booking, latest first. */
    events: await readBookingEvents(state.db, key, MOST_EVENTS),
    /** Requests to the service, with the number of results of each. */
    requests,
  };
}

type NameDeps = Pick<SyncDeps, 'mirror' | 'destination' | 'state' | 'streams'>;

/**
 * `key`: a row or record of the stream. `object`: an object at the service that nobody in the stream owns. Undefined if
 * nothing has the name.
 */
type NamedRecord = { key: string } | { object: FoundObject } | undefined;

/**
 * Finds the record that an operator named. A key takes precedence, even a key that only other records wait for. So a
 * key that looks like a number or an external id is a key. Throws UsageError if the number of parts is wrong.
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
  // The record of a former object belongs to the key that owned the object before.
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

/** Returns the object with this number. A service with numeric ids may refuse other text; then there is no object. */
async function readByNumber({ destination }: NameDeps, stream: Stream, number: string) {
  try {
    return (await destination.findObjectsByNumber([number], stream.type, CONTEXT)).get(number);
  } catch (error) {
    if (refusedContent(error)) return undefined;
    throw error;
  }
}
