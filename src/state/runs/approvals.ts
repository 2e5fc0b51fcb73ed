// An operator's approval of one hold. It allows the number that was shown. Only the run that was started for it can use
// it; that run counts again, and the approval ends with its plan, used or not.
import { and, eq, gt, inArray, sql, type Column } from 'drizzle-orm';
import type { Queries } from '../database.js';
import { holds, type LimitedOperation } from '../schema.js';

/** A column that is set where a hold was approved. */
const approved = <T extends Column>(column: T) => sql<NonNullable<T['_']['data']>>`${column}`.mapWith(column);

/** The columns of a hold that say how it was approved. */
export const APPROVAL = {
  id: holds.id,
  runId: holds.runId,
  forRun: approved(holds.forRun),
  /** The run that used it; null: none did. */
  usedBy: sql<number | null>`CASE WHEN ${holds.sameKeys} IS NOT NULL THEN ${holds.forRun} END`.mapWith(
    holds.forRun,
  ),
  stream: holds.stream,
  operation: holds.operation,
  allowed: approved(holds.allowed),
  keysDigest: holds.keysDigest,
  exactly: holds.exactly,
  sameKeys: holds.sameKeys,
  approvedAt: approved(holds.decidedAt),
  expiresAt: approved(holds.expiresAt),
};
export type Approval = Awaited<ReturnType<typeof listApprovalsOfRun>>[number];

/** How a plan used an approval. */
export interface UsedApproval {
  /** The hold's number. */
  id: number;
  /** Whether it had exactly the keys that were held. */
  sameKeys: boolean;
}

/** Its run is still to be planned, and it has not expired. */
const IS_OPEN = and(eq(holds.state, 'approved'), gt(holds.expiresAt, sql`now()`));

/** Approvals that can still be used. */
export async function listOpenApprovals(db: Queries): Promise<Approval[]> {
  return db.select(APPROVAL).from(holds).where(IS_OPEN).orderBy(holds.id);
}

/**
 * The approval that a run may use for an operation of a stream. One of what was held after refusals allows as many as the plan
 * of that run had released.
 */
export async function findApproval(
  db: Queries,
  { runId, stream, operation }: { runId: number; stream: string; operation: LimitedOperation },
): Promise<Approval | undefined> {
  const isOfRun = and(eq(holds.forRun, runId), eq(holds.stream, stream));
  const isMeant = inArray(holds.operation, [operation, 'refused']);
  const found = await db
    .select({ ...APPROVAL, facts: holds.facts })
    .from(holds)
    .where(and(IS_OPEN, isOfRun, isMeant));
  const own = found.find((approval) => approval.operation === operation);
  if (own || !found[0]) return own;
  return { ...found[0], allowed: found[0].facts.released?.[operation] ?? 0 };
}

/** The approvals that a run was started for. */
export async function listApprovalsOfRun(db: Queries, runId: number) {
  return db.select(APPROVAL).from(holds).where(eq(holds.forRun, runId)).orderBy(holds.id);
}

/** Notes how their run used approvals. Call it in the transaction that ends the run's planning. */
export async function useApprovals(tx: Queries, used: readonly UsedApproval[]): Promise<void> {
  for (const sameKeys of [true, false]) {
    const ids = used.flatMap((approval) => (approval.sameKeys === sameKeys ? approval.id : []));
    if (ids.length > 0) await tx.update(holds).set({ sameKeys }).where(inArray(holds.id, ids));
  }
}
