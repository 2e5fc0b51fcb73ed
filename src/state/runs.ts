// The life of a run: planning → running → succeeded | partial | failed, or held where a person must approve.
// A run moves on in the same transaction that finishes one of its batches, so no crash can leave it between.
import { and, desc, eq, inArray, isNotNull, isNull, lt, sql } from 'drizzle-orm';
import { queryState, type Queries } from './database.js';
import { NO_OUTCOMES } from './outcomes.js';
import {
  batches,
  runs,
  type OutcomeCounts,
  type PlanCounts,
  type RunKind,
  type RunStatus,
} from './schema.js';

export type Run = typeof runs.$inferSelect;

/** Serializes the start of runs, so that two never cover one stream. */
const START_LOCK = 'slotsync run start';

/** How long finished runs and their batches are kept, in days. */
const KEEP_RUNS_DAYS = 365;
const KEEP_BATCHES_DAYS = 14;

/** Starts a run, unless an unfinished one covers any of its streams: then that one is the answer. */
export async function startRun(
  db: Queries,
  request: { kind: RunKind; lane: string; streams: readonly string[] },
): Promise<{ run: Run; started: boolean }> {
  return queryState(() =>
    db.transaction(async (tx) => {
      await tx.execute(sql`SELECT pg_advisory_xact_lock(hashtextextended(${START_LOCK}, 0))`);
      const [running] = await tx
        .select()
        .from(runs)
        .where(and(isNull(runs.finishedAt), sql`${runs.streams} && ${textArray(request.streams)}`))
        .limit(1);
      if (running) return { run: running, started: false };
      const [run] = await tx
        .insert(runs)
        .values({ kind: request.kind, lane: request.lane, streams: [...request.streams], status: 'planning' })
        .returning();
      if (!run) throw new Error('the run was not written');
      return { run, started: true };
    }),
  );
}

export async function readRun(db: Queries, id: number): Promise<Run | undefined> {
  const [run] = await queryState(() => db.select().from(runs).where(eq(runs.id, id)));
  return run;
}

/** The latest runs, newest first. */
export async function listRuns(db: Queries, limit: number): Promise<Run[]> {
  return queryState(() => db.select().from(runs).orderBy(desc(runs.id)).limit(limit));
}

export async function listUnfinishedRuns(db: Queries): Promise<Run[]> {
  return queryState(() => db.select().from(runs).where(isNull(runs.finishedAt)).orderBy(runs.id));
}

/** Marks the plan as complete; from here on the run is its batches. Returns the batches that may go first. */
export async function finishPlanning(
  db: Queries,
  id: number,
  planned: { plan: Record<string, PlanCounts>; holds: Record<string, string> },
): Promise<number[]> {
  return queryState(() =>
    db.transaction(async (tx) => {
      await tx
        .update(runs)
        .set({ status: 'running', startedAt: new Date(), plan: planned.plan, holds: planned.holds })
        .where(and(eq(runs.id, id), eq(runs.status, 'planning')));
      return advanceRun(tx, id);
    }),
  );
}

/** Ends a run that cannot go on; its unfinished batches are cancelled, their records stay as they are. */
export async function failRun(
  db: Queries,
  id: number,
  error: { code: string; message: string },
): Promise<void> {
  await queryState(() =>
    db.transaction(async (tx) => {
      await tx
        .update(batches)
        .set({ state: 'cancelled', finishedAt: new Date() })
        .where(and(eq(batches.runId, id), inArray(batches.state, ['planned', 'queued', 'held'])));
      await finishRun(tx, id, 'failed', error);
    }),
  );
}

/**
 * Lets a run take its next step: queue the next level of batches when the one before is finished, or end.
 * Call it in the transaction that finished a batch. Returns the batches to queue once that is committed.
 */
export async function advanceRun(tx: Queries, id: number): Promise<number[]> {
  const [run] = await tx.select().from(runs).where(eq(runs.id, id)).for('update');
  if (!run || run.finishedAt !== null || run.status === 'planning') return [];
  const [open] = await tx
    .select({
      queued: sql<number>`count(*) FILTER (WHERE state = 'queued')::int`,
      next: sql<number | null>`min(level) FILTER (WHERE state = 'planned')`,
    })
    .from(batches)
    .where(and(eq(batches.runId, id), inArray(batches.state, ['queued', 'planned'])));
  if (!open || open.queued > 0) return [];
  if (open.next !== null) {
    const queued = await tx
      .update(batches)
      .set({ state: 'queued' })
      .where(and(eq(batches.runId, id), eq(batches.state, 'planned'), eq(batches.level, open.next)))
      .returning({ id: batches.id });
    return queued.map((batch) => batch.id).sort((a, b) => a - b);
  }
  await finishRun(tx, id, undefined);
  return [];
}

async function finishRun(
  tx: Queries,
  id: number,
  forced: RunStatus | undefined,
  error?: { code: string; message: string },
): Promise<void> {
  const counts = await sumOutcomes(tx, id);
  const [tally] = await tx
    .select({
      held: sql<number>`count(*) FILTER (WHERE state = 'held')::int`,
      failed: sql<number>`count(*) FILTER (WHERE state = 'failed')::int`,
      code: sql<string | null>`min(error_code) FILTER (WHERE state = 'failed')`,
      message: sql<string | null>`min(error_message) FILTER (WHERE state = 'failed')`,
    })
    .from(batches)
    .where(eq(batches.runId, id));
  const all = Object.values(counts);
  const bad = all.some(({ failed, dead }) => failed + dead > 0);
  const good = all.some(({ synced, unchanged }) => synced + unchanged > 0);
  const failedBatches = tally?.failed ?? 0;
  const status =
    forced ??
    (failedBatches > 0 && !good
      ? 'failed'
      : bad || failedBatches > 0
        ? 'partial'
        : (tally?.held ?? 0) > 0
          ? 'held'
          : 'succeeded');
  await tx
    .update(runs)
    .set({
      status,
      counts,
      finishedAt: new Date(),
      errorCode: error?.code ?? tally?.code ?? null,
      errorMessage: error?.message ?? tally?.message ?? null,
    })
    .where(and(eq(runs.id, id), isNull(runs.finishedAt)));
}

/** Per stream, what became of a run's records so far. */
export async function sumOutcomes(db: Queries, id: number): Promise<Record<string, OutcomeCounts>> {
  const rows = await queryState(() =>
    db
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
      .groupBy(batches.stream),
  );
  return Object.fromEntries(rows.map(({ stream, ...counts }) => [stream, { ...NO_OUTCOMES, ...counts }]));
}

function sum(outcome: keyof OutcomeCounts) {
  return sql<number>`coalesce(sum((counts->>${sql.raw(`'${outcome}'`)})::int), 0)::int`;
}

/** How far a run is: records in batches, and how many of them have their outcome. */
export async function readProgress(db: Queries, id: number): Promise<{ total: number; done: number }> {
  const [row] = await queryState(() =>
    db
      .select({
        total: sql<number>`coalesce(sum(cardinality(keys)), 0)::int`,
        done: sql<number>`coalesce(sum(cardinality(keys)) FILTER (WHERE state IN ('done', 'failed')), 0)::int`,
      })
      .from(batches)
      .where(and(eq(batches.runId, id), sql`state NOT IN ('held', 'cancelled')`)),
  );
  return row ?? { total: 0, done: 0 };
}

/** Deletes runs and batches that are older than they are kept. */
export async function pruneRuns(db: Queries): Promise<void> {
  const before = (days: number) => sql`now() - make_interval(days => ${days})`;
  await queryState(async () => {
    await db.delete(runs).where(lt(runs.finishedAt, before(KEEP_RUNS_DAYS)));
    await db.execute(sql`
      DELETE FROM slotsync.batches AS b USING slotsync.runs AS r
      WHERE r.id = b.run_id AND r.finished_at < ${before(KEEP_BATCHES_DAYS)} AND b.state <> 'held'`);
  });
}

function textArray(values: readonly string[]) {
  return sql`ARRAY(SELECT jsonb_array_elements_text(${JSON.stringify(values)}::jsonb))`;
}
