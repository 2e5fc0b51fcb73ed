// Records that wait for a reference are sent automatically when it has arrived, and those that shared an external id when
// the other row has gone. They go into the inbox with each outcome, except in a nightly or commanded sync, which has them
// in its plan; when a sync or a backfill ends, those follow that it did not send as well. A run sends those of its own
// records that wait for one of their own stream: runs/send-again.ts.
import { sql, type SQL } from 'drizzle-orm';
import { anyOf, query, queryTogether, type Queries } from '../database.js';
import { addChanges, CHANGES_CHANNEL } from '../inbox/add-changes.js';
import { EXTERNAL_ID_SHARED, isAcceptance, recordName, type Outcome } from './outcome-types.js';
import { HAS_ARRIVED } from './record-state.js';

/**
 * Queries after `waiting`, which names records and the `parent` and `parent_key` that each refers to: `arrived` are those whose
 * reference has arrived. No lock is waited for: a reference that is being written counts as arrived, and costs one more look.
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
 * Statements that put into the inbox the records that waited for these, if others may refer to them (`isReferredTo`), and
 * those of these whose reference has arrived meanwhile.
 */
export function wakingWaiting({ isReferredTo, ...written }: Written & { isReferredTo: boolean }): SQL[] {
  return [
    ...wakingSharers(freedIds(written.outcomes)),
    ...(isReferredTo ? wakingChildren(written) : []),
    ...wakingLate(written),
  ];
}

/** Puts what the query `woken` names into the inbox, as the end of a statement; see `addChanges`. */
const ADD_WOKEN = sql`added AS (
      INSERT INTO slotsync.changes (stream, local_key) SELECT stream, local_key FROM woken RETURNING 1)
    SELECT pg_notify(${CHANGES_CHANNEL}, '') FROM added LIMIT 1`;

/** External ids whose record has lost its row, or the row its external id: another row may represent the object now. */
function freedIds(outcomes: readonly Outcome[]): string[] {
  return outcomes.flatMap((outcome) => {
    if (outcome.outcome === 'dead') return outcome.changedId?.former ?? [];
    const isWithoutRow = outcome.outcome === 'forgotten' || outcome.outcome === 'skipped';
    return (isWithoutRow && outcome.externalId) || [];
  });
}

/** Puts the records into the inbox that were not sent because they shared one of these external ids. */
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

/** Records that waited for these. One that was given up because its reference never came is deferred again now that it came. */
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

/** Records that begin to wait where their reference has arrived meanwhile, by another run: then that run has not woken them. */
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
 * Puts into the inbox the records that wait for a record the service has accepted by now; one that was given up because its
 * reference never came is deferred again. What
 * waits in the inbox already is left there.
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
