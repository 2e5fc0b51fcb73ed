// Checks that the queue's tables can be used. Called before anything is queued, and without loading BullMQ.
import { findPooling, refuseTransactionPooling } from '../connections/postgres-connection.js';
import { UsageError } from '../errors/errors.js';
import { isNoTable, query, type State } from '../state/database.js';

/** Major version of BullMQ. The queue's tables name the lowest version that may use them. */
export const BULLMQ_MAJOR = 6;

/**
 * Throws UsageError unless the queue's tables exist, are not newer than this program, and are reached without a pooler
 * in transaction mode. In each of these cases BullMQ would wait without limit.
 */
export async function requireQueueTables({ db, url }: Pick<State, 'db' | 'url'>): Promise<void> {
  const asked = await query<{ pid: number; needs: number | null }>(db)`
    SELECT pg_backend_pid() AS pid, max((to_jsonb(m)->>'min_client_version')::int) AS needs
    FROM slotsync_queue.migration AS m`.catch((error: unknown) => {
    if (!isNoTable(error)) throw error;
  });
  // A pooler announces process ids of its own, not the server's.
  const isDirect = asked?.[0]?.pid === (asked as Announced | undefined)?.state.pid;
  if (!(asked && isDirect) && (await findPooling(url)) === 'transaction') refuseTransactionPooling();
  if (!asked) {
    const remedy = 'Run `slotsync migrate`.';
    throw new UsageError('the state database has no queue tables yet', { remedy });
  }
  if ((asked[0]?.needs ?? 0) > BULLMQ_MAJOR) {
    const remedy = 'Update slotsync on this machine to the version that migrated them.';
    throw new UsageError('the queue tables are newer than this program', { remedy });
  }
}

/** A result of the driver, with the server process id that was announced when its connection was opened. */
interface Announced {
  state: { pid: number };
}
