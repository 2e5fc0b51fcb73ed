// Adds records to the inbox that wait for a record which was accepted now, or whose external id another row had that is
// now deleted. Every batch does this with its outcomes, except in a `sync`, whose plan includes the waiting records.
// When a sync or backfill ends, waiting records that it did not send are added too. runs/send-again.ts handles records
// that wait for their own stream.
import { sql, type SQL } from 'drizzle-orm';
import { anyOf, query, queryTogether, type Queries } from '../database.js';
import { addChanges, CHANGES_CHANNEL } from '../inbox/add-changes.js';
import { EXTERNAL_ID_SHARED, isAcceptance, recordName, type Outcome } from './outcome-types.js';
import { HAS_ARRIVED } from './record-state.js';

/**
 * Common table expressions to append after one named `waiting`, which has the columns `parent` and `parent_key`.
 * `arrived` selects the waiting records whose parent was accepted. A locked parent counts as accepted, which costs at
 * most one extra attempt.
 */
const ARRIVED = sql`absent AS MATERIALIZED (
      SELECT r.stream, r.local_key, ${HAS_ARRIVED} AS has_arrived FROM slotsync.records AS r
      WHERE (r.stream, r.local_key) IN (SELECT parent, parent_key FROM waiting)
      FOR SHARE SKIP LOCKED
    ), arrived AS MATERIALIZED (
      SELECT w.* FROM waiting AS w
      JOIN slotsync.records AS p ON p.stream = w.parent AND p.local_key = w.parent_key
      WHERE NOT EXISTS (SELECT FROM absent AS a
        WHERE a.stream = p.stream AND a.local_key = p.local_key AND NOT a.has_arrived)
    )`;

interface Written {
  stream: string;
  runId: number;
  outcomes: readonly Outcome[];
}

/**
 * Returns statements that add records to the inbox: records that waited for the settled records (if `isReferredTo`),
 * and settled records whose reference has arrived meanwhile.
 */
export function wakingWaiting({ isReferredTo, ...written }: Written & { isReferredTo: boolean }): SQL[] {
  return [
    ...wakingSharers(freedIds(written.outcomes)),
    ...(isReferredTo ? wakingChildren(written) : []),
    ...wakingLate(written),
  ];
}

/** SQL: adds the records of the query `woken` to the inbox and notifies workers, like `addChanges`. */
const ADD_WOKEN = sql`added AS (
      INSERT INTO slotsync.changes (stream, local_key) SELECT stream, local_key FROM woken RETURNING 1)
    SELECT pg_notify(${CHANGES_CHANNEL}, '') FROM added LIMIT 1`;

/** Returns external ids whose record lost its row or got another id. Another row may own these objects now. */
function freedIds(outcomes: readonly Outcome[]): string[] {
  return outcomes.flatMap((outcome) => {
    if (outcome.outcome === 'dead') return outcome.changedId?.former ?? [];
    const isWithoutRow = outcome.outcome === 'forgotten' || outcome.outcome === 'skipped';
    return (isWithoutRow && outcome.externalId) || [];
  });
}

/** Adds records to the inbox that were refused because they shared one of these external ids. */
export async function wakeSharers(db: Queries, externalIds: readonly string[]): Promise<void> {
  await queryTogether(db, wakingSharers(externalIds));
}

function wakingSharers(externalIds: readonly string[]): SQL[] {
  if (externalIds.length === 0) return [];
  return [
    sql`
    WITH woken AS (
      SELECT stream, local_key FROM slotsync.records
      WHERE (row_external_id = ${anyOf(externalIds)} OR external_id = ${anyOf(externalIds)})
        AND status = 'failed' AND error_code = ${EXTERNAL_ID_SHARED}
    ), ${ADD_WOKEN}`,
  ];
}

/**
 * Returns statements that add to the inbox the records that waited for the settled records. Records given up for lack
 * of the reference become deferred again.
 */
function wakingChildren({ stream, runId, outcomes }: Written): SQL[] {
  const arrived = outcomes.filter(isAcceptance).map(({ localKey }) => recordName({ stream, localKey }));
  if (arrived.length === 0) return [];
  return [
    sql`
    WITH revived AS (
      UPDATE slotsync.records SET status = 'deferred', waits_since = now(), updated_at = now()
      WHERE waits_for = ${anyOf(arrived)} AND status = 'dead'
      RETURNING stream, local_key, run_id
    ), woken AS (
      SELECT stream, local_key FROM (
        SELECT stream, local_key, run_id FROM slotsync.records WHERE waits_for = ${anyOf(arrived)} AND status = 'deferred'
        UNION ALL TABLE revived) AS waiting
      WHERE (stream <> ${stream} OR run_id IS DISTINCT FROM ${runId}::bigint) AND ${isOutsideSync(runId)}
    ), ${ADD_WOKEN}`,
  ];
}

/** Adds settled records to the inbox that began to wait although another run accepted their reference meanwhile. */
function wakingLate({ stream, runId, outcomes }: Written): SQL[] {
  const waiting = outcomes.flatMap((outcome) =>
    outcome.outcome === 'deferred' && outcome.waitsFor && outcome.waitsFor.stream !== stream
      ? [[outcome.localKey, outcome.waitsFor]]
      : [],
  );
  if (waiting.length === 0) return [];
  return [
    sql`
    WITH waiting AS (
      SELECT ${stream}::text AS stream, w->>0 AS local_key, w->1->>'stream' AS parent, w->1->>'localKey' AS parent_key
      FROM jsonb_array_elements(${JSON.stringify(waiting)}::jsonb) AS w
    ), ${ARRIVED}, woken AS (SELECT stream, local_key FROM arrived WHERE ${isOutsideSync(runId)}), ${ADD_WOKEN}`,
  ];
}

function isOutsideSync(runId: number): SQL {
  return sql`EXISTS (SELECT FROM slotsync.runs WHERE id = ${runId}::bigint AND kind <> 'sync')`;
}

/**
 * Adds records to the inbox whose reference was accepted meanwhile, unless they are there already. Records given up for
 * lack of the reference become deferred again.
 */
export async function wakeArrived(tx: Queries): Promise<void> {
  const woken = await query<{ stream: string; keys: string[] }>(tx)`
    WITH waiting AS MATERIALIZED (
      SELECT stream, local_key, status, waits_for::jsonb->>0 AS parent, waits_for::jsonb->>1 AS parent_key
      FROM slotsync.records WHERE waits_for IS NOT NULL AND status IN ('deferred', 'dead')
    ), ${ARRIVED}, dead AS MATERIALIZED (
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
