// Which records of a claimed batch are to be written, and which have their outcome before anything is sent. Rows are
// read here, under the claim, so that the mirror decides and not what was known when the run was planned.
import { SlotsyncError } from '../../errors.js';
import { noteExternalIds, type Claim, type ClaimedRecord } from '../../state/records/claims.js';
import type { Batch } from '../../state/runs/batches.js';
import { hashObject } from '../../streams/destination-object.js';
import type { Stream } from '../../streams/stream.js';
import { findOtherOwners } from '../external-id-owners.js';
import * as outcome from '../outcome-reasons.js';
import type { Settle, Write } from '../outcome-reasons.js';
import { renderRows } from '../render.js';
import { startRetirement } from '../retire.js';
import type { SyncDeps } from '../sync-deps.js';

/** The writes of a batch, retirements among them; all other records are settled. Sends nothing. */
export async function prepareBatch(
  deps: SyncDeps,
  stream: Stream,
  batch: Batch,
  claim: Claim & { records: ReadonlyMap<string, ClaimedRecord> },
  settle: Settle,
): Promise<Write[]> {
  const { records } = claim;
  const rows = await deps.mirror.readRows(stream, [...records.keys()]);
  const rendered = await renderRows(deps.state, stream, rows);
  const now = deps.now?.() ?? Date.now();
  const writes = [...records].flatMap(([key, record]): Write[] => {
    const sourceHash = rows.get(key)?.hash;
    const result = rendered.get(key);
    if (sourceHash === undefined || !result) return [];
    if ('problem' in result) return settle(outcome.mappingFailed(record, sourceHash, result));
    const former = record.objectHash === null && !record.inDoubt ? null : record.externalId;
    if (former !== null && former !== result.extId)
      return settle(outcome.externalIdChanged(record, sourceHash, { former, now: result.extId }));
    if ('missing' in result) return settle(outcome.referenceMissing(record, sourceHash, result, stream, now));
    const { object } = result;
    return [{ record, object, sourceHash, objectHash: hashObject(object), retires: false }];
  });
  await noteNewIds(deps, claim, writes);
  const own = await refuseSharedIds(deps, stream, writes, settle);
  const open = batch.isForced ? own : own.filter((write) => !isAccepted(write, settle));
  const retirements = [...records.values()].flatMap((record) =>
    rows.has(record.localKey) ? [] : startRetirement(stream, batch, record, settle),
  );
  return [...open, ...retirements];
}

/** So that the state knows each object by its external id before it is sent, also when the worker dies then. */
async function noteNewIds({ state }: SyncDeps, claim: Claim, writes: readonly Write[]): Promise<void> {
  const unnoted = writes.filter(({ record, object }) => record.externalId !== object.extId);
  const externalIds = new Map(unnoted.map(({ record, object }) => [record.localKey, object.extId]));
  if (!(await noteExternalIds(state.db, claim, externalIds))) throw claimLost();
}

/** Before anything of it was sent. */
export function claimLost(): SlotsyncError {
  return new SlotsyncError('claim_lost', 'another batch took these records over');
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
  const inBatch = new Map<string, Write[]>();
  for (const write of writes) {
    const { extId } = write.object;
    inBatch.set(extId, [...(inBatch.get(extId) ?? []), write]);
  }
  const owners = await findOtherOwners(
    deps,
    stream,
    writes,
    (owner, { record }) => owner.isAccepted || (owner.isWritten && record.objectHash === null),
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
