// The outcome of claimed records: the one place that writes what the service accepted.
import { sql } from 'drizzle-orm';
import { anyOf, query, type Queries } from '../database.js';
import { mendDrift } from '../drift/write-drift.js';
import { releaseClaim } from './claim-records.js';
import { noteAssigned } from './links.js';
import { EXTERNAL_ID_SHARED, recordName, storable, type Outcome } from './outcome-types.js';
import { checkAgain, WAS_SENT } from './record-state.js';
import { wakeWaiting } from './wake-waiting.js';

/** Outcomes of claimed records. */
export interface Settled {
  token: string;
  outcomes: readonly Outcome[];
  /** Others may wait for them. */
  isReferredTo: boolean;
  /** Lets records be checked that refer to one of these which represents another object now, or none. */
  checkReferrers?: ((tx: Queries) => Promise<void>) | undefined;
}

/**
 * Writes outcomes and releases the claims. Returns the keys whose claim another batch took over: two batches may have
 * written them, so they are in doubt instead, and sent again.
 */
export async function settleRecords(
  db: Queries,
  {
    token,
    stream,
    runId,
    outcomes,
    isReferredTo,
    checkReferrers,
  }: Settled & { stream: string; runId: number },
): Promise<string[]> {
  if (outcomes.length === 0) return [];
  const keysOf = (wanted: Outcome['outcome']) =>
    outcomes.filter(({ outcome }) => outcome === wanted).map(({ localKey }) => localKey);
  const kept = outcomes.filter(({ outcome }) => outcome !== 'forgotten' && outcome !== 'skipped');
  const keptKeys = kept.map(({ localKey }) => localKey);
  // An object of so many keys would cost more to make than its text.
  const byKey = `{${kept.map((outcome) => `${JSON.stringify(outcome.localKey)}:${JSON.stringify(toRow(outcome))}`).join(',')}}`;
  // Each row looks its own outcome up: a join with the list would be a nested loop, whatever is known of the table.
  const written = await query<{ localKey: string }>(db)`
    UPDATE slotsync.records AS r SET
      (status, external_id, row_external_id, destination_id, source_hash, object_hash, refused_hash, error_code, error_message,
        waits_for, waits_since, attempts, in_doubt, gone_since, synced_at, check_after) = (
        SELECT CASE WHEN NOT accepted THEN o.outcome WHEN o.retired THEN 'retired' ELSE 'synced' END,
          CASE WHEN NOT shared THEN r.external_id END,
          CASE WHEN shared OR o."externalId" <> r.external_id OR r.external_id IS NULL THEN o."externalId" END,
          coalesce(o."destinationId", r.destination_id),
          CASE WHEN accepted THEN o."sourceHash" ELSE r.source_hash END,
          CASE WHEN accepted THEN o."objectHash" ELSE r.object_hash END,
          CASE WHEN o.outcome IN ('dead', 'failed') THEN o."sourceHash" END,
          o.code, o.message, o."waitsFor",
          CASE WHEN o.outcome = 'deferred' AND o."waitsFor" IS NOT NULL THEN coalesce(r.waits_since, now()) END,
          CASE WHEN accepted THEN 0 ELSE r.attempts + 1 END,
          NOT accepted AND (r.in_doubt OR coalesce(o."inDoubt", false)),
          CASE WHEN NOT accepted THEN r.gone_since END,
          CASE WHEN o.outcome = 'synced' THEN now() ELSE r.synced_at END,
          greatest(r.check_after, now() + make_interval(secs => o."secondLookAfterSeconds"))
        FROM jsonb_to_record(${byKey}::jsonb->r.local_key) AS o(outcome text, retired boolean, code text,
          message text, "externalId" text, "destinationId" bigint, "sourceHash" bigint, "objectHash" text, "waitsFor" text,
          "inDoubt" boolean, "secondLookAfterSeconds" float8), LATERAL (SELECT o.outcome IN ('synced', 'unchanged'),
          -- Of rows that share an external id none owns the object, unless the service knows it as that one's.
          coalesce(o.code = ${EXTERNAL_ID_SHARED}, false) AND NOT ${WAS_SENT} AND r.check_after IS NULL
        ) AS a(accepted, shared)),
      claimed_by = NULL, claimed_until = NULL, run_id = ${runId}::bigint, updated_at = now()
    WHERE r.stream = ${stream} AND r.local_key = ${anyOf(keptKeys)} AND r.claimed_by = ${token}
      -- What it was accepted for is another record's by now.
      AND NOT (r.external_id IS NULL AND r.local_key = ${anyOf([...keysOf('synced'), ...keysOf('unchanged')])})
    RETURNING r.local_key AS "localKey"`;
  const assigned = outcomes.filter((outcome) => 'assigned' in outcome && outcome.assigned);
  await noteAssigned(
    db,
    stream,
    assigned.map(({ localKey }) => localKey),
  );
  await forgetClaimed(db, { token, stream }, keysOf('forgotten'));
  await releaseClaim(db, { token, stream }, keysOf('skipped'));
  const settled = new Set(written.map(({ localKey }) => localKey));
  await mendDrift(db, { stream, runId }, seenInSync(outcomes, settled));
  await checkReferrers?.(db);
  await wakeWaiting(db, { stream, runId, outcomes, isReferredTo });

  const lost = keptKeys.filter((key) => !settled.has(key));
  await checkAgain(db, { stream, keys: lost }, sql`true`);
  return lost;
}

/** Deletes records that own no object any more. */
async function forgetClaimed(
  db: Queries,
  { token, stream }: { token: string; stream: string },
  keys: readonly string[],
) {
  if (keys.length === 0) return;
  await query(db)`
    DELETE FROM slotsync.records WHERE stream = ${stream} AND local_key = ${anyOf(keys)} AND claimed_by = ${token}`;
}

/**
 * Records whose objects were accepted or seen to be equal just now, and those that are gone: nothing of them drifts. A
 * record that is unchanged without a look at the service has no number.
 */
function seenInSync(outcomes: readonly Outcome[], settled: ReadonlySet<string>) {
  const isSeen = (settlement: Outcome) =>
    settlement.outcome === 'synced' ||
    (settlement.outcome === 'unchanged' && settlement.destinationId !== undefined);
  const seen = outcomes.filter(
    (settlement) =>
      settlement.outcome === 'forgotten' || (isSeen(settlement) && settled.has(settlement.localKey)),
  );
  return {
    keys: seen.map(({ localKey }) => localKey),
    externalIds: seen.flatMap(({ outcome, externalId }) =>
      outcome === 'forgotten' ? [] : (externalId ?? []),
    ),
    written: seen.flatMap(({ outcome, localKey }) => (outcome === 'synced' ? localKey : [])),
  };
}

/** An outcome as the statement reads it. */
function toRow(outcome: Outcome) {
  const message = 'message' in outcome ? storable(outcome.message) : undefined;
  const waitsFor = 'waitsFor' in outcome && outcome.waitsFor ? recordName(outcome.waitsFor) : undefined;
  // The operation is counted with the batch.
  return { ...outcome, operation: undefined, changedId: undefined, message, waitsFor };
}
