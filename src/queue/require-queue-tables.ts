// Whether the queue's own tables can be used: asked before there is anything to queue, and without loading BullMQ.
import { findPooling, refuseTransactionPooling } from '../connections/postgres-connection.js';
import { UsageError } from '../errors/errors.js';
import { isNoTable, query, type State } from '../state/database.js';

/** The major version of BullMQ, by which its tables say which programs may use them. */
export const BULLMQ_MAJOR = 6;

/**
 * Throws UsageError unless the tables of the queue are reached through sessions of our own, exist, and are not newer than this
 * program. BullMQ itself would wait without limit in each case.
 */
export async function requireQueueTables({ db, url }: Pick<State, 'db' | 'url'>): Promise<void> {
  const asked = await query<{ pid: number; needs: number | null }>(db)`
    SELECT pg_backend_pid() AS pid, max((to_jsonb(m)->>'min_client_version')::int) AS needs
    FROM slotsync_queue.migration AS m`.catch((error: unknown) => {
    if (!isNoTable(error)) throw error;
  });
  // A pooler announces numbers of its own.
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

/** The driver notes with an answer which server process was announced when its connection was opened. */
interface Announced {
  state: { pid: number };
}
