// An operator's approval of one hold. It allows the number that was shown. Only the run that was started for it can use
// it; that run counts again, and the approval ends with its plan, used or not.
import { and, eq, exists, gt, inArray, isNull, sql } from 'drizzle-orm';
import type { Queries } from '../database.js';
import { approvals, runs } from '../schema.js';

export type Approval = typeof approvals.$inferSelect;

/** How a plan used an approval. */
export interface UsedApproval {
  id: number;
  /** Whether it had exactly the keys that were held. */
  sameKeys: boolean;
}

const isOpen = (db: Queries) =>
  and(
    isNull(approvals.usedBy),
    gt(approvals.expiresAt, sql`now()`),
    exists(
      db
        .select({ id: runs.id })
        .from(runs)
        .where(and(eq(runs.id, approvals.forRun), eq(runs.status, 'planning'))),
    ),
  );

/** Approvals whose run is still to be planned and that have not expired. */
export async function listOpenApprovals(db: Queries): Promise<Approval[]> {
  return db.select().from(approvals).where(isOpen(db)).orderBy(approvals.id);
}

/** Of these, those that a run may use for a stream. */
export async function listUsableApprovals(db: Queries, runId: number, stream: string): Promise<Approval[]> {
  const isOfRun = and(eq(approvals.forRun, runId), eq(approvals.stream, stream));
  return db
    .select()
    .from(approvals)
    .where(and(isOpen(db), isOfRun));
}

/** The approvals that a run was started for. */
export async function listApprovalsOfRun(db: Queries, runId: number): Promise<Approval[]> {
  return db.select().from(approvals).where(eq(approvals.forRun, runId)).orderBy(approvals.id);
}

/** Marks approvals as used by their run. Call it in the transaction that ends the run's planning. */
export async function useApprovals(tx: Queries, used: readonly UsedApproval[], runId: number): Promise<void> {
  for (const sameKeys of [true, false]) {
    const ids = used.flatMap((one) => (one.sameKeys === sameKeys ? one.id : []));
    if (ids.length > 0)
      await tx.update(approvals).set({ usedBy: runId, sameKeys }).where(inArray(approvals.id, ids));
  }
}
