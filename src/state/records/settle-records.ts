// The outcome of claimed records: the one place that writes what the service accepted.
import { anyOf, query, type Queries } from '../database.js';
import { releaseClaim } from './claims.js';
import { isKept, toRow, type Outcome } from './outcomes.js';
import { wakeWaiting } from './wake-waiting.js';

/** What became of claimed records. `isReferredTo`: others may wait for them. */
export interface Settled {
  token: string;
  outcomes: readonly Outcome[];
  isReferredTo: boolean;
}

/**
 * Writes outcomes and gives the claims back. Returns the keys whose claim another batch took over: two batches may have
 * written them, so they are in doubt instead, and sent again.
 */
export async function settleRecords(
  db: Queries,
  { token, stream, runId, outcomes, isReferredTo }: Settled & { stream: string; runId: number },
): Promise<string[]> {
  if (outcomes.length === 0) return [];
  const keysOf = (wanted: Outcome['outcome']) =>
    outcomes.filter(({ outcome }) => outcome === wanted).map(({ localKey }) => localKey);
  const kept = outcomes.filter(isKept).map(toRow);
  const keptKeys = kept.map(({ local_key }) => local_key);
  const byKey = Object.fromEntries(kept.map((row) => [row.local_key, row]));
  // Each row looks its own outcome up: a join with the list would be a nested loop, whatever is known of the table.
  const written = await query<{ localKey: string }>(db)`
    UPDATE slotsync.records AS r SET
      (status, external_id, destination_id, source_hash, object_hash, refused_hash, error_code, error_message,
        waits_for, waits_since, attempts, in_doubt, gone_since, synced_at) = (
        SELECT o.status,
          coalesce(o.external_id, r.external_id),
          coalesce(o.destination_id, r.destination_id),
          CASE WHEN o.accepted THEN o.source_hash ELSE r.source_hash END,
          CASE WHEN o.accepted THEN o.object_hash ELSE r.object_hash END,
          CASE WHEN o.status = 'dead' THEN o.source_hash END,
          o.error_code, o.error_message,
          o.waits_for,
          CASE WHEN o.status = 'deferred' AND o.waits_for IS NOT NULL THEN coalesce(r.waits_since, now()) END,
          CASE WHEN o.accepted THEN 0 ELSE r.attempts + 1 END,
          CASE WHEN o.accepted THEN false ELSE r.in_doubt OR coalesce(o.in_doubt, false) END,
          CASE WHEN o.accepted THEN NULL ELSE r.gone_since END,
          CASE WHEN o.sent THEN now() ELSE r.synced_at END
        FROM jsonb_to_record(${JSON.stringify(byKey)}::jsonb->r.local_key) AS o(status text, accepted boolean, sent boolean,
          external_id text, destination_id bigint, source_hash bigint, object_hash text, error_code text,
          error_message text, waits_for text, in_doubt boolean)),
      claimed_by = NULL, claimed_until = NULL, run_id = ${runId}::bigint, updated_at = now()
    WHERE r.stream = ${stream} AND r.local_key = ${anyOf(keptKeys)} AND r.claimed_by = ${token}
    RETURNING r.local_key AS "localKey"`;
  const forgotten = keysOf('forgotten');
  if (forgotten.length > 0)
    await query(db)`
      DELETE FROM slotsync.records
      WHERE stream = ${stream} AND local_key = ${anyOf(forgotten)} AND claimed_by = ${token}`;
  await releaseClaim(db, { token, stream }, keysOf('skipped'), false);
  await wakeWaiting(db, { stream, runId, outcomes, isReferredTo });

  const settled = new Set(written.map(({ localKey }) => localKey));
  const lost = keptKeys.filter((key) => !settled.has(key));
  if (lost.length > 0)
    await query(db)`
      UPDATE slotsync.records SET in_doubt = true WHERE stream = ${stream} AND local_key = ${anyOf(lost)}`;
  return lost;
}
