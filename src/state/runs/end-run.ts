// The end of a run: how its batches ended, or that it failed or was cancelled as a whole.
import { query, queryOne, type Queries } from '../database.js';
import { closeTaken } from '../inbox/take-changes.js';
import type { OutcomeCounts, RunKind, RunStatus } from '../schema.js';
import { cancelBatches } from './batches.js';
import { sumOutcomes } from './read-runs.js';

/** A failure as runs, batches and records keep it. */
export interface Failed {
  code: string;
  message: string;
}

/** The end of a run before its batches are finished. */
type EarlyEnd = { status: 'failed'; error: Failed } | { status: 'cancelled'; error?: undefined };

/** Ends a run that cannot continue; its unfinished batches are cancelled, their records stay as they are. */
export async function failRun(db: Queries, id: number, error: Failed): Promise<void> {
  await endEarly(db, id, { status: 'failed', error });
}

/** Ends a run at an operator's command, in the same way. */
export async function cancelRun(db: Queries, id: number): Promise<void> {
  await endEarly(db, id, { status: 'cancelled' });
}

async function endEarly(db: Queries, id: number, as: EarlyEnd): Promise<void> {
  await db.transaction(async (tx) => {
    await cancelBatches(tx, id);
    await finishRun(tx, id, as);
  });
}

interface BatchEnds {
  held: number;
  failed: number;
  /** Of those that failed. */
  code: string | null;
  message: string | null;
}

/** Ends a run whose batches are finished, with the status they give it unless it is ended `as` another. */
export async function finishRun(tx: Queries, id: number, as?: EarlyEnd): Promise<void> {
  const counts = await sumOutcomes(tx, id);
  const ends = await queryOne<BatchEnds>(tx)`
    SELECT count(*) FILTER (WHERE state = 'held')::int AS held,
      count(*) FILTER (WHERE state = 'failed')::int AS failed,
      min(error_code) FILTER (WHERE state = 'failed') AS code,
      min(error_message) FILTER (WHERE state = 'failed') AS message
    FROM slotsync.batches WHERE run_id = ${id}::bigint`;
  const { code, message } = as?.error ?? ends;
  const [ended] = await query<{ kind: RunKind }>(tx)`
    UPDATE slotsync.runs SET status = ${as?.status ?? statusOf(Object.values(counts), ends)},
      counts = ${JSON.stringify(counts)}::jsonb, error_code = ${code}, error_message = ${message},
      finished_at = clock_timestamp()
    WHERE id = ${id}::bigint AND finished_at IS NULL RETURNING kind`;
  if (ended?.kind === 'incremental') await closeTaken(tx, id, as?.status === 'failed' ? 'failed' : 'worked');
}

/** Of the outcomes of each stream, and the ends of the batches. */
function statusOf(counts: readonly OutcomeCounts[], batchesIn: BatchEnds): RunStatus {
  const isGood = counts.some(({ synced, unchanged }) => synced + unchanged > 0);
  const isBad = counts.some(({ failed, dead }) => failed + dead > 0);
  if (batchesIn.failed > 0 && !isGood) return 'failed';
  if (batchesIn.failed > 0 || isBad) return 'partial';
  return batchesIn.held > 0 ? 'held' : 'succeeded';
}
