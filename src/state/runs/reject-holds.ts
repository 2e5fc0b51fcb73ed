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
    for (const { stream, operation } of rejected) {
      await releaseHeldBatches(tx, { runId, stream, operation }, 'cancelled');
      await revokeApprovals(tx, stream, operation);
    }
    const isRejected = (stream: string, operation: string) =>
      rejected.some((hold) => hold.stream === stream && hold.operation === operation);
    const left = Object.entries(run.holds)
      .map(
        ([stream, holds]) =>
          [
            stream,
            Object.fromEntries(Object.entries(holds).filter(([operation]) => !isRejected(stream, operation))),
          ] as const,
      )
      .filter(([, holds]) => Object.keys(holds).length > 0);
    const status = run.status === 'held' && left.length === 0 ? 'succeeded' : run.status;
    await tx
      .update(runs)
      .set({ holds: Object.fromEntries(left), status })
      .where(eq(runs.id, runId));
  });
}
