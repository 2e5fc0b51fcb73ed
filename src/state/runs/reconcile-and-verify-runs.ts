// Life of a run that only reads: a reconcile, or a verify without repair. There is one run of a kind at a time, worked
// by the process that started it. An interrupted run is not resumed: it fails, and the next run reads everything again.
import { and, eq, isNull } from 'drizzle-orm';
import { queryCount, type Queries, type State } from '../database.js';
import { SlotsyncError } from '../../errors/errors.js';
import { describeHolders, tryLock, whileHolding } from '../locks.js';
import { runs } from '../schema.js';
import { failRun, finishRun } from './end-run.js';
import { onlyReads } from './read-runs.js';
import { insertRun, type RunRequest } from './start-run.js';

type ReadingKind = 'reconcile' | 'verify';

/**
 * Calls `run` while holding the lock of the kind. Returns undefined if another process holds the lock. A transaction
 * that does nothing else holds the lock, so that the lock ends with the process and works behind a pooler.
 */
export async function whileReadingAlone<T>(
  { db }: State,
  kind: ReadingKind,
  run: () => Promise<T>,
): Promise<{ result: T } | undefined> {
  let done: { result: T } | undefined;
  try {
    await db.transaction(async (tx) => {
      if (!(await tryLock(tx, kind))) return;
      done = { result: await whileHolding(tx, run) };
    });
  } catch (error) {
    // If the lock was lost after `run` ended, its result is still valid.
    if (done === undefined) throw error;
  }
  return done;
}

/** Error of a command that finds the lock held by another process. */
export async function alreadyRunning({ db }: State, kind: ReadingKind): Promise<SlotsyncError> {
  return new SlotsyncError(
    `${kind}_running`,
    `another ${kind} is running: ${await describeHolders(db, kind)}`,
  );
}

/**
 * Starts a run that only reads. The caller holds the lock, so unfinished runs of the kind were interrupted. They fail.
 */
export async function startReading(
  db: Queries,
  request: RunRequest & { kind: ReadingKind },
): Promise<number> {
  const isUnfinished = and(eq(runs.kind, request.kind), isNull(runs.finishedAt));
  for (const run of await db.select().from(runs).where(isUnfinished))
    if (onlyReads(run))
      await failRun(db, run.id, {
        code: 'interrupted',
        message: 'the process of the run ended before the run did',
      });
  return (await insertRun(db, request, 'running')).id;
}

/**
 * Deletes a run that found nothing to compare. Otherwise a run would be listed every few minutes. If the run before
 * failed, this run is kept as succeeded, because the failure has been reported.
 */
export async function dropReading(db: Queries, id: number): Promise<void> {
  const dropped = await queryCount(db)`
    DELETE FROM slotsync.runs AS r WHERE id = ${id}::bigint AND coalesce((
      SELECT l.status <> 'failed' FROM slotsync.runs AS l WHERE l.kind = r.kind AND l.id < r.id
      ORDER BY l.id DESC LIMIT 1), true)`;
  if (dropped === 0) await finishRun(db, id);
}
