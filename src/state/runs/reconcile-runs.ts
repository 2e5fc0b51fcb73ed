// The life of a reconcile run: one at a time, worked by the process that started it. It only reads from both sides, so one
// that was interrupted is not resumed: it failed, and the next one reads again.
import { query, tryLock, type Queries, type State } from '../database.js';
import type { RunRange, StartedBy } from '../schema.js';
import { failRun } from './end-run.js';
import { insertRun } from './start-run.js';

const LOCK = 'slotsync reconcile';

/**
 * Runs while holding the lock of all reconciling; undefined when another process holds it. The lock is held by a
 * transaction that does nothing else, so it ends with the process, however that ends, and a pooler keeps it too.
 */
export async function whileReconcilingAlone<T>(
  { db }: State,
  run: () => Promise<T>,
): Promise<{ result: T } | undefined> {
  let done: { result: T } | undefined;
  try {
    await db.transaction(async (tx) => {
      await query(tx)`SET LOCAL idle_in_transaction_session_timeout = 0`;
      if (await tryLock(tx, LOCK)) done = { result: await run() };
    });
  } catch (error) {
    // A lock that was lost at the end takes nothing back.
    if (done === undefined) throw error;
  }
  return done;
}

/** Starts a reconcile run, under the lock: whatever is unfinished was interrupted. Returns its id. */
export async function startReconciliation(db: Queries, startedBy: StartedBy, range: RunRange | undefined) {
  const interrupted = await query<{ id: number }>(db)`
    SELECT id::float8 AS id FROM slotsync.runs WHERE kind = 'reconcile' AND finished_at IS NULL`;
  for (const { id } of interrupted)
    await failRun(db, id, { code: 'interrupted', message: 'the process that worked it ended' });
  const request = { kind: 'reconcile', lane: 'sync', startedBy, streams: [], range } as const;
  return (await insertRun(db, request, 'running')).id;
}

/** Takes back a run that found nothing to compare: every few minutes there would be one. */
export async function dropReconciliation(db: Queries, id: number): Promise<void> {
  await query(db)`DELETE FROM slotsync.runs WHERE id = ${id}::bigint`;
}
