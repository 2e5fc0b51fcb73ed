// The life of a run that only reads: a reconcile, or a verify without repair. One of a kind at a time, worked by the process
// that started it. One that was interrupted is not resumed: it failed, and the next one reads again.
import { and, eq, isNull } from 'drizzle-orm';
import { query, type Queries, type State } from '../database.js';
import { SlotsyncError } from '../../errors/errors.js';
import { describeHolders, tryLock, whileHolding } from '../locks.js';
import { runs } from '../schema.js';
import { failRun, finishRun } from './end-run.js';
import { onlyReads } from './read-runs.js';
import { insertRun, type RunRequest } from './start-run.js';

type ReadingKind = 'reconcile' | 'verify';

/**
 * Runs while holding the lock of all readings of a kind; undefined when another process holds it. The lock is held by a
 * transaction that does nothing else, so it ends with the process, however that ends, and a pooler keeps it too.
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
    // A lock that was lost at the end takes nothing back.
    if (done === undefined) throw error;
  }
  return done;
}

/** The error of a command that finds the lock taken. */
export async function alreadyRunning({ db }: State, kind: ReadingKind): Promise<SlotsyncError> {
  return new SlotsyncError(
    `${kind}_running`,
    `another ${kind} is under way: ${await describeHolders(db, kind)}`,
  );
}

/** Starts a run that only reads, under the lock: whatever is unfinished was interrupted. Returns its id. */
export async function startReading(
  db: Queries,
  request: RunRequest & { kind: ReadingKind },
): Promise<number> {
  const isUnfinished = and(eq(runs.kind, request.kind), isNull(runs.finishedAt));
  for (const run of await db.select().from(runs).where(isUnfinished))
    if (onlyReads(run))
      await failRun(db, run.id, { code: 'interrupted', message: 'the process that worked it ended' });
  return (await insertRun(db, request, 'running')).id;
}

/**
 * Takes back a run that found nothing to compare: every few minutes there would be one. After one that failed it ends
 * well instead: the failure was reported.
 */
export async function dropReading(db: Queries, id: number): Promise<void> {
  const dropped = await query(db)`
    DELETE FROM slotsync.runs AS r WHERE id = ${id}::bigint AND coalesce((
      SELECT l.status <> 'failed' FROM slotsync.runs AS l WHERE l.kind = r.kind AND l.id < r.id
      ORDER BY l.id DESC LIMIT 1), true)`;
  if (dropped.count === 0) await finishRun(db, id);
}
