// Ends runs: with a status that follows from the batches, or early as failed or cancelled.
import { query, queryCount, queryOne, type Queries } from '../database.js';
import { closeTaken } from '../inbox/take-changes.js';
import type { OutcomeCounts, RunStatus } from '../schema.js';
import { storable } from '../records/outcome-types.js';
import { wakeArrived } from '../records/wake-waiting.js';
import { cancelBatches } from './batches.js';
import { asPlanner, PlannerReplaced, type Planner } from './claim-planning.js';
import { markDue, noteEndedWhole, noteProblems } from '../streams.js';
import { withdrawApprovals } from '../gates/answers.js';
import { withdrawWishes } from '../records/retry-records.js';
import {
  isWhole,
  ONLY_READS,
  onlyReads,
  selectSums,
  toSums,
  type Run,
  type StreamSums,
} from './read-runs.js';

export interface Failed {
  code: string;
  message: string;
}

/** End of a run before all of its batches have ended. */
type EarlyEnd = { status: 'failed'; error: Failed } | { status: 'cancelled'; error?: Failed };

/** Ends a run as failed. Its unfinished batches are cancelled, and their records stay as they are. */
export async function failRun(db: Queries, id: number, error: Failed): Promise<void> {
  await endEarly(db, id, { status: 'failed', error });
}

/** Fails a run that cannot be planned, unless another process plans the run by now. */
export async function failPlanning(db: Queries, planner: Planner, error: Failed): Promise<void> {
  try {
    await asPlanner(db, planner, (tx) => failRun(tx, planner.runId, error));
  } catch (thrown) {
    if (!(thrown instanceof PlannerReplaced)) throw thrown;
  }
}

/** Ends a run that an operator cancelled, and withdraws its approvals and wishes. */
export async function cancelRun(db: Queries, id: number): Promise<void> {
  await db.transaction(async (tx) => {
    await endEarly(tx, id, { status: 'cancelled' });
    await withdrawApprovals(tx, id);
    await withdrawWishes(tx, id);
  });
}

/** Cancels a run that no process may work any more. The next run sends what this run has not sent. */
export async function replaceRun(db: Queries, id: number): Promise<void> {
  const message =
    'the configuration changed before the run had ended, and no process has the former configuration';
  await endEarly(db, id, { status: 'cancelled', error: { code: 'configuration_changed', message } });
}

async function endEarly(db: Queries, id: number, as: EarlyEnd): Promise<void> {
  await db.transaction(async (tx) => {
    // Locks the run, so that no planner adds batches. Batches that are being settled do not wait for this lock.
    const unfinished = await queryCount(tx)`
      SELECT FROM slotsync.runs WHERE id = ${id}::bigint AND finished_at IS NULL FOR NO KEY UPDATE`;
    if (unfinished === 0) return;
    await cancelBatches(tx, id);
    await finishRun(tx, id, { as });
  });
}

export interface RunEnds {
  run: Pick<Run, 'kind' | 'range' | 'streams' | 'plan' | 'holds'>;
  /** `isOpen`: a batch is queued or in flight. `isWaiting`: a batch waits for its level. */
  isOpen: boolean;
  isWaiting: boolean;
  hasDeferred: boolean;
  failed: number;
  failedStreams: string[];
  /** Error of the first batch that failed. */
  code: string | null;
  message: string | null;
  sums: StreamSums[];
  /** Streams whose numbers of planned records and of outcomes differ. See `explainMissing`. */
  missing: { stream: string; planned: number; ended: number; outcomes: number }[];
  /** Reason why the state counts as restored. Null if it does not, or if the run only reads. */
  restoredWhy: string | null;
}

/** Reads everything in one statement, because every change causes a run, and each run calls this at its end. */
export const readEnds = (tx: Queries, id: number) => queryOne<RunEnds>(tx)`
  WITH planned AS (
    SELECT key AS stream, (value->>'inBatches')::int AS records
    FROM slotsync.runs CROSS JOIN LATERAL jsonb_each(plan) WHERE id = ${id}::bigint
  ), batched AS (
    SELECT stream, state, cardinality(keys) AS records, CASE
        WHEN state = 'cancelled' THEN cardinality(keys)
        ELSE (SELECT sum(number::int) FROM jsonb_each_text(counts) AS c(outcome, number)) END AS outcomes
    FROM slotsync.batches WHERE run_id = ${id}::bigint
  ), streams AS (
    SELECT stream, coalesce((SELECT records FROM planned AS p WHERE p.stream = s.stream), sum(records), 0)::int AS planned,
      coalesce(sum(records) FILTER (WHERE state NOT IN ('planned', 'queued')), 0)::int AS ended,
      coalesce(sum(outcomes) FILTER (WHERE state NOT IN ('planned', 'queued')), 0)::int AS outcomes
    FROM (SELECT stream FROM planned UNION SELECT stream FROM batched) AS s LEFT JOIN batched USING (stream)
    GROUP BY stream
  )
  SELECT (SELECT jsonb_build_object('kind', kind, 'range', range, 'streams', streams, 'plan', plan, 'holds', holds)
      FROM slotsync.runs WHERE id = ${id}::bigint) AS run,
    coalesce(bool_or(state = 'queued'), false) AS "isOpen", coalesce(bool_or(state = 'planned'), false) AS "isWaiting",
    coalesce(bool_or((counts->>'deferred')::int > 0), false) AS "hasDeferred",
    count(*) FILTER (WHERE state = 'failed')::int AS failed,
    coalesce(array_agg(DISTINCT stream) FILTER (WHERE state = 'failed'), '{}') AS "failedStreams",
    (array_agg(error_code ORDER BY id) FILTER (WHERE state = 'failed'))[1] AS code,
    (array_agg(error_message ORDER BY id) FILTER (WHERE state = 'failed'))[1] AS message,
    (SELECT coalesce(jsonb_agg(s), '[]') FROM (${selectSums(id)}) AS s) AS sums,
    (SELECT coalesce(jsonb_agg(s ORDER BY stream), '[]') FROM streams AS s
      WHERE planned <> ended OR planned <> outcomes) AS missing,
    (SELECT d.restored_why FROM slotsync.databases AS d, slotsync.runs AS r
      WHERE d.name = 'state' AND d.restored_at IS NOT NULL AND r.id = ${id}::bigint AND NOT r.${ONLY_READS}) AS "restoredWhy"
  FROM slotsync.batches WHERE run_id = ${id}::bigint`;

/** Ends a run. Its status follows from its batches, unless `as` names another end. */
export async function finishRun(
  tx: Queries,
  id: number,
  { as, ends: known }: { as?: EarlyEnd; ends?: RunEnds } = {},
): Promise<void> {
  const ends = known ?? (await readEnds(tx, id));
  const { outcomes: counts, accepted } = toSums(ends.sums);
  const missing = as ? undefined : explainMissing(ends);
  const sent = as?.status ?? statusOf(Object.values(counts), ends, missing !== undefined);
  const doubt = isDone(sent, ends) ? (explainRestored(ends) ?? explainStale(ends)) : undefined;
  const status = doubt ? 'partial' : sent;
  const error = as ? as.error : (missing ?? doubt ?? explainEnd(ends));
  const { kind } = ends.run;
  // Sent together: no statement needs the answer of another, because whoever ends a run with batches has locked its row.
  await Promise.all([
    query(tx)`
      UPDATE slotsync.runs SET status = ${status}, counts = ${JSON.stringify(counts)}::jsonb,
        accepted = ${JSON.stringify(accepted)}::jsonb,
        error_code = ${error?.code ?? null}, error_message = ${error ? storable(error.message) : null},
        finished_at = clock_timestamp()
      WHERE id = ${id}::bigint AND finished_at IS NULL`,
    kind === 'incremental' && closeTaken(tx, id, missing ? 'failed' : (as?.status ?? 'worked')),
    // Also wakes records after an early end: the run would have sent those that wait for a record of their own stream.
    (kind === 'sync' || kind === 'backfill' || as !== undefined) && wakeArrived(tx),
    !onlyReads(ends.run) && noteStreams(tx, id, { ends, counts, as, missing }),
  ]);
}

interface RunEnd {
  ends: RunEnds;
  counts: Record<string, OutcomeCounts>;
  as: EarlyEnd | undefined;
  missing: Failed | undefined;
}

/** Stores what the end of the run means for its streams: problems, due syncs and successes. */
async function noteStreams(tx: Queries, runId: number, { ends, counts, as, missing }: RunEnd): Promise<void> {
  const { kind, streams, plan, holds } = ends.run;
  const whole = isWhole(ends.run);
  const problem = { runId, runKind: kind, isWhole: whole, failed: 0, dead: 0 };
  if (as?.status === 'failed') await noteProblems(tx, streams, { ...problem, status: 'failed', ...as.error });
  const isUnsent = as !== undefined || missing !== undefined;
  // Unsent keys of an incremental run stay in the inbox, and those of a repair are sent again later. No sync is due.
  const isCancelled = as?.status === 'cancelled' && !as.error;
  if (isUnsent && kind !== 'incremental' && kind !== 'repair')
    await markDue(tx, streams, isCancelled ? 'cancelled' : 'failed', { replaces: isCancelled && whole });
  for (const { stream } of ends.missing)
    if (missing) await noteProblems(tx, [stream], { ...problem, status: 'partial', ...missing });
  if (!whole || as) return;
  const fine: string[] = [];
  const synced: string[] = [];
  for (const stream of Object.keys(plan)) {
    const { failed = 0, dead = 0, synced: sent = 0, unchanged = 0 } = counts[stream] ?? {};
    const hasFailed = ends.failedStreams.includes(stream);
    if (!hasFailed && failed + dead === 0) {
      if (!missing) fine.push(stream);
      const isHeld = Object.values(holds[stream] ?? {}).some(
        ({ reason, isRejected }) => reason !== 'frozen' && !isRejected,
      );
      const isKnown = !missing && ends.restoredWhy === null && !plan[stream]?.staleLoad;
      if (isKnown && !isHeld) synced.push(stream);
      continue;
    }
    const { code, message } = hasFailed ? ends : { code: null, message: null };
    const status = hasFailed && sent + unchanged === 0 ? 'failed' : 'partial';
    await noteProblems(tx, [stream], { ...problem, status, code, message, failed, dead });
  }
  await noteEndedWhole(tx, { fine, synced });
}

/** Returns true if everything was sent except what a freeze holds. */
const isDone = (status: RunStatus, { run: { holds } }: RunEnds): boolean =>
  status === 'succeeded' ||
  (status === 'held' &&
    Object.values(holds).every((held) => Object.values(held).every(({ reason }) => reason === 'frozen')));

/** Derives the status from outcomes and batches. A run that sent less than it planned has not succeeded. */
function statusOf(counts: readonly OutcomeCounts[], batchesIn: RunEnds, isIncomplete: boolean): RunStatus {
  const isGood = counts.some(({ synced, unchanged }) => synced + unchanged > 0);
  const isBad = counts.some(({ failed, dead }) => failed + dead > 0);
  if (batchesIn.failed > 0 && !isGood) return 'failed';
  if (batchesIn.failed > 0 || isBad || isIncomplete) return 'partial';
  return Object.keys(batchesIn.run.holds).length > 0 ? 'held' : 'succeeded';
}

function explainRestored({ restoredWhy: why }: RunEnds): Failed | undefined {
  if (why === null) return undefined;
  return {
    code: 'state_restored',
    message: `the state ${why}; writes since its backup are unknown`,
  };
}

function explainStale({ run: { plan } }: RunEnds): Failed | undefined {
  const streams = Object.keys(plan).filter((stream) => plan[stream]?.staleLoad);
  if (streams.length === 0) return undefined;
  const message = `${streams.toSorted().join(', ')}: the load of the mirror is too old or has no valid time`;
  return { code: 'source_stale', message };
}

const explainEnd = ({ code, message }: RunEnds): Failed | undefined =>
  code === null ? undefined : { code, message: message ?? code };

/**
 * Explains planned records without an outcome: in unfinished batches, in ended batches, or in no batch. Returns
 * undefined if every planned record has an outcome or is held by a gate.
 */
function explainMissing({ missing: rows }: RunEnds): Failed | undefined {
  if (rows.length === 0) return undefined;
  const told = rows.map(
    ({ stream, planned, ended, outcomes }) =>
      `${stream}: ${planned} records planned, ${ended} in ended batches, ${outcomes} with an outcome`,
  );
  return { code: 'outcomes_missing', message: told.join('; ') };
}
