// Which records of a claimed batch are to be written, and which have their outcome before anything is sent. Rows are
// read here, under the claim, so that the mirror decides and not what was known when the run was planned.
import { noteExternalIds } from '../../state/records/claims.js';
import { readLinksTo } from '../../state/records/links.js';
import type { Batch } from '../../state/runs/batches.js';
import { hashObject } from '../../streams/destination-object.js';
import type { Stream } from '../../streams/stream.js';
import { findOtherOwners } from '../external-id-owners.js';
import * as outcome from '../outcome-reasons.js';
import type { Settle, Write } from '../outcome-reasons.js';
import { renderRows, type Rendered } from '../render.js';
import { startRetirements } from '../retire.js';
import type { SyncDeps } from '../sync-deps.js';
import { claimLost, type BatchClaim } from './batch-claim.js';

/** The writes of a batch, retirements among them; all other records are settled, or left. Sends nothing. */
export async function prepareBatch(
  deps: SyncDeps,
  stream: Stream,
  batch: Batch,
  claim: BatchClaim,
  settle: Settle,
): Promise<Write[]> {
  const { rows, rendered, unreadable } = await readUnderClaim(deps, stream, claim);
  const { records } = claim;
  const now = deps.now?.() ?? Date.now();
  for (const [key, error] of unreadable) {
    const record = records.get(key);
    if (record) settle(outcome.unreadable(record, error));
  }
  const writes = [...records].flatMap(([key, record]): Write[] => {
    const sourceHash = rows.get(key)?.hash;
    const result = rendered.get(key);
    if (sourceHash === undefined || !result) return [];
    // A repair restores what was accepted. What has changed since is a sync's to send, within its own limits.
    if (batch.operation === 'repair' && sourceHash !== record.sourceHash)
      return settle(outcome.skipped(record));
    if ('problem' in result) return settle(outcome.mappingFailed(record, sourceHash, result));
    // A record is linked only while nothing may have been sent of it.
    const isFirst = record.objectHash === null && (!record.inDoubt || result.link !== undefined);
    const former = isFirst ? null : record.externalId;
    if (former !== null && former !== result.extId)
      return settle(outcome.externalIdChanged(record, sourceHash, { former, now: result.extId }));
    if ('missing' in result) return settle(outcome.referenceMissing(record, sourceHash, result, stream, now));
    const { object, link } = result;
    return [{ record, object, sourceHash, objectHash: hashObject(object), retires: false, link }];
  });
  await noteNewIds(deps, claim, writes);
  const unlinked = await refuseLinkedIds(deps, stream, claim, writes, settle);
  const own = await refuseSharedIds(deps, stream, unlinked, settle);
  const open = batch.isForced ? own : own.filter((write) => !isAccepted(write, settle));
  const gone = [...records.values()].filter(
    ({ localKey }) => !rows.has(localKey) && !unreadable.has(localKey),
  );
  return [...open, ...(await startRetirements(deps, stream, batch, gone, settle))];
}

/**
 * Rows as the mirror has them after the right to write their objects was obtained. A record whose row gives an object
 * that another batch has, or another one at every look, is left to a later attempt.
 */
async function readUnderClaim(deps: SyncDeps, stream: Stream, claim: BatchClaim) {
  const read = async (keys: readonly string[]) => {
    const { rows: found, unreadable: unread } = await deps.mirror.readRowsOrReasons(stream, keys);
    return { found, unread, results: await renderRows(deps.state, stream, found) };
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
  return { rows, rendered, unreadable };
}

/** So that the state knows each object by its external id before it is sent, also when the worker dies then. */
async function noteNewIds({ state }: SyncDeps, claim: BatchClaim, writes: readonly Write[]): Promise<void> {
  const unnoted = writes.filter(({ record, object }) => record.externalId !== object.extId);
  const externalIds = new Map(unnoted.map(({ record, object }) => [record.localKey, object.extId]));
  if (!(await noteExternalIds(state.db, claim, externalIds))) throw claimLost();
}

/**
 * An object that a record is linked to is no other's, whatever the template of another row gives. A record whose own link
 * is not there any more is left to a later attempt.
 */
async function refuseLinkedIds(
  { state }: SyncDeps,
  stream: Stream,
  claim: BatchClaim,
  writes: readonly Write[],
  settle: Settle,
): Promise<Write[]> {
  const links = await readLinksTo(
    state.db,
    writes.map(({ object }) => object.extId),
  );
  return writes.filter((write) => {
    const { localKey } = write.record;
    const link = links.get(write.object.extId);
    const isOwn = link?.stream === stream.name && link.localKey === localKey;
    if (link && !isOwn) settle(outcome.externalIdLinked(write, link));
    else if (write.link && !link) claim.leave(localKey);
    else return true;
    return false;
  });
}

/**
 * One external id belongs to one row: where two would share it, neither is sent from here. What another batch is
 * writing for the first time counts as well. Both have noted their ids before they look here: of two that write at
 * once, one sees the other, or each does.
 */
async function refuseSharedIds(
  deps: SyncDeps,
  stream: Stream,
  writes: readonly Write[],
  settle: Settle,
): Promise<Write[]> {
  const claimants = stream.ownsIds ? writes.filter(({ link }) => link) : writes;
  if (claimants.length === 0) return [...writes];
  const inBatch = new Map<string, Write[]>();
  for (const write of claimants) {
    const { extId } = write.object;
    inBatch.set(extId, [...(inBatch.get(extId) ?? []), write]);
  }
  const owners = await findOtherOwners(
    deps,
    stream,
    claimants,
    (owner, { record, link }) =>
      // Who writes a linked object for the first time finds the link, and does not.
      owner.isAccepted || (owner.isWritten && record.objectHash === null && !link),
  );
  return writes.filter((write) => {
    const beside = inBatch.get(write.object.extId)?.find((other) => other !== write);
    const other = beside
      ? { stream: stream.name, localKey: beside.record.localKey }
      : owners.get(write.record.localKey);
    if (other) settle(outcome.externalIdShared(write, other));
    return !other;
  });
}

/** Whether the service accepted exactly this object already; then it is settled without a request. */
function isAccepted(write: Write, settle: Settle): boolean {
  const { record, objectHash } = write;
  if (record.inDoubt || record.objectHash !== objectHash) return false;
  settle(outcome.unchanged(write));
  return true;
}
