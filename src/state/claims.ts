// A record is claimed before it is looked at and settled with its outcome. A claim that was never settled leaves the
// record in doubt: the service may hold something else than what was accepted last, so it is sent again.
import { sql } from 'drizzle-orm';
import { queryState, type Queries } from './database.js';
import { toRow, waitingName, type Outcome } from './outcomes.js';
import type { RecordStatus } from './schema.js';

/** What the state knows of a record when a batch claims it. */
export interface ClaimedRecord {
  localKey: string;
  status: RecordStatus;
  externalId: string | null;
  destinationId: number | null;
  sourceHash: string | null;
  objectHash: string | null;
  inDoubt: boolean;
  waitsSince: Date | null;
  errorCode: string | null;
}

/** How long a claim stands unless renewed, in seconds. */
export const CLAIM_SECONDS = 60;

/** Claims what nobody else is writing; keys that are not in the answer are claimed by another batch. */
export async function claimRecords(
  db: Queries,
  claim: { token: string; stream: string; keys: readonly string[]; runId: number },
): Promise<Map<string, ClaimedRecord>> {
  const rows = await queryState(() =>
    db.execute<Record<string, never>>(sql`
      INSERT INTO slotsync.records AS r (stream, local_key, status, claimed_by, claimed_until, run_id)
      SELECT ${claim.stream}, k, 'pending', ${claim.token}, now() + make_interval(secs => ${CLAIM_SECONDS}), ${claim.runId}::bigint
      FROM jsonb_array_elements_text(${JSON.stringify(claim.keys)}::jsonb) AS k ORDER BY k COLLATE "C"
      ON CONFLICT (stream, local_key) DO UPDATE SET
        in_doubt = r.in_doubt OR r.claimed_by IS NOT NULL,
        claimed_by = excluded.claimed_by, claimed_until = excluded.claimed_until
      WHERE r.claimed_by IS NULL OR r.claimed_until < now()
      RETURNING local_key AS "localKey", status, external_id AS "externalId", destination_id::float8 AS "destinationId",
        source_hash::text AS "sourceHash", object_hash AS "objectHash", in_doubt AS "inDoubt",
        waits_since AS "waitsSince", error_code AS "errorCode"`),
  );
  return new Map((rows as unknown as ClaimedRecord[]).map((row) => [row.localKey, row]));
}

/**
 * Prolongs a claim and notes what is about to be written, so that a write whose worker dies is not forgotten.
 * Returns false when any of it was lost to another batch: then nothing may be sent.
 */
export async function renewClaim(
  db: Queries,
  token: string,
  stream: string,
  writes: readonly { localKey: string; externalId: string }[],
): Promise<boolean> {
  const [row] = await queryState(() =>
    db.execute<{ renewed: number }>(sql`
      WITH renewed AS (
        UPDATE slotsync.records AS r SET
          claimed_until = now() + make_interval(secs => ${CLAIM_SECONDS}), external_id = coalesce(r.external_id, w."externalId")
        FROM jsonb_to_recordset(${JSON.stringify(writes)}::jsonb) AS w("localKey" text, "externalId" text)
        WHERE r.stream = ${stream} AND r.local_key = w."localKey" AND r.claimed_by = ${token}
        RETURNING 1)
      SELECT count(*)::int AS renewed FROM renewed`),
  );
  return row?.renewed === writes.length;
}

/** Gives claims back without an outcome. `inDoubt`: a request was sent and its answer is not known. */
export async function releaseClaim(db: Queries, token: string, inDoubt: boolean): Promise<void> {
  await queryState(() =>
    db.execute(sql`
      UPDATE slotsync.records SET claimed_by = NULL, claimed_until = NULL, in_doubt = in_doubt OR ${inDoubt}
      WHERE claimed_by = ${token}`),
  );
}

/**
 * Writes outcomes and gives the claims back. Records whose claim was lost meanwhile are put in doubt instead,
 * since two batches may have written them: they are sent again.
 */
export async function settleRecords(
  db: Queries,
  settled: { token: string; stream: string; runId: number; outcomes: readonly Outcome[] },
): Promise<{ lost: string[] }> {
  const { token, stream, runId, outcomes } = settled;
  if (outcomes.length === 0) return { lost: [] };
  const keysOf = (wanted: Outcome['outcome']) =>
    outcomes.filter(({ outcome }) => outcome === wanted).map(({ localKey }) => localKey);
  const gone = keysOf('gone');
  const left = keysOf('left');
  const kept = outcomes.filter(({ outcome }) => outcome !== 'gone' && outcome !== 'left').map(toRow);
  return queryState(async () => {
    const written = await db.execute<{ localKey: string }>(sql`
      UPDATE slotsync.records AS r SET
        status = o.status,
        external_id = coalesce(o.external_id, r.external_id),
        destination_id = coalesce(o.destination_id, r.destination_id),
        source_hash = CASE WHEN o.accepted THEN o.source_hash ELSE r.source_hash END,
        object_hash = CASE WHEN o.accepted THEN o.object_hash ELSE r.object_hash END,
        refused_hash = CASE WHEN o.status = 'dead' THEN o.source_hash END,
        error_code = o.error_code, error_message = o.error_message,
        waits_for = o.waits_for,
        waits_since = CASE WHEN o.status = 'deferred' THEN coalesce(r.waits_since, now()) END,
        attempts = CASE WHEN o.accepted THEN 0 ELSE r.attempts + 1 END,
        in_doubt = CASE WHEN o.accepted THEN false ELSE r.in_doubt OR o.in_doubt END,
        claimed_by = NULL, claimed_until = NULL,
        run_id = ${runId}::bigint,
        synced_at = CASE WHEN o.sent THEN now() ELSE r.synced_at END,
        updated_at = now()
      FROM jsonb_to_recordset(${JSON.stringify(kept)}::jsonb) AS o(local_key text, status text, accepted boolean, sent boolean,
        external_id text, destination_id bigint, source_hash bigint, object_hash text, error_code text, error_message text,
        waits_for text, in_doubt boolean)
      WHERE r.stream = ${stream} AND r.local_key = o.local_key AND r.claimed_by = ${token}
      RETURNING r.local_key AS "localKey"`);
    await db.execute(sql`
      DELETE FROM slotsync.records WHERE stream = ${stream} AND claimed_by = ${token}
        AND local_key IN (SELECT jsonb_array_elements_text(${JSON.stringify(gone)}::jsonb))`);
    await db.execute(sql`
      UPDATE slotsync.records SET claimed_by = NULL, claimed_until = NULL WHERE stream = ${stream} AND claimed_by = ${token}
        AND local_key IN (SELECT jsonb_array_elements_text(${JSON.stringify(left)}::jsonb))`);
    await wakeWaiting(db, stream, outcomes);

    const seen = new Set(written.map(({ localKey }) => localKey));
    const lost = kept.map(({ local_key }) => local_key).filter((key) => !seen.has(key));
    if (lost.length > 0) {
      await db.execute(sql`
        UPDATE slotsync.records SET in_doubt = true
        WHERE stream = ${stream} AND local_key IN (SELECT jsonb_array_elements_text(${JSON.stringify(lost)}::jsonb))`);
    }
    return { lost };
  });
}

/** A record given up because what it refers to never came is looked at again when it does come. */
async function wakeWaiting(db: Queries, stream: string, outcomes: readonly Outcome[]): Promise<void> {
  const arrived = outcomes
    .filter(({ outcome }) => outcome === 'synced' || outcome === 'unchanged')
    .map(({ localKey }) => waitingName({ stream, localKey }));
  if (arrived.length === 0) return;
  await db.execute(sql`
    UPDATE slotsync.records SET status = 'deferred', waits_since = now(), updated_at = now()
    WHERE waits_for IN (SELECT jsonb_array_elements_text(${JSON.stringify(arrived)}::jsonb)) AND status = 'dead'`);
}
