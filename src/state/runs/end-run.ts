// The end of a run: how its batches ended, or that it failed or was cancelled as a whole.
import { and, eq, isNull, sql } from 'drizzle-orm';
import type { Queries } from '../database.js';
import { closeTaken } from '../inbox/take-changes.js';
import { batches, runs, type RunStatus } from '../schema.js';
import { cancelBatches } from './batches.js';
import { sumOutcomes } from './read-runs.js';

/** A failure as runs, batches and records keep it. */
export interface Failed {
  code: string;
  message: string;
}

/** Ends a run that cannot continue; its unfinished batches are cancelled, their records stay as they are. */
export async function failRun(db: Queries, id: number, error: Failed): Promise<void> {
  await db.transaction(async (tx) => {
    await cancelBatches(tx, id);
    await finishRun(tx, id, { status: 'failed', error });
  });
}

/** Ends a run at an operator's command, in the same way. */
export async function cancelRun(db: Queries, id: number): Promise<void> {
  await db.transaction(async (tx) => {
    await cancelBatches(tx, id);
    await finishRun(tx, id, { status: 'cancelled' });
  });
}

/** Ends a run whose batches are finished, with the status they give it unless it is ended `as` another. */
export async function finishRun(
  tx: Queries,
  id: number,
  as?: { status: 'failed' | 'cancelled'; error?: Failed },
): Promise<void> {
  const counts = await sumOutcomes(tx, id);
  const [ends] = await tx
    .select({
      held: sql<number>`count(*) FILTER (WHERE state = 'held')::int`,
      failed: sql<number>`count(*) FILTER (WHERE state = 'failed')::int`,
      code: sql<string | null>`min(error_code) FILTER (WHERE state = 'failed')`,
      message: sql<string | null>`min(error_message) FILTER (WHERE state = 'failed')`,
    })
    .from(batches)
    .where(eq(batches.runId, id));
  const { held = 0, failed = 0, code = null, message = null } = ends ?? {};
  const [ended] = await tx
    .update(runs)
    .set({
      status: as?.status ?? statusOf(Object.values(counts), { held, failed }),
      counts,
      finishedAt: new Date(),
      errorCode: as?.error?.code ?? code,
      errorMessage: as?.error?.message ?? message,
    })
    .where(and(eq(runs.id, id), isNull(runs.finishedAt)))
    .returning({ kind: runs.kind });
  if (ended?.kind === 'incremental') await closeTaken(tx, id, as?.status === 'failed' ? 'failed' : 'worked');
}

/** Of the outcomes of each stream, and the numbers of batches held and failed. */
function statusOf(
  counts: readonly { synced: number; unchanged: number; failed: number; dead: number }[],
  batchesIn: { held: number; failed: number },
): RunStatus {
  const isGood = counts.some(({ synced, unchanged }) => synced + unchanged > 0);
  const isBad = counts.some(({ failed, dead }) => failed + dead > 0);
  if (batchesIn.failed > 0 && !isGood) return 'failed';
  if (batchesIn.failed > 0 || isBad) return 'partial';
  return batchesIn.held > 0 ? 'held' : 'succeeded';
}
