// Adds keys to the inbox and notifies the workers. NOTIFY is only a hint, because workers also poll every two seconds.
import type { SettingText } from '../../config/setting-text.js';
import { connectPostgres, findPooling, LONG_ANSWER_MS } from '../../connections/postgres-connection.js';
import { queryOne, type Queries } from '../database.js';

/** NOTIFY channel for new keys. Other programs that add keys may notify it in the same transaction. */
export const CHANGES_CHANNEL = 'slotsync_changes';

/** Adds keys of a stream to the inbox and notifies the workers. Returns the number of added keys. */
export async function addChanges(db: Queries, stream: string, keys: readonly string[]): Promise<number> {
  if (keys.length === 0) return 0;
  // The notification is part of the statement, so that workers receive it when the rows are committed.
  const { added } = await queryOne<{ added: number }>(db)`
    WITH added AS (
      INSERT INTO slotsync.changes (stream, local_key)
      SELECT ${stream}, jsonb_array_elements_text(${JSON.stringify(keys)}::jsonb) RETURNING 1)
    SELECT count(*)::int AS added, pg_notify(${CHANGES_CHANNEL}, '') FROM added`;
  return added;
}

/**
 * Calls `onChange` after keys were added, and each time listening begins, because earlier notifications are lost. Uses
 * its own connection, which reconnects. Behind a pooler in transaction mode, `onChange` is never called.
 */
export function listenForChanges(url: SettingText, onChange: () => void) {
  // The time limit is long, because a connection that only listens receives nothing for long periods.
  const client = connectPostgres(url, 'inbox', {}, { answerWithinMs: LONG_ANSWER_MS });
  const closing = new AbortController();
  const listen = async () => {
    // In transaction mode, a pooler assigns no fixed session to a client, so no notification would arrive.
    const pooling = await findPooling(url).catch(() => 'none');
    if (pooling === 'transaction' || closing.signal.aborted) return;
    // The driver reconnects automatically, even after a first failure. Polling covers the time in between.
    await client.listen(CHANGES_CHANNEL, onChange, onChange);
  };
  const started = listen().catch(() => undefined);
  return {
    async close(): Promise<void> {
      closing.abort();
      await client.end({ timeout: 1 });
      await started;
    },
  };
}
