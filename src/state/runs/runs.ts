// The life of a run: planning → running → succeeded | partial | failed, or held where a person must approve.
// A run moves on when one of its batches was the last of its level; a crash in between is made good by the sweep.
import { and, desc, eq, inArray, isNotNull, isNull, lt, ne, notInArray, sql } from 'drizzle-orm';
import { useApprovals } from './approvals.js';
import { closeTaken } from '../inbox/changes.js';
import { arrayLiteral } from '../../sql-text.js';
import { queryState, type Queries } from '../database.js';
import { NO_OUTCOMES } from '../records/outcomes.js';
import {
  batches,
  RUN_KINDS,
  runs,
  type Holds,
  type OutcomeCounts,
  type PlanCounts,
  type RunKind,
  type RunRange,
  type RunStatus,
} from '../schema.js';

export type Run = typeof runs.$inferSelect;

/** Serializes the start of runs, so that two never cover one stream. */
const START_LOCK = 'slotsync run start';

/** How long finished runs and their batches are kept, in days. */
const KEEP_RUNS_DAYS = 365;
const KEEP_BATCHES_DAYS = 14;
/** Incremental runs may be as many as there are changes, and workers reconcile every few minutes. */
const KEEP_INCREMENTAL_DAYS = 14;
const FREQUENT: RunKind[] = ['incremental', 'reconcile'];

export interface RunRequest {
  kind: RunKind;
  lane: string;
  streams: readonly string[];
  range?: RunRange | undefined;
}

/**
 * Starts a run, unless an unfinished one covers any of its streams: then that one is the answer. Incremental runs do not
 * count: they cover single keys, which batches claim.
 */
export async function startRun(db: Queries, request: RunRequest): Promise<{ run: Run; started: boolean }> {
  return queryState(() =>
    db.transaction(async (tx) => {
      const [running] = await lockUnfinished(tx, request.streams);
      if (running) return { run: running, started: false };
      return { run: await insertRun(tx, request), started: true };
    }),
  );
}

/**
 * Starts a run over those of its streams that no unfinished run covers, if there are any. `busy`: the runs that cover
 * the others, with the streams that are left to each.
 */
export async function startFreeRun(
  db: Queries,
  request: RunRequest,
): Promise<{ run: Run | undefined; busy: { run: Run; streams: string[] }[] }> {
  return queryState(() =>
    db.transaction(async (tx) => {
      const unfinished = await lockUnfinished(tx, request.streams);
      const covered = new Set(unfinished.flatMap((run) => run.streams));
      const free = request.streams.filter((stream) => !covered.has(stream));
      return {
        run: free.length === 0 ? undefined : await insertRun(tx, { ...request, streams: free }),
        busy: unfinished.map((run) => ({
          run,
          streams: request.streams.filter((stream) => run.streams.includes(stream)),
        })),
      };
    }),
  );
}

/** The unfinished runs that cover any of these streams; until the transaction ends nobody else starts one. */
async function lockUnfinished(tx: Queries, streams: readonly string[]): Promise<Run[]> {
  await tx.execute(sql`SELECT pg_advisory_xact_lock(hashtextextended(${START_LOCK}, 0))`);
  return tx
    .select()
    .from(runs)
    .where(
      and(
        isNull(runs.finishedAt),
        ne(runs.kind, 'incremental'),
        sql`${runs.streams} && ${arrayLiteral(streams)}::text[]`,
      ),
    )
    .orderBy(runs.id);
}

async function insertRun(tx: Queries, { kind, lane, streams, range }: RunRequest): Promise<Run> {
  const [run] = await tx
    .insert(runs)
    .values({ kind, lane, streams: [...streams], range: range ?? null, status: 'planning' })
    .returning();
  if (!run) throw new Error('the run was not written');
  return run;
}

export async function readRun(db: Queries, id: number): Promise<Run | undefined> {
  const [run] = await queryState(() => db.select().from(runs).where(eq(runs.id, id)));
  return run;
}

/** What is listed unless asked otherwise: incremental runs may be as many as there are changes. */
export const LISTED_KINDS = RUN_KINDS.filter((kind) => kind !== 'incremental');

/** The latest runs of these kinds, newest first. */
export async function listRuns(
  db: Queries,
  limit: number,
  kinds: readonly RunKind[] = LISTED_KINDS,
): Promise<Run[]> {
  return queryState(() =>
    db
      .select()
      .from(runs)
      .where(inArray(runs.kind, [...kinds]))
      .orderBy(desc(runs.id))
      .limit(limit),
  );
}

export async function listUnfinishedRuns(db: Queries): Promise<Run[]> {
  return queryState(() => db.select().from(runs).where(isNull(runs.finishedAt)).orderBy(runs.id));
}

/**
 * Marks the plan as complete; from here on the run is its batches. Returns the batches that may go first. Throws
 * SlotsyncError `approval_withdrawn` when the plan relies on an approval that is none any more.
 */
export async function finishPlanning(
  db: Queries,
  id: number,
  planned: { plan: Record<string, PlanCounts>; holds: Holds; approvals?: readonly number[] },
): Promise<number[]> {
  return queryState(() =>
    db.transaction(async (tx) => {
      const [started] = await tx
        .update(runs)
        .set({ status: 'running', startedAt: new Date(), plan: planned.plan, holds: planned.holds })
        .where(and(eq(runs.id, id), eq(runs.status, 'planning')))
        .returning({ id: runs.id });
      if (started) await useApprovals(tx, planned.approvals ?? [], id);
      return takeStep(tx, id);
    }),
  );
}

/** Ends a run that cannot go on; its unfinished batches are cancelled, their records stay as they are. */
export async function failRun(
  db: Queries,
  id: number,
  error: { code: string; message: string },
): Promise<void> {
  await endRun(db, id, 'failed', error);
}

/** Ends a run that nobody wants any more, in the same way. */
export async function cancelRun(db: Queries, id: number): Promise<void> {
  await endRun(db, id, 'cancelled');
}

async function endRun(
  db: Queries,
  id: number,
  status: 'failed' | 'cancelled',
  error?: { code: string; message: string },
): Promise<void> {
  await queryState(() =>
    db.transaction(async (tx) => {
      await tx
        .update(batches)
        .set({ state: 'cancelled', finishedAt: new Date() })
        .where(and(eq(batches.runId, id), inArray(batches.state, ['planned', 'queued', 'held'])));
      await finishRun(tx, id, status, error);
    }),
  );
}

/** Pauses or resumes unfinished runs: one, or all that go through the queue but the incremental ones. Returns those that were changed. */
export async function setPaused(db: Queries, paused: boolean, id?: number): Promise<number[]> {
  const rows = await queryState(() =>
    db
      .update(runs)
      .set({ pausedAt: paused ? sql`now()` : null })
      .where(
        and(
          isNull(runs.finishedAt),
          paused ? isNull(runs.pausedAt) : isNotNull(runs.pausedAt),
          id === undefined ? notInArray(runs.kind, ['incremental', 'reconcile']) : eq(runs.id, id),
        ),
      )
      .returning({ id: runs.id }),
  );
  return rows.map((run) => run.id).sort((a, b) => a - b);
}

/**
 * Lets a run take its next step, if it is time: queue the next level of batches when the one before is finished, or
 * end. Call it once a batch is finished and that is committed, so that of several that finish at once the last one sees
 * all others; in their own transactions each would wait for the run's row, one after the other. Whoever crashes before
 * it leaves that to the next sweep. Returns the batches to queue.
 */
export async function advanceRun(db: Queries, id: number): Promise<number[]> {
  return queryState(async () => {
    const queued = await db
      .select({ id: batches.id })
      .from(batches)
      .where(and(eq(batches.runId, id), eq(batches.state, 'queued')))
      .limit(1);
    return queued.length > 0 ? [] : db.transaction((tx) => takeStep(tx, id));
  });
}

async function takeStep(tx: Queries, id: number): Promise<number[]> {
  const [run] = await tx.select().from(runs).where(eq(runs.id, id)).for('update');
  // A reconcile has no batches: whoever works it ends it.
  if (!run || run.finishedAt !== null || run.status === 'planning' || run.kind === 'reconcile') return [];
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
  const [ended] = await tx
    .update(runs)
    .set({
      status,
      counts,
      finishedAt: new Date(),
      errorCode: error?.code ?? tally?.code ?? null,
      errorMessage: error?.message ?? tally?.message ?? null,
    })
    .where(and(eq(runs.id, id), isNull(runs.finishedAt)))
    .returning({ kind: runs.kind });
  if (ended?.kind === 'incremental') await closeTaken(tx, id, forced === 'failed' ? 'failed' : 'worked');
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
    await db
      .delete(runs)
      .where(and(inArray(runs.kind, FREQUENT), lt(runs.finishedAt, before(KEEP_INCREMENTAL_DAYS))));
    await db.execute(sql`
      DELETE FROM slotsync.batches AS b USING slotsync.runs AS r
      WHERE r.id = b.run_id AND r.finished_at < ${before(KEEP_BATCHES_DAYS)} AND b.state <> 'held'`);
  });
}
