// Queries of runs: a single run, the latest runs, unfinished runs, and their progress.
import { desc, eq, inArray, isNull, sql } from 'drizzle-orm';
import { query, queryOne, type Queries } from '../database.js';
import { NO_OUTCOMES, NONE_ACCEPTED } from '../records/outcome-types.js';
import { RUN_KINDS, runs, type AcceptedCounts, type OutcomeCounts, type RunKind } from '../schema.js';
import { UsageError } from '../../errors/errors.js';

export type Run = typeof runs.$inferSelect;

export const selectRuns = (db: Queries) => db.select().from(runs);

/**
 * Returns true if the run reads all rows of its streams and leaves nothing out. Only such a run deactivates objects,
 * replaces holds, counts as a success of its streams, and makes them no longer due.
 */
export const isWhole = ({ kind, range }: Pick<Run, 'kind' | 'range'>): boolean =>
  kind === 'sync' && range === null;

/** Returns true if the run has no batches. The process that started such a run also works it. */
export const onlyReads = ({ kind }: Pick<Run, 'kind'>): boolean => kind === 'reconcile' || kind === 'verify';
/** SQL condition that equals `onlyReads`, for a row of `runs`. */
export const ONLY_READS = sql.raw(`kind IN ('reconcile', 'verify')`);

/** Kinds of runs that are listed by default. Incremental runs are left out, because each change may cause one. */
export const LISTED_KINDS = RUN_KINDS.filter((kind) => kind !== 'incremental');

export async function readRun(db: Queries, id: number): Promise<Run | undefined> {
  const [run] = await selectRuns(db).where(eq(runs.id, id));
  return run;
}

export async function listRuns(db: Queries, limit: number, kinds: readonly RunKind[] = LISTED_KINDS) {
  const isListed = inArray(runs.kind, [...kinds]);
  return selectRuns(db).where(isListed).orderBy(desc(runs.id)).limit(limit);
}

export async function listUnfinishedRuns(db: Queries): Promise<Run[]> {
  return selectRuns(db).where(isNull(runs.finishedAt)).orderBy(runs.id);
}

interface RunSums {
  outcomes: Record<string, OutcomeCounts>;
  accepted: Record<string, AcceptedCounts>;
}

export interface StreamSums {
  stream: string;
  outcomes: Partial<OutcomeCounts> | null;
  accepted: Partial<AcceptedCounts> | null;
}

/** Sums the counts of a run's batches. The query returns a row for each stream. */
export const selectSums = (id: number) => sql`
  SELECT stream, jsonb_object_agg(name, records) FILTER (WHERE what = 'outcome') AS outcomes,
    jsonb_object_agg(name, records) FILTER (WHERE what = 'operation') AS accepted
  FROM (
    SELECT stream, what, name, sum(number::int) AS records
    FROM slotsync.batches AS b CROSS JOIN LATERAL (
      SELECT 'outcome', key, value FROM jsonb_each_text(b.counts)
      UNION ALL SELECT 'operation', key, value FROM jsonb_each_text(b.accepted)
    ) AS counted(what, name, number)
    WHERE run_id = ${id}::bigint GROUP BY stream, what, name
  ) AS sums GROUP BY stream`;

/** Returns, by stream, the outcomes of a run's records so far, and its accepted writes by operation. */
export async function sumBatches(db: Queries, id: number): Promise<RunSums> {
  return toSums(await query<StreamSums>(db)`${selectSums(id)}`);
}

export function toSums(rows: readonly StreamSums[]): RunSums {
  return {
    outcomes: Object.fromEntries(rows.map((row) => [row.stream, { ...NO_OUTCOMES, ...row.outcomes }])),
    accepted: Object.fromEntries(
      rows.flatMap((row) => (row.accepted ? [[row.stream, { ...NONE_ACCEPTED, ...row.accepted }]] : [])),
    ),
  };
}

/** Progress of a run: records in its batches, records in batches that have ended, and unfinished batches. */
export interface Progress {
  total: number;
  done: number;
  batchesLeft: number;
}

export const readProgress = (db: Queries, id: number) => queryOne<Progress>(db)`
  SELECT coalesce(sum(cardinality(keys)), 0)::int AS total,
    count(*) FILTER (WHERE state NOT IN ('done', 'failed'))::int AS "batchesLeft",
    coalesce(sum(cardinality(keys)) FILTER (WHERE state IN ('done', 'failed')), 0)::int AS done
  FROM slotsync.batches WHERE run_id = ${id}::bigint AND state <> 'cancelled'`;

/** Counts a run's records by the time step in which their batches were planned and ended. Omits empty steps. */
export async function listBatchSteps(
  db: Queries,
  id: number,
  { from, seconds, steps }: { from: Date; seconds: number; steps: number },
): Promise<{ step: number; planned: number; done: number }[]> {
  return query<{ step: number; planned: number; done: number }>(db)`
    SELECT greatest(0, least(${steps - 1}::int,
        floor(extract(epoch FROM at - ${from.toISOString()}::text::timestamptz) / ${seconds}::int)))::int AS step,
      sum(planned)::int AS planned, sum(done)::int AS done
    FROM slotsync.batches AS b CROSS JOIN LATERAL (VALUES
      (b.created_at, cardinality(b.keys), 0), (b.finished_at, 0, cardinality(b.keys))) AS c(at, planned, done)
    WHERE b.run_id = ${id}::bigint AND b.state <> 'cancelled' AND at IS NOT NULL GROUP BY step ORDER BY step`;
}

export type BadReading = Pick<Run, 'id' | 'kind' | 'errorCode' | 'streams'> & {
  status: 'failed' | 'partial';
  finishedAt: Date;
};

/** SQL condition: a verify without a sample, or a reconcile of a whole window, which reaches into the future. */
const readsAll = (run: string) =>
  sql.raw(`CASE ${run}.kind WHEN 'verify' THEN ${run}.range IS NULL
    ELSE coalesce((${run}.range->>'to')::timestamptz > ${run}.requested_at + interval '1 hour', false) END`);

/** SQL condition: the run has ended with a result, and was neither cancelled nor interrupted. */
const hasSaid = (run: string) =>
  sql.raw(
    `${run}.finished_at IS NOT NULL AND ${run}.status <> 'cancelled' AND coalesce(${run}.error_code, '') <> 'interrupted'`,
  );

/** Returns failed and partial verifies and reconciles, unless a later run of the kind has read at least as much. */
export const listBadReadings = (db: Queries) => query<BadReading>(db)`
  SELECT r.id::float8 AS id, r.kind, r.status, r.error_code AS "errorCode", r.streams, r.finished_at AS "finishedAt"
  FROM slotsync.runs AS r
  WHERE r.status <> 'succeeded' AND r.${ONLY_READS} AND ${hasSaid('r')} AND NOT EXISTS (
    SELECT FROM slotsync.runs AS l WHERE l.id > r.id AND l.kind = r.kind AND ${hasSaid('l')}
      AND (${readsAll('l')} OR NOT ${readsAll('r')}))
  ORDER BY r.id DESC`;

/** Throws UsageError if the run does not exist. */
export async function findRun(db: Queries, id: number): Promise<Run> {
  const run = await readRun(db, id);
  if (run) return run;
  throw new UsageError(`there is no run ${id}`, { remedy: 'To list the runs: slotsync runs --all' });
}

/** Throws UsageError if the run does not exist or has ended. */
export async function findUnfinishedRun(db: Queries, id: number): Promise<Run> {
  const run = await findRun(db, id);
  if (run.finishedAt === null) return run;
  throw new UsageError(`run ${run.id} has ended (${run.status}); nothing was done`);
}

/** Throws UsageError if the run does not exist, has ended, or cannot be paused. */
export async function findPausableRun(db: Queries, id: number): Promise<Run> {
  const run = await findUnfinishedRun(db, id);
  if (!onlyReads(run)) return run;
  throw new UsageError(`run ${run.id} cannot be paused, because a ${run.kind} only reads`, {
    remedy: `To end it: slotsync cancel ${run.id}`,
  });
}
