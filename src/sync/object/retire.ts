// Everything between a row that is gone and the PUT that makes its object inactive, in order. Retirement is the one
// operation that takes something away from people, so every step may stop it and only the last one writes.
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

// While planning.

/**
 * 1. Only a stream that says so retires, and only a whole sync. That a row is gone is seen by a run that reads the whole stream, or
 * asks for single keys one by one. Of a part of a stream the row may be outside; a backfill adds.
 */
export function maySeeGone({ kind, range }: { kind: RunKind; range: RunRange | null }): boolean {
  return range === null && kind !== 'backfill';
}

/** 2. A row must have been gone for the stream's `graceDays`. Returns those of the entries that are due. */
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

/** A date or a time of a row as the mirror prints it, up to the year 9999. */
const TIME = /^(\d{4}-\d\d-\d\d(?: \d\d:\d\d:\d\d(?:\.\d+)?)?)(?:\+00)?$/;

/** The time from which the `graceDays` of a row count when it is gone; undefined: from when it is found missing. */
export function endOf({ graceDays }: Stream, row: Row | undefined): string | undefined {
  if (typeof graceDays !== 'object' || !row) return undefined;
  const [, time] = TIME.exec(String(row[graceDays.column])) ?? [];
  return time === undefined ? undefined : `${time} UTC`;
}

// 3. An empty source retires nothing, and 4. a mass retirement is held: limits/decide.ts.

// While a batch is applied, under its claim. A record whose row is in the mirror again never comes here.

/** Returns the retirements for records whose rows are gone; those that have nothing to retire are settled. */
export async function startRetirements(
  deps: SyncDeps,
  stream: Stream,
  { operation }: Batch,
  gone: readonly ClaimedRecord[],
  note: NoteOutcome,
): Promise<Write[]> {
  const retirements = gone.flatMap((record): Write[] => {
    const { externalId, sourceHash } = record;
    // 5. Nothing to retire: the service never had the object.
    if (!wasSent(record) || externalId === null) return note(outcome.forgotten(record));
    const object = createObject(externalId, stream.type, false, []);
    return [{ record, object, sourceHash: sourceHash ?? '0', objectHash: '', retires: true }];
  });
  // 6. Only what a plan has put up for retirement: a table may be empty because it is being reloaded. A repair retires
  // again what was retired before.
  const isChosen = ({ record }: Write) =>
    stream.retire === 'deactivate' &&
    (operation === 'retire' || (record.resend === 'repair' && record.status === 'retired'));
  const others = retirements.filter((retirement) => !isChosen(retirement));
  for (const { record } of await leaveToRows(deps, others, note)) note(outcome.skipped(record));
  const chosen = retirements.filter(isChosen);
  // 7. The object may have another external id now, by which it is the object of a row.
  const numbered = chosen.map(({ record }) => ({ stream: stream.name, ...record }));
  const renamed = new Set((await readOtherOwners(deps, numbered)).map(({ localKey }) => localKey));
  return chosen.map((write) => ({ ...write, hasNumberOfRow: renamed.has(write.record.localKey) }));
}

/**
 * Returns the retirements that are to be written; the others are settled. `found`: the objects as they stand at the
 * service, by external id. Sends at least one request when any is left by then, unless the stream says otherwise.
 */
export async function chooseRetirements(
  deps: SyncDeps,
  stream: Stream,
  read: {
    batch: Batch;
    retirements: readonly Write[];
    found: ReadonlyMap<string, ServiceObject>;
    /** Objects that have another external id at the service now, or none. */
    renamed: ReadonlyMap<string, FoundObject>;
  },
  context: Context,
  note: NoteOutcome,
): Promise<Write[]> {
  const { batch, retirements, found, renamed } = read;
  const open = retirements.flatMap((retirement) => {
    const { record, object } = retirement;
    const standing = found.get(object.extId);
    // 8. The object is of another type: it is not this record's.
    if (standing && !stream.objectTypes.has(standing.typeId))
      return note(outcome.externalIdTaken(retirement, standing.typeId));
    const elsewhere = renamed.get(object.extId);
    if (elsewhere) return note(outcome.externalIdChangedThere(retirement, elsewhere));
    // 9. The object is gone or a row's, and no write is under way any more that could bring it back. A service that was
    // restored may have given its number to a row's object, and another one to the object itself.
    if (!standing || (retirement.hasNumberOfRow && standing.id === record.destinationId))
      return note(record.isCheckPending ? outcome.skipped(record) : outcome.forgotten(record));
    const inactive = deactivate(stream, standing);
    return [{ ...retirement, object: inactive, objectHash: hashObject(inactive), standing }];
  });
  // 10. Creates or updates of its stream that were not accepted may be of the row that has the object now.
  if (open.length > 0 && (await hasUnsentWrites(deps.state.db, batch))) {
    for (const retirement of open) note(outcome.retirementPostponed(retirement));
    return [];
  }
  const isInactive = ({ standing, record, object }: (typeof open)[number]) =>
    !standing.active && isSameObject(object, standing) && !mayBecomeActive(record);
  const free = await deferReserved(deps, stream, open, isInactive, context, note);
  // 12. Any row of any stream has the object now, whether or not its record is accepted yet. The last look: what
  // was asked of the service before it may have taken long.
  const unowned = await leaveToRows(deps, free, note);
  return unowned.flatMap((write) =>
    // 13. It is inactive already.
    isInactive(write) ? note(outcome.unchanged(write, write.standing.id)) : [write],
  );
}

/** A write of its object that has no answer may still make it active. */
function mayBecomeActive({ inDoubt, isCheckPending }: ClaimedRecord): boolean {
  return inDoubt && isCheckPending;
}

/**
 * Returns those retirements whose object no row has or may get. Where one does, the record is left alone: its object changes
 * hands when that row is written.
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
 * 11. An object with reservations yet to come is not retired before they are over: people have booked it. The service
 * is asked for all of a batch together.
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
