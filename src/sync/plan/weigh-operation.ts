// Each operation of a planned stream is weighed against its limit once its batches are stored. Plans and repairs weigh here,
// so that whatever way a change comes, it counts.
import { findApproval, type UsedApproval } from '../../state/runs/approvals.js';
import { countWithinADay } from '../../state/runs/batches.js';
import { countAlsoHeld, digestHeldKeys } from '../../state/runs/held-keys.js';
import { readHolds } from '../../state/runs/holds.js';
import type { Hold, LimitedOperation } from '../../state/schema.js';
import type { Stream } from '../../streams/stream.js';
import { explainHold, isFirstFilling, type LimitFacts } from '../limits/mass-change-limits.js';
import type { SyncDeps } from '../run/sync-deps.js';

interface Weighing {
  /** The plan's sink; that of a preview releases nothing. */
  sink: { release?(limit: LimitedOperation, isExempt: boolean): Promise<void> };
  /** Single keys: they are in no position to replace a hold, and wait for it. */
  isIncremental?: boolean;
  explain?: (stream: Stream, facts: LimitFacts) => Hold | undefined;
}

/**
 * Releases the batches of an operation when they are within its limit or approved; otherwise says why they are held. A
 * preview, which has no run, may count a record twice that another run of the day changed, too.
 */
export async function weighOperation(
  { state }: Pick<SyncDeps, 'state'>,
  stream: Stream,
  facts: LimitFacts,
  { sink, isIncremental = false, explain = explainHold }: Weighing,
): Promise<{ hold?: Hold | undefined; used?: UsedApproval }> {
  const { operation, runId = 0 } = facts;
  const part = { runId, stream: stream.name, operation };
  const alsoHeld = isIncremental ? await findAlsoHeld(state, part) : undefined;
  let weighed: LimitFacts = facts;
  for (const isExact of [false, true]) {
    weighed = { ...facts, alsoHeld, earlier: await countWithinADay(state.db, part, { isExact }) };
    if (explain(stream, weighed)) continue;
    await sink.release?.(operation, isFirstFilling(facts));
    return {};
  }
  const approval = await findApproval(state.db, part);
  if (!approval) return { hold: explain(stream, weighed) };
  const sameKeys = (await digestHeldKeys(state, part)) === approval.keysDigest;
  const { id, allowed, exactly } = approval;
  const hold = explain(stream, { ...weighed, allowed, isOther: exactly && !sameKeys });
  if (hold) return { hold };
  await sink.release?.(operation, true);
  return { used: { id, sameKeys } };
}

/** The first hold of another run that stands, was not approved, and has some of these keys. */
async function findAlsoHeld(
  { db }: SyncDeps['state'],
  part: { runId: number; stream: string; operation: LimitFacts['operation'] },
): Promise<LimitFacts['alsoHeld']> {
  const holds = (await readHolds(db)).filter(
    ({ runId, stream, operation, approvedFor }) =>
      runId !== part.runId && stream === part.stream && operation === part.operation && approvedFor === null,
  );
  for (const hold of holds.toReversed()) {
    const count = await countAlsoHeld(db, part, hold);
    if (count > 0) return { runId: hold.runId, count };
  }
  return undefined;
}
