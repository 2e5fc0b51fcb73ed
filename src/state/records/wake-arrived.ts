// Records whose reference arrived by a sync or a backfill that did not send them as well, such as one over a single
// stream: they go into the inbox when that run ends. Incremental runs wake with each outcome: wake-waiting.ts.
import { sql } from 'drizzle-orm';
import { query, type Queries } from '../database.js';
import { addChanges } from '../inbox/add-changes.js';
import { HAS_ARRIVED } from './outcome-types.js';

/**
 * Puts into the inbox the records that wait for a record the service has accepted by now; one that is dead because its
 * reference never came is deferred again. No lock is waited for: a reference that is being written counts as arrived,
 * and costs one more look. What waits in the inbox already is left there.
 */
export async function wakeArrived(tx: Queries): Promise<void> {
  const woken = await query<{ stream: string; keys: string[] }>(tx)`
    WITH waiting AS MATERIALIZED (
      SELECT stream, local_key, status, waits_for::jsonb->>0 AS parent, waits_for::jsonb->>1 AS parent_key
      FROM slotsync.records WHERE waits_for IS NOT NULL AND status IN ('deferred', 'dead')
    ), absent AS MATERIALIZED (
      SELECT r.stream, r.local_key, ${sql.raw(HAS_ARRIVED)} AS has_arrived FROM slotsync.records AS r
      WHERE (r.stream, r.local_key) IN (SELECT parent, parent_key FROM waiting)
      FOR SHARE SKIP LOCKED
    ), arrived AS MATERIALIZED (
      SELECT w.stream, w.local_key, w.status FROM waiting AS w
      JOIN slotsync.records AS p ON p.stream = w.parent AND p.local_key = w.parent_key
      WHERE NOT EXISTS (SELECT FROM absent AS a
        WHERE a.stream = p.stream AND a.local_key = p.local_key AND NOT a.has_arrived)
    ), dead AS MATERIALIZED (
      SELECT r.stream, r.local_key FROM slotsync.records AS r
      WHERE (r.stream, r.local_key) IN (SELECT stream, local_key FROM arrived WHERE status = 'dead')
      FOR NO KEY UPDATE SKIP LOCKED
    ), revived AS (
      UPDATE slotsync.records AS r SET status = 'deferred', waits_since = now(), updated_at = now()
      FROM dead AS d WHERE r.stream = d.stream AND r.local_key = d.local_key
    )
    SELECT a.stream, array_agg(a.local_key) AS keys FROM arrived AS a
    WHERE NOT EXISTS (SELECT FROM slotsync.changes AS c
      WHERE c.stream = a.stream AND c.local_key = a.local_key AND c.run_id IS NULL)
    GROUP BY a.stream`;
  for (const { stream, keys } of woken) await addChanges(tx, stream, keys);
}
