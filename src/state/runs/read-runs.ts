// What is asked of runs: one, the latest, the unfinished ones, and how far they are.
import { desc, eq, inArray, isNull, sql } from 'drizzle-orm';
import { query, queryOne, type Queries } from '../database.js';
import { NO_OUTCOMES, NONE_ACCEPTED } from '../records/outcome-types.js';
import { RUN_KINDS, runs, type AcceptedCounts, type OutcomeCounts, type RunKind } from '../schema.js';

export type Run = typeof runs.$inferSelect;

/** A run without batches, which the process that started it works: a reconcile, or a verify that repairs nothing. */
export const onlyReads = ({ kind, range }: Pick<Run, 'kind' | 'range'>): boolean =>
  kind === 'reconcile' || (kind === 'verify' && range?.repair !== true);
/** The same in SQL, of a row of `runs`. */
export const ONLY_READS = sql.raw(
  `(kind = 'reconcile' OR kind = 'verify' AND NOT coalesce((range->>'repair')::boolean, false))`,
);

/** What is listed unless asked otherwise: incremental runs may be as many as there are changes. */
export const LISTED_KINDS = RUN_KINDS.filter((kind) => kind !== 'incremental');

export async function readRun(db: Queries, id: number): Promise<Run | undefined> {
  const [run] = await db.select().from(runs).where(eq(runs.id, id));
  return run;
}

/** The latest runs of these kinds, newest first. */
export async function listRuns(db: Queries, limit: number, kinds: readonly RunKind[] = LISTED_KINDS) {
  const isListed = inArray(runs.kind, [...kinds]);
  return db.select().from(runs).where(isListed).orderBy(desc(runs.id)).limit(limit);
}

/** When the first sync or backfill that is still stored was asked for. */
export async function readFirstRequest(db: Queries): Promise<Date | undefined> {
  const sends = inArray(runs.kind, ['sync', 'backfill']);
  const [first] = await db.select().from(runs).where(sends).orderBy(runs.id).limit(1);
  return first?.requestedAt;
}

export async function listUnfinishedRuns(db: Queries): Promise<Run[]> {
  return db.select().from(runs).where(isNull(runs.finishedAt)).orderBy(runs.id);
}

interface RunSums {
  outcomes: Record<string, OutcomeCounts>;
  /** What the service accepted. */
  accepted: Record<string, AcceptedCounts>;
}

/** Per stream, the outcomes of a run's records so far, and its accepted writes by operation. */
export async function sumBatches(db: Queries, id: number): Promise<RunSums> {
  const rows = await query<{
    stream: string;
    outcomes: Partial<OutcomeCounts> | null;
    accepted: Partial<AcceptedCounts> | null;
  }>(db)`
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
  return {
    outcomes: Object.fromEntries(rows.map((row) => [row.stream, { ...NO_OUTCOMES, ...row.outcomes }])),
    accepted: Object.fromEntries(
      rows.flatMap((row) => (row.accepted ? [[row.stream, { ...NONE_ACCEPTED, ...row.accepted }]] : [])),
    ),
  };
}

/** How far a run is: records in its batches, and how many of them have their outcome. */
export async function readProgress(db: Queries, id: number): Promise<{ total: number; done: number }> {
  return queryOne<{ total: number; done: number }>(db)`
    SELECT coalesce(sum(cardinality(keys)), 0)::int AS total,
      coalesce(sum(cardinality(keys)) FILTER (WHERE state IN ('done', 'failed')), 0)::int AS done
    FROM slotsync.batches WHERE run_id = ${id}::bigint AND state NOT IN ('held', 'cancelled')`;
}
