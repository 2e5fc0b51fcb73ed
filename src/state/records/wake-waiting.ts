// Records that wait for a reference are sent automatically when it has arrived. Outside a nightly or commanded sync, which
// has them in its plan, they go into the inbox.
import { sql, type SQL } from 'drizzle-orm';
import { anyOf, query, type Queries } from '../database.js';
import { addChanges } from '../inbox/add-changes.js';
import { recordName, type Outcome } from './outcomes.js';

interface Woken {
  stream: string;
  keys: string[];
}

/**
 * Puts what waited for these records into the inbox. A record that is dead because its reference never came is deferred
 * again now that it came.
 */
export async function wakeWaiting(
  db: Queries,
  stream: string,
  runId: number,
  outcomes: readonly Outcome[],
): Promise<void> {
  const arrived = outcomes
    .filter(({ outcome }) => outcome === 'synced' || outcome === 'unchanged')
    .map(({ localKey }) => recordName({ stream, localKey }));
  if (arrived.length === 0) return;
  const woken = await query<Woken>(db)`
    WITH revived AS (
      UPDATE slotsync.records SET status = 'deferred', waits_since = now(), updated_at = now()
      WHERE waits_for = ${anyOf(arrived)} AND status = 'dead'
      RETURNING stream, local_key)
    SELECT stream, array_agg(local_key) AS keys FROM (
      SELECT stream, local_key FROM slotsync.records WHERE waits_for = ${anyOf(arrived)} AND status = 'deferred'
      UNION ALL TABLE revived) AS woken
    WHERE ${isOutsideSync(runId)} GROUP BY stream`;
  await addWoken(db, woken);
}

/**
 * Puts records that begin to wait into the inbox where their reference has arrived meanwhile, by another run: then that
 * run has not woken them. No lock is waited for: a reference that is being written counts as arrived, and costs one more
 * look.
 */
export async function wakeLate(
  db: Queries,
  stream: string,
  runId: number,
  outcomes: readonly Outcome[],
): Promise<void> {
  const waiting = outcomes.flatMap((outcome) =>
    outcome.outcome === 'deferred' && outcome.waitsFor
      ? {
          localKey: outcome.localKey,
          parent: outcome.waitsFor.stream,
          parentKey: outcome.waitsFor.localKey,
        }
      : [],
  );
  if (waiting.length === 0) return;
  const woken = await query<Woken>(db)`
    WITH waiting AS (
      SELECT * FROM jsonb_to_recordset(${JSON.stringify(waiting)}::jsonb) AS w("localKey" text, parent text, "parentKey" text)
    ), absent AS MATERIALIZED (
      SELECT r.stream, r.local_key, r.object_hash FROM slotsync.records AS r
      WHERE (r.stream, r.local_key) IN (SELECT parent, "parentKey" FROM waiting)
      FOR SHARE SKIP LOCKED
    )
    SELECT ${stream}::text AS stream, array_agg(w."localKey") AS keys FROM waiting AS w
    JOIN slotsync.records AS p ON p.stream = w.parent AND p.local_key = w."parentKey"
    WHERE NOT EXISTS (SELECT FROM absent AS a
      WHERE a.stream = p.stream AND a.local_key = p.local_key AND a.object_hash IS NULL) AND ${isOutsideSync(runId)}
    HAVING count(*) > 0`;
  await addWoken(db, woken);
}

function isOutsideSync(runId: number): SQL {
  return sql`EXISTS (SELECT FROM slotsync.runs WHERE id = ${runId}::bigint AND kind <> 'sync')`;
}

async function addWoken(db: Queries, woken: readonly Woken[]): Promise<void> {
  for (const { stream, keys } of woken) await addChanges(db, stream, keys);
}
