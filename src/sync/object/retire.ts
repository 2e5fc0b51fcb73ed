// Numbers the steps from a deleted row to the PUT that makes its object inactive. A wrong deactivation takes an object
// away from people, so every step may stop it, and only the last step writes.
import type { Context } from '../../destination/client.js';
import type { FoundObject, ServiceObject, UpcomingReservation } from '../../destination/destination.js';
import type { State } from '../../state/database.js';
import type { ClaimedRecord } from '../../state/records/claim-records.js';
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

// Steps of the plan.

/**
 * 1. Returns true if the run can see that a row was deleted: it covers the whole stream, or queries single keys. In a part of a stream, the
 * row may lie outside. A backfill deactivates nothing.
 */
export function maySeeGone({ kind, range }: { kind: RunKind; range: RunRange | null }): boolean {
  return range === null && kind !== 'backfill';
}

/** 2. Returns the entries whose rows have been missing for the stream's `graceDays`. */
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

/** A date or time as the mirror prints a column, up to the year 9999. */
const TIME = /^(\d{4}-\d\d-\d\d(?: \d\d:\d\d:\d\d(?:\.\d+)?)?)(?:\+00)?$/;

/** Time from which a deleted row's `graceDays` count. If undefined, they count from the first plan without the row. */
export function endOf({ graceDays }: Stream, row: Row | undefined): string | undefined {
  if (typeof graceDays !== 'object' || !row) return undefined;
  const [, time] = TIME.exec(String(row[graceDays.column])) ?? [];
  return time === undefined ? undefined : `${time} UTC`;
}

// Steps 3 (an empty source deactivates nothing) and 4 (a mass deactivation is held) are in limits/decide.ts.

// Steps of a batch, under its claim. Records whose rows are in the mirror again do not come here.

/** Returns a deactivation for each record whose row was deleted. Settles records with nothing to deactivate. */
export async function startRetirements(
  deps: SyncDeps,
  stream: Stream,
  { operation }: Batch,
  gone: readonly ClaimedRecord[],
  note: NoteOutcome,
): Promise<Write[]> {
  const retirements = gone.flatMap((record): Write[] => {
    const { externalId, sourceHash } = record;
    // 5. The service never had the object.
    if (!wasSent(record) || externalId === null) return note(outcome.forgotten(record));
    const object = createObject(externalId, stream.type, false, []);
    return [{ record, object, sourceHash: sourceHash ?? '0', objectHash: '', retires: true }];
  });
  // 6. Deactivates only records that a plan chose: the table may be empty while it is reloaded. A repair also deactivates
  // records again that were deactivated before.
  const isChosen = ({ record }: Write) =>
    stream.retire === 'deactivate' &&
    (operation === 'retire' || (record.resend === 'repair' && record.status === 'retired'));
  const others = retirements.filter((retirement) => !isChosen(retirement));
  for (const { record } of await leaveToRows(deps, others, note)) note(outcome.skipped(record));
  const chosen = retirements.filter(isChosen);
  // 7. The object may have a new external id at the service, with which it belongs to another row.
  const numbered = chosen.map(({ record }) => ({ stream: stream.name, ...record }));
  const renamed = new Set((await readOtherOwners(deps, numbered)).map(({ localKey }) => localKey));
  return chosen.map((write) => ({ ...write, hasNumberOfRow: renamed.has(write.record.localKey) }));
}

/**
 * Returns the deactivations to write, and settles the other records. `found`: the objects at the service, by external
 * id. Asks the service for reservations of active objects, unless the stream disables this check.
 */
export async function chooseRetirements(
  deps: SyncDeps,
  stream: Stream,
  read: {
    batch: Batch;
    retirements: readonly Write[];
    found: ReadonlyMap<string, ServiceObject>;
    /** Objects whose external id at the service was changed or removed, by their former external id. */
    renamed: ReadonlyMap<string, FoundObject>;
  },
  context: Context,
  note: NoteOutcome,
): Promise<Write[]> {
  const { batch, retirements, found, renamed } = read;
  const open = retirements.flatMap((retirement) => {
    const { record, object } = retirement;
    const standing = found.get(object.extId);
    // 8. An object of a type outside the stream does not belong to this record.
    if (standing && !stream.objectTypes.has(standing.typeId))
      return note(outcome.externalIdTaken(retirement, standing.typeId));
    const elsewhere = renamed.get(object.extId);
    if (elsewhere) return note(outcome.externalIdChangedThere(retirement, elsewhere));
    // 9. The object does not exist or belongs to another row, and no late write can create it. A restored service may have reused the
    // record's number for an object of another row.
    if (!standing || (retirement.hasNumberOfRow && standing.id === record.destinationId))
      return note(record.isCheckPending ? outcome.skipped(record) : outcome.forgotten(record));
    const inactive = deactivate(stream, standing);
    return [{ ...retirement, object: inactive, objectHash: hashObject(inactive), standing }];
  });
  // 10. A create or update of the stream that was not accepted may belong to the row that has the object now.
  if (open.length > 0 && (await hasUnsentWrites(deps.state.db, batch))) {
    for (const retirement of open) note(outcome.retirementPostponed(retirement));
    return [];
  }
  const isInactive = ({ standing, record, object }: (typeof open)[number]) =>
    !standing.active && isSameObject(object, standing) && !mayBecomeActive(record);
  const free = await deferReserved(deps, stream, open, isInactive, context, note);
  // 12. Checks once more, after slow requests, that no row of any stream has the object now. The row's record may still be
  // unaccepted.
  const unowned = await leaveToRows(deps, free, note);
  return unowned.flatMap((write) =>
    // 13. An object that is already inactive needs no write.
    isInactive(write) ? note(outcome.unchanged(write, write.standing.id)) : [write],
  );
}

/** True if a write whose answer was lost may still make the record's object active. */
function mayBecomeActive({ inDoubt, isCheckPending }: ClaimedRecord): boolean {
  return inDoubt && isCheckPending;
}

/**
 * Returns the deactivations whose objects belong to no row. Other records stay unchanged, because their objects pass to
 * the row's record when that row is written.
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
 * 11. Defers the deactivation of an object with future reservations until they are over. Sends one search per type for
 * the whole batch.
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
