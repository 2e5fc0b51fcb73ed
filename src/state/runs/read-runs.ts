// What is asked of runs: one, the latest, the unfinished ones, and how far they are.
import { and, desc, eq, inArray, isNotNull, isNull, notInArray, sql } from 'drizzle-orm';
import type { Queries } from '../database.js';
import { NO_OUTCOMES } from '../records/outcomes.js';
import { batches, RUN_KINDS, runs, type OutcomeCounts, type RunKind } from '../schema.js';

export type Run = typeof runs.$inferSelect;

/** What is listed unless asked otherwise: incremental runs may be as many as there are changes. */
export const LISTED_KINDS = RUN_KINDS.filter((kind) => kind !== 'incremental');

export async function readRun(db: Queries, id: number): Promise<Run | undefined> {
  const [run] = await db.select().from(runs).where(eq(runs.id, id));
  return run;
}

/** The latest runs of these kinds, newest first. */
export async function listRuns(
  db: Queries,
  limit: number,
  kinds: readonly RunKind[] = LISTED_KINDS,
): Promise<Run[]> {
  const isListed = inArray(runs.kind, [...kinds]);
  return db.select().from(runs).where(isListed).orderBy(desc(runs.id)).limit(limit);
}

export async function listUnfinishedRuns(db: Queries): Promise<Run[]> {
  return db.select().from(runs).where(isNull(runs.finishedAt)).orderBy(runs.id);
}

/** Per stream, the outcomes of a run's records so far. */
export async function sumOutcomes(db: Queries, id: number): Promise<Record<string, OutcomeCounts>> {
  const sum = (outcome: keyof OutcomeCounts) =>
    sql<number>`coalesce(sum((counts->>${sql.raw(`'${outcome}'`)})::int), 0)::int`;
  const rows = await db
    .select({
      stream: batches.stream,
      synced: sum('synced'),
      unchanged: sum('unchanged'),
      deferred: sum('deferred'),
      failed: sum('failed'),
      dead: sum('dead'),
    })
    .from(batches)
    .where(and(eq(batches.runId, id), isNotNull(batches.counts)))
    .groupBy(batches.stream);
  return Object.fromEntries(rows.map(({ stream, ...counts }) => [stream, { ...NO_OUTCOMES, ...counts }]));
}

/** How far a run is: records in its batches, and how many of them have their outcome. */
export async function readProgress(db: Queries, id: number): Promise<{ total: number; done: number }> {
  const [row] = await db
    .select({
      total: sql<number>`coalesce(sum(cardinality(keys)), 0)::int`,
      done: sql<number>`coalesce(sum(cardinality(keys)) FILTER (WHERE state IN ('done', 'failed')), 0)::int`,
    })
    .from(batches)
    .where(and(eq(batches.runId, id), notInArray(batches.state, ['held', 'cancelled'])));
  return row ?? { total: 0, done: 0 };
}
