// Reads and maps the rows of a claimed batch. Settles records whose outcome is already certain, and returns the writes
// of the others. Rows are read under the claim, so current rows count and not those of the plan.
import { readLinksOfAndTo, readLinksTo, type Link } from '../../state/records/links.js';
import { REFERENCE_CIRCLE } from '../../state/records/outcome-types.js';
import { hashObject } from '../../streams/destination-object.js';
import { acceptedText } from '../../streams/field-rules.js';
import type { NeededReference } from '../../streams/map-row.js';
import type { Stream } from '../../streams/stream.js';
import * as outcome from '../object/decide-outcome.js';
import type { NoteOutcome, Write } from '../object/decide-outcome.js';
import { renderRows, type Rendered } from '../object/render.js';
import { endOf, startRetirements } from '../object/retire.js';
import { timeOf, type SyncDeps } from '../run/sync-deps.js';
import { isWanted, type BatchWork } from './batch-claim.js';
import { ownObjects, ownsAnother } from './own-objects.js';

/**
 * Returns the writes of a batch, including deactivations. Settles other records, or leaves them to a later attempt.
 */
export async function prepareBatch(deps: SyncDeps, work: BatchWork): Promise<Write[]> {
  const { batch, stream, claim, note } = work;
  const { rows, rendered, unreadable, linksTo } = await readUnderClaim(deps, work);
  const shared = findSharedInBatch(stream, rendered);
  const obstacles = await ownObjects(deps, work, rendered, (key) => shared.has(key));
  const { records } = claim;
  const isWaiting = [...rendered.values()].some((result) => 'missing' in result);
  const now = isWaiting ? await timeOf(deps) : 0;
  for (const [key, error] of unreadable) {
    const record = records.get(key);
    if (record) note(outcome.unreadable(record, error));
  }
  const writes = [...records].flatMap(([key, record]): Write[] => {
    const sourceHash = rows.get(key)?.hash;
    const result = rendered.get(key);
    if (sourceHash === undefined || !result) return [];
    // A repair sends the accepted values again. Rows changed since then are sent by a sync, within its limits.
    if (batch.operation === 'repair' && sourceHash !== record.sourceHash)
      return note(outcome.skipped(record));
    if ('problem' in result) return note(outcome.mappingFailed(record, sourceHash, result));
    if (ownsAnother(record, result)) return note(outcome.externalIdChanged(record, sourceHash, result.extId));
    if ('missing' in result) {
      const parent = deps.streams.get(result.missing.stream);
      return note(outcome.referenceMissing(record, sourceHash, result, stream, parent, now));
    }
    const { object, link, leftOut } = result;
    const write: Write = {
      record,
      object,
      sourceHash,
      objectHash: hashObject(object),
      acceptedFields: acceptedText(stream.rules, object, record.acceptedFields),
      endsAt: endOf(stream, rows.get(key)?.row),
      retires: false,
      link,
      leftOut,
    };
    const beside = shared.get(key);
    if (beside !== undefined)
      return note(outcome.externalIdShared(write, { stream: stream.name, localKey: beside }));
    const obstacle = obstacles.get(key);
    if (obstacle) return note(obstacle(write));
    if (record.externalId === result.extId) return [write];
    // Another row of the batch took the record's object, but the record did not get the object of its row: the row has changed.
    claim.leave(key);
    return [];
  });
  const own = await refuseLinkedIds(deps, work, writes, linksTo);
  const open = own.filter((write) => isWanted(write.record) || !isAccepted(write, note));
  const gone = [...records.values()].filter(
    ({ localKey }) => !rows.has(localKey) && !unreadable.has(localKey),
  );
  return [...open, ...(await startRetirements(deps, stream, batch, gone, note))];
}

/**
 * Reads the rows and claims their objects. A record is left to a later attempt if another batch has claimed its object,
 * or if its row's external id changes during the reading.
 */
async function readUnderClaim(deps: SyncDeps, { stream, claim }: BatchWork) {
  /** Links to objects that records own but that the service never accepted, by external id. */
  const linksTo = new Map<string, Link | undefined>();
  const read = async (keys: readonly string[]) => {
    const owned = keys.flatMap((key) => {
      const { objectHash = '', externalId } = claim.records.get(key) ?? {};
      return objectHash === null ? (externalId ?? []) : [];
    });
    const [{ rows: found, unreadable: unread }, links] = await Promise.all([
      deps.mirror.readRows(stream, keys),
      readLinksOfAndTo(deps.state.db, stream.name, keys, owned),
    ]);
    for (const externalId of owned) linksTo.set(externalId, links.to.get(externalId));
    /** If records refer to each other in a circle, the reference is omitted, so that one of them can be sent first. */
    const leaveOut = ({ stream: parent, localKey }: NeededReference, key: string) => {
      const isInCircle = localKey === key || claim.records.get(key)?.errorCode === REFERENCE_CIRCLE;
      return parent === stream.name && isInCircle ? null : undefined;
    };
    return { found, unread, results: await renderRows(deps.state, stream, found, leaveOut, links.ofKeys) };
  };
  const { found: rows, unread: unreadable, results: rendered } = await read([...claim.records.keys()]);
  const idsOf = (results: ReadonlyMap<string, Rendered>) =>
    new Map([...results].flatMap(([key, result]) => ('extId' in result ? [[key, result]] : [])));
  const readAgain = await claim.claimRowIds(idsOf(rendered));
  if (readAgain.length > 0) {
    const { found, unread, results } = await read(readAgain);
    const rowIds = idsOf(results);
    for (const key of readAgain) {
      const reason = unread.get(key);
      if (reason) unreadable.set(key, reason);
      const [row, result, rowId] = [found.get(key), results.get(key), rowIds.get(key)];
      const record = claim.records.get(key);
      if (record && rowId !== undefined && !claim.covers(record, rowId)) claim.leave(key);
      if (row && result) {
        rows.set(key, row);
        rendered.set(key, result);
      } else {
        rows.delete(key);
        rendered.delete(key);
      }
    }
  }
  return { rows, rendered, unreadable, linksTo };
}

/**
 * Returns, for each row with a shared external id, another row of the batch that has it too. Neither is sent. Linked
 * rows do not count. Plans search the whole stream for such rows (`readSharedIds` of plan/plan-lists.ts).
 */
function findSharedInBatch(stream: Stream, rendered: ReadonlyMap<string, Rendered>): Map<string, string> {
  if (stream.ownsIds) return new Map();
  const linked = new Set(
    [...rendered.values()].flatMap((result) => ('link' in result && result.link ? result.extId : [])),
  );
  const keysOf = new Map<string, string[]>();
  for (const [key, result] of rendered)
    if ('object' in result && !linked.has(result.extId))
      keysOf.set(result.extId, [...(keysOf.get(result.extId) ?? []), key]);
  const shared = [...keysOf.values()].filter(({ length }) => length > 1);
  return new Map(
    shared.flatMap((keys) => keys.map((key, at) => [key, keys[at === 0 ? 1 : 0] ?? ''] as const)),
  );
}

/**
 * Refuses writes of objects that are linked to another key. Reads the links only after the record owns the object, so
 * that a link made meanwhile is seen. A record whose own link was removed is left to a later attempt. `known`: links
 * that need not be read again.
 */
async function refuseLinkedIds(
  { state }: SyncDeps,
  { stream, claim, note }: BatchWork,
  writes: readonly Write[],
  known: ReadonlyMap<string, Link | undefined>,
): Promise<Write[]> {
  const first = new Set(writes.filter(({ record, link }) => record.objectHash === null || link));
  const isUnknown = ({ link, object }: Write) => link !== undefined || !known.has(object.extId);
  const unknown = [...first].filter(isUnknown).map(({ object }) => object.extId);
  const links = await readLinksTo(state.db, unknown);
  return writes.filter((write) => {
    if (!first.has(write)) return true;
    const { localKey } = write.record;
    const link = (isUnknown(write) ? links : known).get(write.object.extId);
    const isOwn = link?.stream === stream.name && link.localKey === localKey;
    if (link && !isOwn) note(outcome.externalIdLinked(write, link));
    else if (write.link && !link) claim.leave(localKey);
    else return true;
    return false;
  });
}

/** Settles the record as unchanged, without a request, if the service has already accepted exactly this object. */
function isAccepted(write: Write, note: NoteOutcome): boolean {
  const { record, objectHash } = write;
  if (record.inDoubt || record.objectHash !== objectHash) return false;
  note(outcome.unchanged(write));
  return true;
}
