// Keys are put into the inbox, and workers hear of it. NOTIFY is a hint: workers look every two seconds as well.
import type { SettingText } from '../../config/setting-text.js';
import { connectPostgres, findPooling, LONG_ANSWER_MS } from '../../connections/postgres-connection.js';
import { queryOne, type Queries } from '../database.js';

/** Programs that add to the inbox may notify this channel, in the same transaction. */
export const CHANGES_CHANNEL = 'slotsync_changes';

/** Puts keys of a stream into the inbox and notifies the workers. Returns how many there were. */
export async function addChanges(db: Queries, stream: string, keys: readonly string[]): Promise<number> {
  if (keys.length === 0) return 0;
  // The notification is part of the statement, so that workers hear of it when the rows are committed.
  const { added } = await queryOne<{ added: number }>(db)`
    WITH added AS (
      INSERT INTO slotsync.changes (stream, local_key)
      SELECT ${stream}, jsonb_array_elements_text(${JSON.stringify(keys)}::jsonb) RETURNING 1)
    SELECT count(*)::int AS added, pg_notify(${CHANGES_CHANNEL}, '') FROM added`;
  return added;
}

/**
 * Calls back when something was added to the inbox, and whenever it begins to listen: notifications of before are lost.
 * A connection of its own, which is made again when it is lost. Behind a pooler in transaction mode it never calls back.
 */
export function listenForChanges(url: SettingText, onChange: () => void) {
  // Long, because it only listens.
  const client = connectPostgres(url, 'inbox', {}, { answerWithinMs: LONG_ANSWER_MS });
  const closing = new AbortController();
  const listen = async () => {
    // In transaction mode no session stays with a client, so no notification would arrive.
    const pooling = await findPooling(url).catch(() => 'none');
    if (pooling === 'transaction' || closing.signal.aborted) return;
    // The driver reconnects on its own, also after a first failure; looking every two seconds covers the time between.
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
