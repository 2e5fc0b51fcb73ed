// A record is claimed before it is looked at and settled with its outcome. A claim that was never settled leaves the
// record in doubt: the service may hold something else than what was accepted last, so it is sent again.
import { sql, type SQL } from 'drizzle-orm';
import { anyOf, queryState, type Queries } from '../database.js';
import { isKept, toRow, waitingName, type Outcome } from './outcomes.js';
import type { RecordStatus } from '../schema.js';

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

/**
 * Claims what nobody else is writing; keys that are not in the answer are claimed by another batch. `externalIds`, by
 * key: those known already, noted with records the service has never accepted.
 */
export async function claimRecords(
  db: Queries,
  claim: {
    token: string;
    stream: string;
    keys: readonly string[];
    runId: number;
    externalIds?: ReadonlyMap<string, string>;
  },
): Promise<Map<string, ClaimedRecord>> {
  const externalIds = JSON.stringify(Object.fromEntries(claim.externalIds ?? []));
  const rows = await queryState(() =>
    db.execute<Record<string, never>>(sql`
      INSERT INTO slotsync.records AS r (stream, local_key, external_id, status, claimed_by, claimed_until, run_id)
      SELECT ${claim.stream}, k, ${externalIds}::jsonb->>k, 'pending', ${claim.token},
        now() + make_interval(secs => ${CLAIM_SECONDS}), ${claim.runId}::bigint
      FROM jsonb_array_elements_text(${JSON.stringify(claim.keys)}::jsonb) AS k ORDER BY k COLLATE "C"
      ON CONFLICT (stream, local_key) DO UPDATE SET
        in_doubt = r.in_doubt OR r.claimed_by IS NOT NULL,
        external_id = CASE WHEN r.object_hash IS NULL AND NOT r.in_doubt AND r.claimed_by IS NULL
          THEN coalesce(excluded.external_id, r.external_id) ELSE r.external_id END,
        claimed_by = excluded.claimed_by, claimed_until = excluded.claimed_until
      WHERE r.claimed_by IS NULL OR r.claimed_until < now()
      RETURNING local_key AS "localKey", status, external_id AS "externalId", destination_id::float8 AS "destinationId",
        source_hash::text AS "sourceHash", object_hash AS "objectHash", in_doubt AS "inDoubt",
        waits_since AS "waitsSince", error_code AS "errorCode"`),
  );
  return new Map((rows as unknown as ClaimedRecord[]).map((row) => [row.localKey, row]));
}

/** Whose records, and whose claim on them. */
export interface Claim {
  token: string;
  stream: string;
}

/**
 * Notes the external ids of claimed records, by key, so that a write whose worker dies is not forgotten and others see
 * what is being written. Returns false when any of the claim was lost to another batch: then nothing may be sent.
 */
export async function noteExternalIds(
  db: Queries,
  claim: Claim,
  externalIds: ReadonlyMap<string, string>,
): Promise<boolean> {
  const ids = JSON.stringify(Object.fromEntries(externalIds));
  return updateClaimed(db, claim, [...externalIds.keys()], sql`external_id = ${ids}::jsonb->>r.local_key`);
}

/** Prolongs a claim. Returns false when any of it was lost to another batch: then nothing may be sent. */
export async function renewClaim(db: Queries, claim: Claim, keys: readonly string[]): Promise<boolean> {
  const until = sql`claimed_until = now() + make_interval(secs => ${CLAIM_SECONDS})`;
  return updateClaimed(db, claim, keys, until);
}

async function updateClaimed(
  db: Queries,
  { token, stream }: Claim,
  keys: readonly string[],
  change: SQL,
): Promise<boolean> {
  if (keys.length === 0) return true;
  const updated = await queryState(() =>
    db.execute(sql`
      UPDATE slotsync.records AS r SET ${change}
      WHERE r.stream = ${stream} AND r.local_key = ${anyOf(keys)} AND r.claimed_by = ${token}`),
  );
  return updated.count === keys.length;
}

/** Gives claims back without an outcome. `inDoubt`: a request was sent and its answer is not known. */
export async function releaseClaim(
  db: Queries,
  token: string,
  claimed: { stream: string; keys: readonly string[] },
  inDoubt: boolean,
): Promise<void> {
  await queryState(() =>
    db.execute(sql`
      UPDATE slotsync.records SET claimed_by = NULL, claimed_until = NULL, in_doubt = in_doubt OR ${inDoubt}
      WHERE stream = ${claimed.stream} AND local_key = ${anyOf(claimed.keys)} AND claimed_by = ${token}`),
  );
}

/** What became of claimed records. `isReferredTo`: others may wait for them. */
export interface Settled {
  token: string;
  outcomes: readonly Outcome[];
  isReferredTo: boolean;
}

/**
 * Writes outcomes and gives the claims back. Records whose claim was lost meanwhile are put in doubt instead,
 * since two batches may have written them: they are sent again.
 */
export async function settleRecords(
  db: Queries,
  { token, stream, runId, outcomes, isReferredTo }: Settled & { stream: string; runId: number },
): Promise<{ lost: string[] }> {
  if (outcomes.length === 0) return { lost: [] };
  const keysOf = (wanted: Outcome['outcome']) =>
    outcomes.filter(({ outcome }) => outcome === wanted).map(({ localKey }) => localKey);
  const forgotten = keysOf('forgotten');
  const skipped = keysOf('skipped');
  const kept = outcomes.filter(isKept).map(toRow);
  const keptKeys = kept.map(({ local_key }) => local_key);
  const byKey = Object.fromEntries(kept.map((row) => [row.local_key, row]));
  return queryState(async () => {
    // Each row looks its own outcome up: a join with the list would be a nested loop, whatever is known of the table.
    const written = await db.execute<{ localKey: string }>(sql`
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
      RETURNING r.local_key AS "localKey"`);
    if (forgotten.length > 0)
      await db.execute(sql`
      DELETE FROM slotsync.records WHERE stream = ${stream} AND claimed_by = ${token}
        AND local_key = ${anyOf(forgotten)}`);
    if (skipped.length > 0)
      await db.execute(sql`
      UPDATE slotsync.records SET claimed_by = NULL, claimed_until = NULL WHERE stream = ${stream} AND claimed_by = ${token}
        AND local_key = ${anyOf(skipped)}`);
    if (isReferredTo) await wakeWaiting(db, stream, runId, outcomes);
    await wakeLate(db, stream, runId, outcomes);

    const seen = new Set(written.map(({ localKey }) => localKey));
    const lost = keptKeys.filter((key) => !seen.has(key));
    if (lost.length > 0) {
      await db.execute(sql`
        UPDATE slotsync.records SET in_doubt = true
        WHERE stream = ${stream} AND local_key = ${anyOf(lost)}`);
    }
    return { lost };
  });
}

/**
 * What waited for these records goes now, by the inbox; a nightly run has it in its plan. A record given up because what
 * it refers to never came is looked at again when it does come.
 */
async function wakeWaiting(
  db: Queries,
  stream: string,
  runId: number,
  outcomes: readonly Outcome[],
): Promise<void> {
  const arrived = outcomes
    .filter(({ outcome }) => outcome === 'synced' || outcome === 'unchanged')
    .map(({ localKey }) => waitingName({ stream, localKey }));
  if (arrived.length === 0) return;
  await db.execute(sql`
    WITH revived AS (
      UPDATE slotsync.records SET status = 'deferred', waits_since = now(), updated_at = now()
      WHERE waits_for = ${anyOf(arrived)} AND status = 'dead'
      RETURNING stream, local_key)
    INSERT INTO slotsync.changes (stream, local_key)
    SELECT stream, local_key FROM (
      SELECT stream, local_key FROM slotsync.records WHERE waits_for = ${anyOf(arrived)} AND status = 'deferred'
      UNION ALL TABLE revived) AS woken
    WHERE ${isByDay(runId)}`);
}

/**
 * A record may have begun to wait while another run was bringing what it waits for: then nobody has woken it. Nothing is
 * waited for here: a row that somebody is writing just now counts as arrived, and costs one more look.
 */
async function wakeLate(
  db: Queries,
  stream: string,
  runId: number,
  outcomes: readonly Outcome[],
): Promise<void> {
  const waiting = outcomes.flatMap((outcome) =>
    outcome.outcome === 'deferred' && outcome.waitsFor
      ? [
          {
            localKey: outcome.localKey,
            parent: outcome.waitsFor.stream,
            parentKey: outcome.waitsFor.localKey,
          },
        ]
      : [],
  );
  if (waiting.length === 0) return;
  await db.execute(sql`
    WITH waiting AS (
      SELECT * FROM jsonb_to_recordset(${JSON.stringify(waiting)}::jsonb) AS w("localKey" text, parent text, "parentKey" text)
    ), absent AS MATERIALIZED (
      SELECT r.stream, r.local_key, r.object_hash FROM slotsync.records AS r
      WHERE (r.stream, r.local_key) IN (SELECT parent, "parentKey" FROM waiting)
      FOR SHARE SKIP LOCKED
    )
    INSERT INTO slotsync.changes (stream, local_key)
    SELECT ${stream}, w."localKey" FROM waiting AS w
    JOIN slotsync.records AS p ON p.stream = w.parent AND p.local_key = w."parentKey"
    WHERE NOT EXISTS (SELECT FROM absent AS a
      WHERE a.stream = p.stream AND a.local_key = p.local_key AND a.object_hash IS NULL) AND ${isByDay(runId)}`);
}

function isByDay(runId: number) {
  return sql`EXISTS (SELECT FROM slotsync.runs WHERE id = ${runId}::bigint AND kind <> 'sync')`;
}
