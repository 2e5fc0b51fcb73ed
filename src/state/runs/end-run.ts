// The end of a run: how its batches ended, or that it failed or was cancelled as a whole.
import { query, queryOne, type Queries } from '../database.js';
import { closeTaken } from '../inbox/take-changes.js';
import type { OutcomeCounts, RunKind, RunStatus } from '../schema.js';
import { storable } from '../records/outcome-types.js';
import { wakeArrived } from '../records/wake-waiting.js';
import { cancelBatches } from './batches.js';
import { asPlanner, PlannerReplaced, type Planner } from './planner-token.js';
import { closeHolds } from './holds.js';
import { ONLY_READS, selectSums, toSums, type StreamSums } from './read-runs.js';
import { replaceEarlierRuns } from './replaced-runs.js';

/** A failure as runs, batches and records keep it. */
export interface Failed {
  code: string;
  message: string;
}

/** The end of a run before its batches are finished. */
type EarlyEnd = { status: 'failed'; error: Failed } | { status: 'cancelled'; error?: Failed };

/** Ends a run that cannot continue; its unfinished batches are cancelled, their records stay as they are. */
export async function failRun(db: Queries, id: number, error: Failed): Promise<void> {
  await endEarly(db, id, { status: 'failed', error });
}

/** The same for a run that cannot be planned, in the name of its planner: unless another one plans it by now. */
export async function failPlanning(db: Queries, planner: Planner, error: Failed): Promise<void> {
  try {
    await asPlanner(db, planner, (tx) => failRun(tx, planner.runId, error));
  } catch (thrown) {
    if (!(thrown instanceof PlannerReplaced)) throw thrown;
  }
}

/** Ends a run at an operator's command, in the same way. */
export async function cancelRun(db: Queries, id: number): Promise<void> {
  await endEarly(db, id, { status: 'cancelled' });
}

/** The same for a run that nobody may work any more: the next run does what it has not done. */
export async function replaceRun(db: Queries, id: number): Promise<void> {
  const message = 'the configuration was changed before the run had ended, and no process has the former one';
  await endEarly(db, id, { status: 'cancelled', error: { code: 'configuration_changed', message } });
}

async function endEarly(db: Queries, id: number, as: EarlyEnd): Promise<void> {
  await db.transaction(async (tx) => {
    // A planner writes no batch any more. Batches that are settled refer to the run, and need not wait. A run that ended
    // meanwhile keeps what it holds.
    const unfinished = await query(tx)`
      SELECT FROM slotsync.runs WHERE id = ${id}::bigint AND finished_at IS NULL FOR NO KEY UPDATE`;
    if (unfinished.count === 0) return;
    await cancelBatches(tx, id);
    await finishRun(tx, id, { as });
  });
}

/** All that decides how a run ends. */
export interface RunEnds {
  /** Whether batches are under way, or wait for their level. */
  isOpen: boolean;
  isWaiting: boolean;
  held: number;
  /** Held batches that wait for the end of a freeze, and for nobody. */
  frozen: number;
  failed: number;
  /** Records of holds that an operator rejected. */
  rejected: number;
  /** The error of the first that failed. */
  code: string | null;
  message: string | null;
  sums: StreamSums[];
  /** Streams that do not account for what was planned: see `explainMissing`. */
  missing: { stream: string; planned: number; ended: number; outcomes: number }[];
  /** Why the state counts as restored; null: what the service holds is known, or the run only reads. */
  restoredWhy: string | null;
  /** Names of streams that were planned over a load of the mirror that is not recent enough; null: no stream was. */
  staleStreams: string | null;
}

/** In one statement, because each change has a run that ends. */
export async function readEnds(tx: Queries, id: number): Promise<RunEnds> {
  return queryOne<RunEnds>(tx)`
    WITH planned AS (
      SELECT key AS stream, (value->>'inBatches')::int AS records
      FROM slotsync.runs CROSS JOIN LATERAL jsonb_each(plan) WHERE id = ${id}::bigint
    ), batched AS (
      SELECT stream, state, cardinality(keys) AS records, CASE
          WHEN state IN ('held', 'cancelled') THEN cardinality(keys)
          ELSE (SELECT sum(number::int) FROM jsonb_each_text(counts) AS c(outcome, number)) END AS outcomes
      FROM slotsync.batches WHERE run_id = ${id}::bigint
    ), streams AS (
      SELECT stream, coalesce((SELECT records FROM planned AS p WHERE p.stream = s.stream), sum(records), 0)::int AS planned,
        coalesce(sum(records) FILTER (WHERE state NOT IN ('planned', 'queued')), 0)::int AS ended,
        coalesce(sum(outcomes) FILTER (WHERE state NOT IN ('planned', 'queued')), 0)::int AS outcomes
      FROM (SELECT stream FROM planned UNION SELECT stream FROM batched) AS s LEFT JOIN batched USING (stream)
      GROUP BY stream
    )
    SELECT coalesce(bool_or(state = 'queued'), false) AS "isOpen", coalesce(bool_or(state = 'planned'), false) AS "isWaiting",
      count(*) FILTER (WHERE state = 'held')::int AS held,
      count(*) FILTER (WHERE state = 'held' AND operation = 'frozen')::int AS frozen,
      count(*) FILTER (WHERE state = 'failed')::int AS failed,
      coalesce(sum(cardinality(keys)) FILTER (WHERE state = 'cancelled'), 0)::int AS rejected,
      (array_agg(error_code ORDER BY id) FILTER (WHERE state = 'failed'))[1] AS code,
      (array_agg(error_message ORDER BY id) FILTER (WHERE state = 'failed'))[1] AS message,
      (SELECT coalesce(jsonb_agg(s), '[]') FROM (${selectSums(id)}) AS s) AS sums,
      (SELECT coalesce(jsonb_agg(s ORDER BY stream), '[]') FROM streams AS s
        WHERE planned <> ended OR planned <> outcomes) AS missing,
      (SELECT d.restored_why FROM slotsync.databases AS d, slotsync.runs AS r
        WHERE d.name = 'state' AND d.restored_at IS NOT NULL AND r.id = ${id}::bigint AND NOT r.${ONLY_READS}) AS "restoredWhy",
      (SELECT string_agg(p.key, ', ' ORDER BY p.key) FROM slotsync.runs AS r CROSS JOIN LATERAL jsonb_each(r.plan) AS p
        WHERE r.id = ${id}::bigint AND p.value ? 'staleLoad') AS "staleStreams"
    FROM slotsync.batches WHERE run_id = ${id}::bigint`;
}

/** Ends a run whose batches are finished, with the status they give it unless it is ended `as` another. */
export async function finishRun(
  tx: Queries,
  id: number,
  { as, ends: known }: { as?: EarlyEnd; ends?: RunEnds } = {},
): Promise<void> {
  const ends = known ?? (await readEnds(tx, id));
  const { outcomes: counts, accepted } = toSums(ends.sums);
  const missing = as ? undefined : explainMissing(ends);
  const sent = as?.status ?? statusOf(Object.values(counts), ends, missing !== undefined);
  const isDone = sent === 'succeeded' || (sent === 'held' && ends.held === ends.frozen);
  const doubt = isDone ? (explainRestored(ends) ?? explainStale(ends)) : undefined;
  const status = doubt ? 'partial' : sent;
  const error = as ? as.error : (missing ?? doubt ?? explainEnd(ends));
  const [ended] = await query<{ kind: RunKind; hasPlan: boolean }>(tx)`
    UPDATE slotsync.runs SET status = ${status}, counts = ${JSON.stringify(counts)}::jsonb,
      accepted = ${JSON.stringify(accepted)}::jsonb,
      error_code = ${error?.code ?? null}, error_message = ${error ? storable(error.message) : null},
      finished_at = clock_timestamp()
    WHERE id = ${id}::bigint AND finished_at IS NULL RETURNING kind, plan <> '{}'::jsonb AS "hasPlan"`;
  if (!ended) return;
  const isCancelled = status === 'cancelled';
  // No approval starts an incremental run.
  await Promise.all([
    (isCancelled || ended.kind !== 'incremental') && closeHolds(tx, id, { isCancelled }),
    !ended.hasPlan && !isCancelled && replaceEarlierRuns(tx, id),
    ended.kind === 'incremental' && closeTaken(tx, id, missing ? 'failed' : (as?.status ?? 'worked')),
    (ended.kind === 'sync' || ended.kind === 'backfill') && wakeArrived(tx),
  ]);
}

/** The status that follows from the outcomes of each stream and the ends of the batches. A run that sent less than it planned has not succeeded. */
function statusOf(counts: readonly OutcomeCounts[], batchesIn: RunEnds, isIncomplete: boolean): RunStatus {
  const isGood = counts.some(({ synced, unchanged }) => synced + unchanged > 0);
  const isBad = counts.some(({ failed, dead }) => failed + dead > 0);
  if (batchesIn.failed > 0 && !isGood) return 'failed';
  if (batchesIn.failed > 0 || isBad || isIncomplete) return 'partial';
  if (batchesIn.held > 0) return 'held';
  return batchesIn.rejected > 0 ? 'partial' : 'succeeded';
}

function explainRestored({ restoredWhy: why }: RunEnds): Failed | undefined {
  if (why === null) return undefined;
  return {
    code: 'state_restored',
    message: `the state ${why}; what was sent since its backup is not known`,
  };
}

function explainStale({ staleStreams: streams }: RunEnds): Failed | undefined {
  if (streams === null) return undefined;
  return { code: 'source_stale', message: `${streams}: the load of the mirror is not recent enough` };
}

function explainEnd({ code, message, held, rejected }: RunEnds): Failed | undefined {
  if (code !== null) return { code, message: message ?? code };
  return held === 0 && rejected > 0 ? holdRejected(rejected) : undefined;
}

/** The error of a run of which an operator rejected so many records, and nothing else failed. */
export function holdRejected(records: number): Failed {
  const what = records === 1 ? '1 record was' : `${records} records were`;
  return { code: 'hold_rejected', message: `${what} held, and an operator rejected them` };
}

/**
 * Explains what a run that is to end does not account for: batches that never ended, records without an outcome in those that
 * have, and planned records that are in no batch. Undefined: every record that was planned has its outcome, or is held.
 */
function explainMissing({ missing: rows }: RunEnds): Failed | undefined {
  if (rows.length === 0) return undefined;
  const told = rows.map(
    ({ stream, planned, ended, outcomes }) =>
      `${stream}: ${planned} records planned, ${ended} in batches that ended, ${outcomes} with an outcome or held`,
  );
  return { code: 'outcomes_missing', message: told.join('; ') };
}
