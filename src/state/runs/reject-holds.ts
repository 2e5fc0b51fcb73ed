// An operator's refusal of what a run holds. What the mirror says does not change by it: the next plan may hold it again.
import { eq } from 'drizzle-orm';
import type { Queries } from '../database.js';
import { runs, type LimitedOperation } from '../schema.js';
import { revokeApprovals } from './approvals.js';
import { releaseHeldBatches } from './batches.js';

/**
 * Gives up what a run holds of these streams and operations: its batches are cancelled, approvals of it that were not
 * used end, and a run that only waited has succeeded.
 */
export async function rejectHolds(
  db: Queries,
  runId: number,
  rejected: readonly { stream: string; operation: LimitedOperation }[],
): Promise<void> {
  await db.transaction(async (tx) => {
    const [run] = await tx.select().from(runs).where(eq(runs.id, runId)).for('update');
    if (!run) return;
    const holds = structuredClone(run.holds);
    for (const { stream, operation } of rejected) {
      await releaseHeldBatches(tx, { runId, stream, operation }, 'cancelled');
      await revokeApprovals(tx, stream, operation);
      delete holds[stream]?.[operation];
      if (Object.keys(holds[stream] ?? {}).length === 0) delete holds[stream];
    }
    const isOver = run.status === 'held' && Object.keys(holds).length === 0;
    const status = isOver ? 'succeeded' : run.status;
    await tx.update(runs).set({ holds, status }).where(eq(runs.id, runId));
  });
}
