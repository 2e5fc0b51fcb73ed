// An operator's approval of held records. It allows the number that was shown, is used by the first plan that needs it,
// which counts again, and expires.
import { and, eq, gt, inArray, isNull, sql } from 'drizzle-orm';
import { SlotsyncError } from '../../errors.js';
import type { Queries } from '../database.js';
import { approvals, type LimitedOperation } from '../schema.js';

export type Approval = typeof approvals.$inferSelect;

const isOpen = and(isNull(approvals.usedBy), gt(approvals.expiresAt, sql`now()`));

/** Records approvals that expire after so many hours. Each replaces an open one of its stream and operation. */
export async function recordApprovals(
  db: Queries,
  given: readonly Pick<Approval, 'runId' | 'stream' | 'operation' | 'allowed'>[],
  hours: number,
): Promise<Approval[]> {
  return db.transaction(async (tx) => {
    for (const { stream, operation } of given) await revokeApprovals(tx, stream, operation);
    const expiresAt = sql`now() + make_interval(secs => ${hours * 60 * 60})`;
    const rows = given.map((approval) => ({ ...approval, expiresAt }));
    // As in insertBatches.
    return tx.insert(approvals).overridingSystemValue().values(rows).returning();
  });
}

/** Ends the open approvals of a stream and operation. */
export async function revokeApprovals(tx: Queries, stream: string, operation: LimitedOperation) {
  const isMeant = and(isOpen, eq(approvals.stream, stream), eq(approvals.operation, operation));
  const expired = { expiresAt: sql`now()` };
  await tx.update(approvals).set(expired).where(isMeant);
}

/** Approvals that were not used and have not expired, of one stream when given. */
export async function listOpenApprovals(db: Queries, stream?: string): Promise<Approval[]> {
  const isOfStream = stream === undefined ? undefined : eq(approvals.stream, stream);
  return db.select().from(approvals).where(and(isOpen, isOfStream)).orderBy(approvals.id);
}

/**
 * Marks approvals as used by a run. Call it in the transaction that releases the held batches. Throws SlotsyncError
 * `approval_withdrawn` when one of them was used, revoked or replaced since it was read: plan again.
 */
export async function useApprovals(tx: Queries, ids: readonly number[], runId: number): Promise<void> {
  if (ids.length === 0) return;
  const areThese = and(isOpen, inArray(approvals.id, [...ids]));
  const used = await tx
    .update(approvals)
    .set({ usedBy: runId })
    .where(areThese)
    .returning({ id: approvals.id });
  if (used.length === ids.length) return;
  throw new SlotsyncError('approval_withdrawn', 'an approval was withdrawn while the run was planned', {});
}
