// Records that wait for a reference are sent automatically when it has arrived, and those that shared an external id when
// the other row has gone. Outside a nightly or commanded sync, which
// has them in its plan, they go into the inbox.
import { sql, type SQL } from 'drizzle-orm';
import { anyOf, query, type Queries } from '../database.js';
import { addChanges } from '../inbox/add-changes.js';
import { EXTERNAL_ID_SHARED, HAS_ARRIVED, recordName, type Outcome } from './outcome-types.js';

interface Woken {
  stream: string;
  keys: string[];
}

interface Written {
  stream: string;
  runId: number;
  outcomes: readonly Outcome[];
}

/**
 * Puts into the inbox the records that waited for these, if others may refer to them (`isReferredTo`), and those of these
 * whose reference has arrived meanwhile.
 */
export async function wakeWaiting(
  db: Queries,
  { isReferredTo, ...written }: Written & { isReferredTo: boolean },
): Promise<void> {
  await wakeSharers(db, freedIds(written.outcomes));
  const woken = isReferredTo ? await readWaiting(db, written) : [];
  for (const { stream, keys } of [...woken, ...(await readLate(db, written))])
    await addChanges(db, stream, keys);
}

/** External ids whose record has lost its row, or the row its external id: another row may stand for the object now. */
function freedIds(outcomes: readonly Outcome[]): string[] {
  return outcomes.flatMap((outcome) => {
    if (outcome.outcome === 'dead') return outcome.changedId?.former ?? [];
    const isWithoutRow = outcome.outcome === 'forgotten' || outcome.outcome === 'skipped';
    return (isWithoutRow && outcome.externalId) || [];
  });
}

/** Puts the records into the inbox that were not sent because they shared one of these external ids. */
export async function wakeSharers(db: Queries, externalIds: readonly string[]): Promise<void> {
  if (externalIds.length === 0) return;
  const sharers = await query<Woken>(db)`
    SELECT stream, array_agg(local_key) AS keys FROM slotsync.records
    WHERE (row_external_id = ${anyOf(externalIds)} OR external_id = ${anyOf(externalIds)}) AND status = 'failed' AND error_code = ${EXTERNAL_ID_SHARED}
    GROUP BY stream`;
  for (const { stream, keys } of sharers) await addChanges(db, stream, keys);
}

/** What waited for these records. One that is dead because its reference never came is deferred again now that it came. */
async function readWaiting(db: Queries, { stream, runId, outcomes }: Written): Promise<Woken[]> {
  const arrived = outcomes
    .filter(({ outcome }) => outcome === 'synced' || outcome === 'unchanged')
    .map(({ localKey }) => recordName({ stream, localKey }));
  if (arrived.length === 0) return [];
  return query<Woken>(db)`
    WITH revived AS (
      UPDATE slotsync.records SET status = 'deferred', waits_since = now(), updated_at = now()
      WHERE waits_for = ${anyOf(arrived)} AND status = 'dead'
      RETURNING stream, local_key)
    SELECT stream, array_agg(local_key) AS keys FROM (
      SELECT stream, local_key FROM slotsync.records WHERE waits_for = ${anyOf(arrived)} AND status = 'deferred'
      UNION ALL TABLE revived) AS woken
    WHERE ${isOutsideSync(runId)} GROUP BY stream`;
}

/**
 * Records that begin to wait where their reference has arrived meanwhile, by another run: then that run has not woken
 * them. No lock is waited for: a reference that is being written counts as arrived, and costs one more look.
 */
async function readLate(db: Queries, { stream, runId, outcomes }: Written): Promise<Woken[]> {
  const waiting = outcomes.flatMap((outcome) =>
    outcome.outcome === 'deferred' && outcome.waitsFor ? [[outcome.localKey, outcome.waitsFor]] : [],
  );
  if (waiting.length === 0) return [];
  return query<Woken>(db)`
    WITH waiting AS (
      SELECT w->>0 AS local_key, w->1->>'stream' AS parent, w->1->>'localKey' AS parent_key
      FROM jsonb_array_elements(${JSON.stringify(waiting)}::jsonb) AS w
    ), absent AS MATERIALIZED (
      SELECT r.stream, r.local_key, ${sql.raw(HAS_ARRIVED)} AS has_arrived FROM slotsync.records AS r
      WHERE (r.stream, r.local_key) IN (SELECT parent, parent_key FROM waiting)
      FOR SHARE SKIP LOCKED
    )
    SELECT ${stream}::text AS stream, array_agg(w.local_key) AS keys FROM waiting AS w
    JOIN slotsync.records AS p ON p.stream = w.parent AND p.local_key = w.parent_key
    WHERE NOT EXISTS (SELECT FROM absent AS a
      WHERE a.stream = p.stream AND a.local_key = p.local_key AND NOT a.has_arrived) AND ${isOutsideSync(runId)}
    HAVING count(*) > 0`;
}

function isOutsideSync(runId: number): SQL {
  return sql`EXISTS (SELECT FROM slotsync.runs WHERE id = ${runId}::bigint AND kind <> 'sync')`;
}
