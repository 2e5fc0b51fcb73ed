// The life of a reconcile run: one at a time, worked by the process that started it. It only reads from both sides, so one
// that was interrupted is not resumed: it failed, and the next one reads again.
import { connectPostgres } from '../../postgres-connection.js';
import { asStateError, query, type Queries, type State } from '../database.js';
import type { RunRange, StartedBy } from '../schema.js';
import { failRun } from './end-run.js';
import { insertRun } from './start-run.js';

const LOCK = 'slotsync reconcile';

/**
 * Runs while holding the lock of all reconciling; undefined when another process holds it. The lock is held by a
 * connection of its own and ends with it, however the process ends.
 */
export async function whileReconcilingAlone<T>(
  state: State,
  run: () => Promise<T>,
): Promise<{ result: T } | undefined> {
  const client = connectPostgres(state.url, 'reconcile', { idle_timeout: 0, max_lifetime: null });
  try {
    const [row] = await client<{ taken: boolean }[]>`
      SELECT pg_try_advisory_lock(hashtextextended(${LOCK}, 0)) AS taken`.catch((error: unknown) => {
      throw asStateError(error);
    });
    return row?.taken ? { result: await run() } : undefined;
  } finally {
    await client.end({ timeout: 1 });
  }
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
