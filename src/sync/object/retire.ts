// Handles deleted rows, in numbered steps from the plan to the PUT that makes the object inactive. A wrong deactivation
// takes an object away from people. So every step may stop it, and only the last step writes.
import type { Context } from '../../destination/client.js';
import type { FoundObject, ServiceObject, UpcomingReservation } from '../../destination/destination.js';
import type { State } from '../../state/database.js';
import type { ClaimedRecord } from '../../state/records/claims.js';
import { readLongGone } from '../../state/records/gone-rows.js';
import type { RecordKey } from '../../state/records/outcome-types.js';
import { wasSent } from '../../state/records/record-state.js';
import { hasUnsentWrites, type Batch } from '../../state/runs/batches.js';
import type { RunKind, RunRange } from '../../state/schema.js';
import type { Row } from '../../streams/config-schema.js';
import { createObject, hashObject, isSameObject } from '../../streams/destination-object.js';
import type { Stream } from '../../streams/stream.js';
import { isReadingFault } from '../../errors/errors.js';
import { mayBecome, readOtherOwners, whoHas } from '../identity/who-has.js';
import * as outcome from './decide-outcome.js';
import { deactivate } from './render.js';
import type { NoteOutcome, Write } from './decide-outcome.js';
import { timeOf, type SyncDeps } from '../run/sync-deps.js';

// Steps 1 and 2 belong to the plan.

/**
 * Step 1: Returns true if the run can tell that a row was deleted, because it reads the whole stream or single keys. In
 * a run over a part, a missing row may lie outside the part. A backfill never deactivates.
 */
export function maySeeGone({ kind, range }: { kind: RunKind; range: RunRange | null }): boolean {
  return range === null && kind !== 'backfill';
}

/** Step 2: Returns the deleted rows for which the stream's `graceDays` have passed. */
export async function chooseDue<T extends { key: string }>(
  { db }: State,
  stream: Stream,
  entries: readonly T[],
): Promise<readonly T[]> {
  if (stream.graceDays === 0 || entries.length === 0) return entries;
  const keys = entries.map(({ key }) => key);
  const due = await readLongGone(db, stream, keys);
  return entries.filter(({ key }) => due.has(key));
}

/** A date or time as PostgreSQL prints it, up to the year 9999. */
const TIME = /^(\d{4}-\d\d-\d\d(?: \d\d:\d\d:\d\d(?:\.\d+)?)?)(?:\+00)?$/;

/** Returns when a deleted row's `graceDays` begin. If undefined, they begin when a plan first misses the row. */
export function endOf({ graceDays }: Stream, row: Row | undefined): string | undefined {
  if (typeof graceDays !== 'object' || !row) return undefined;
  const [, time] = TIME.exec(String(row[graceDays.column])) ?? [];
  return time === undefined ? undefined : `${time} UTC`;
}

// Steps 3 (an empty source deactivates nothing) and 4 (a mass deactivation is held) are in limits/decide.ts.

// Steps 5 to 13 belong to a batch that has claimed the records. Records whose rows exist again do not come here.

/** Starts the deactivation of records whose rows were deleted. Settles records that have nothing to deactivate. */
export async function startRetirements(
  deps: SyncDeps,
  stream: Stream,
  { operation }: Batch,
  gone: readonly ClaimedRecord[],
  note: NoteOutcome,
): Promise<Write[]> {
  const retirements = gone.flatMap((record): Write[] => {
    const { externalId, sourceHash } = record;
    // Step 5: The service never had the object, so the record is deleted.
    if (!wasSent(record) || externalId === null) return note(outcome.forgotten(record));
    const object = createObject(externalId, stream.type, false, []);
    return [{ record, object, sourceHash: sourceHash ?? '0', objectHash: '', retires: true }];
  });
  // Step 6: Only records that a plan chose are deactivated. Otherwise a table that is just being reloaded would look
  // empty. A repair also repeats earlier deactivations.
  const isChosen = ({ record }: Write) =>
    stream.retire === 'deactivate' &&
    (operation === 'retire' || (record.resend === 'repair' && record.status === 'retired'));
  const others = retirements.filter((retirement) => !isChosen(retirement));
  for (const { record } of await leaveToRows(deps, others, note)) note(outcome.skipped(record));
  const chosen = retirements.filter(isChosen);
  // Step 7: Somebody may have changed the object's external id, so that another row has the object now.
  const numbered = chosen.map(({ record }) => ({ stream: stream.name, ...record }));
  const renamed = new Set((await readOtherOwners(deps, numbered)).map(({ localKey }) => localKey));
  return chosen.map((write) => ({ ...write, hasNumberOfRow: renamed.has(write.record.localKey) }));
}

/**
 * Returns the deactivations to write, and settles all other records. `found`: objects at the service, by external id.
 * Asks the service for reservations of the objects, unless the stream is configured to ignore them.
 */
export async function chooseRetirements(
  deps: SyncDeps,
  stream: Stream,
  read: {
    batch: Batch;
    retirements: readonly Write[];
    found: ReadonlyMap<string, ServiceObject>;
    /** Objects whose external id was changed or removed at the service, by the former external id. */
    renamed: ReadonlyMap<string, FoundObject>;
  },
  context: Context,
  note: NoteOutcome,
): Promise<Write[]> {
  const { batch, retirements, found, renamed } = read;
  const open = retirements.flatMap((retirement) => {
    const { record, object } = retirement;
    const standing = found.get(object.extId);
    // Step 8: An object of a type that the stream cannot have does not belong to this record.
    if (standing && !stream.objectTypes.has(standing.typeId))
      return note(outcome.externalIdTaken(retirement, standing.typeId));
    const elsewhere = renamed.get(object.extId);
    if (elsewhere) return note(outcome.externalIdChangedThere(retirement, elsewhere));
    // Step 9: There is no object to deactivate, or it belongs to another row, and no late write can create it. A
    // restored service may have assigned the record's number to another object.
    if (!standing || (retirement.hasNumberOfRow && standing.id === record.destinationId))
      return note(record.isCheckPending ? outcome.skipped(record) : outcome.forgotten(record));
    const inactive = deactivate(stream, standing);
    return [{ ...retirement, object: inactive, objectHash: hashObject(inactive), standing }];
  });
  // Step 10: The object may belong to a row of this stream whose create or update was not accepted yet.
  if (open.length > 0 && (await hasUnsentWrites(deps.state.db, batch))) {
    for (const retirement of open) note(outcome.retirementPostponed(retirement));
    return [];
  }
  // An earlier write without an answer may still make the object active.
  const mayBecomeActive = ({ inDoubt, isCheckPending }: ClaimedRecord) => inDoubt && isCheckPending;
  const isInactive = ({ standing, record, object }: (typeof open)[number]) =>
    !standing.active && isSameObject(object, standing) && !mayBecomeActive(record);
  const free = await deferReserved(deps, stream, open, isInactive, context, note);
  // Step 12: Checks once more that no row has the object now, since the requests may have taken long. The row's record
  // need not be accepted yet.
  const unowned = await leaveToRows(deps, free, note);
  return unowned.flatMap((write) =>
    // The object is already inactive, so nothing is sent.
    isInactive(write) ? note(outcome.unchanged(write, write.standing.id)) : [write],
  );
}

/**
 * Returns the deactivations whose objects no row has. If a row has the object, the record stays unchanged: the object
 * passes to that row when the row is written.
 */
async function leaveToRows<T extends Write>(
  deps: SyncDeps,
  retirements: readonly T[],
  note: NoteOutcome,
): Promise<T[]> {
  const extIds = retirements.map(({ object }) => object.extId);
  let holderOf: Awaited<ReturnType<typeof whoHas>>;
  try {
    holderOf = await whoHas(deps, extIds, { rows: 'all' });
  } catch (error) {
    if (!isReadingFault(error)) throw error;
    for (const { record } of retirements) note(outcome.unreadable(record, error));
    return [];
  }
  return retirements.filter(({ record, object }) => {
    const isTaken = ({ stream }: RecordKey) =>
      mayBecome(deps.destination, record, [object.typeId], deps.streams.get(stream));
    if (!holderOf(object.extId).rows.some(isTaken)) return true;
    note(outcome.skipped(record));
    return false;
  });
}

/**
 * Step 11: Postpones the deactivation of objects with future reservations, because people have booked them. Sends one
 * search for each type.
 */
async function deferReserved<T extends Write>(
  deps: SyncDeps,
  { objectTypes, unlessReserved }: Stream,
  retirements: readonly T[],
  isInactive: (retirement: T) => boolean,
  context: Context,
  note: NoteOutcome,
): Promise<readonly T[]> {
  const active = retirements.filter((retirement) => !isInactive(retirement)).map(({ object }) => object);
  if (!unlessReserved || active.length === 0) return retirements;
  const seconds = Math.floor((await timeOf(deps)) / 1000);
  const reservations = new Map<string, readonly UpcomingReservation[]>();
  for (const type of objectTypes) {
    const extIds = active.flatMap(({ extId, typeId }) => (typeId === type ? extId : []));
    const found = await deps.destination.findUpcomingReservations(type, extIds, seconds, context);
    for (const [extId, upcoming] of found) reservations.set(extId, upcoming);
  }
  const timeZone = (reservations.size > 0 && (await deps.timeZone?.())) || 'UTC';
  return retirements.filter((retirement) => {
    const upcoming = reservations.get(retirement.object.extId);
    if (upcoming) note(outcome.stillReserved(retirement, upcoming, timeZone));
    return !upcoming;
  });
}
