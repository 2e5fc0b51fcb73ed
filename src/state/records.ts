// One row per object: what the service accepted last, and what became of the latest attempt. A record is
// claimed before it is looked at and settled with its outcome; a claim that was never settled leaves the
// record in doubt, and it is sent again.
import { sql } from 'drizzle-orm';
import postgres from 'postgres';
import { readCopy } from '../copy-lines.js';
import { asStateError, queryState, type Queries, type State } from './database.js';
import type { OutcomeCounts, RecordStatus } from './schema.js';

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

/** What became of one record. Hashes are of the row and the object the service accepted. */
export type Outcome = { localKey: string; externalId?: string | undefined } & (
  | {
      outcome: 'synced' | 'unchanged';
      destinationId?: number | undefined;
      sourceHash: string;
      objectHash: string;
      retired?: boolean;
    }
  | { outcome: 'deferred'; code: string; message: string; waitsFor: { stream: string; localKey: string } }
  | { outcome: 'failed'; code: string; message: string; inDoubt?: boolean }
  | {
      outcome: 'dead';
      code: string;
      message: string;
      sourceHash: string;
      waitsFor?: { stream: string; localKey: string };
    }
  /** Its row is gone and the service never had it. */
  | { outcome: 'gone' }
  /** Its row is gone; the next plan decides. */
  | { outcome: 'left' }
);

export const NO_OUTCOMES: OutcomeCounts = { synced: 0, unchanged: 0, deferred: 0, failed: 0, dead: 0 };

export function countOutcomes(outcomes: Iterable<Outcome>): OutcomeCounts {
  const counts = { ...NO_OUTCOMES };
  for (const { outcome } of outcomes)
    counts[outcome === 'gone' || outcome === 'left' ? 'unchanged' : outcome]++;
  return counts;
}

/**
 * `(key, mark)` of a stream in the byte order of the key: blocks of COPY lines, latin1. The mark of a record
 * that is exactly as accepted is its source hash alone; otherwise `status:a|n:hash`, where `a` says that the
 * service may hold the object. See sync/merge.ts.
 */
export async function* readMarks(state: State, stream: string): AsyncGenerator<string[]> {
  const client = postgres(state.url, { max: 1, connect_timeout: 10, onnotice: () => undefined });
  const statement = `COPY (SELECT local_key, CASE
      WHEN claimed_by IS NOT NULL OR (in_doubt AND status <> 'dead') THEN 'doubt:a:'
      WHEN status = 'synced' THEN source_hash::text
      WHEN status = 'retired' THEN 'retired:a:'
      ELSE status || CASE WHEN object_hash IS NULL AND NOT in_doubt THEN ':n:' ELSE ':a:' END || coalesce(refused_hash::text, '')
    END FROM slotsync.records WHERE stream = '${stream.replaceAll("'", "''")}' ORDER BY local_key) TO STDOUT`;
  try {
    yield* readCopy(client, statement);
  } catch (error) {
    throw asStateError(error);
  }
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

function waitingName({ stream, localKey }: { stream: string; localKey: string }): string {
  return JSON.stringify([stream, localKey]);
}

function toRow(outcome: Outcome) {
  const accepted = outcome.outcome === 'synced' || outcome.outcome === 'unchanged';
  const message = 'message' in outcome ? storable(outcome.message) : null;
  const row = {
    local_key: outcome.localKey,
    status: outcome.outcome as RecordStatus,
    accepted,
    sent: outcome.outcome === 'synced',
    external_id: outcome.externalId ?? null,
    destination_id: null as number | null,
    source_hash: null as string | null,
    object_hash: null as string | null,
    error_code: null as string | null,
    error_message: null as string | null,
    waits_for: null as string | null,
    in_doubt: false,
  };
  switch (outcome.outcome) {
    case 'synced':
    case 'unchanged':
      return {
        ...row,
        status: (outcome.retired ? 'retired' : 'synced') satisfies RecordStatus as RecordStatus,
        destination_id: outcome.destinationId ?? null,
        source_hash: outcome.sourceHash,
        object_hash: outcome.objectHash,
      };
    case 'deferred':
      return {
        ...row,
        error_code: outcome.code,
        error_message: message,
        waits_for: waitingName(outcome.waitsFor),
      };
    case 'failed':
      return { ...row, error_code: outcome.code, error_message: message, in_doubt: outcome.inDoubt ?? false };
    case 'dead':
      return {
        ...row,
        error_code: outcome.code,
        error_message: message,
        source_hash: outcome.sourceHash,
        waits_for: outcome.waitsFor ? waitingName(outcome.waitsFor) : null,
      };
    case 'gone':
    case 'left':
      return row;
  }
}

/** Messages come from functions and services: kept short, and without what jsonb cannot hold. */
function storable(message: string): string {
  return message.slice(0, 2000).replaceAll('\0', '').toWellFormed();
}

/** External ids of records the service has accepted, by stream and key. */
export async function readExternalIds(
  db: Queries,
  wanted: readonly { stream: string; localKey: string }[],
): Promise<(reference: { stream: string; localKey: string }) => string | undefined> {
  if (wanted.length === 0) return () => undefined;
  const rows = await queryState(() =>
    db.execute<{ stream: string; localKey: string; externalId: string }>(sql`
      SELECT r.stream, r.local_key AS "localKey", r.external_id AS "externalId"
      FROM jsonb_to_recordset(${JSON.stringify(wanted)}::jsonb) AS w(stream text, "localKey" text)
      JOIN slotsync.records AS r ON r.stream = w.stream AND r.local_key = w."localKey"
      WHERE r.object_hash IS NOT NULL`),
  );
  const found = new Map(rows.map((row) => [waitingName(row), row.externalId]));
  return (reference) => found.get(waitingName(reference));
}

/**
 * Which records stand for each of these external ids, as far as the state knows; retired ones do not. `accepted`: only
 * those whose object the service has taken.
 */
export async function readOwners(
  db: Queries,
  externalIds: readonly string[],
  which: 'accepted' | 'all' = 'accepted',
): Promise<Map<string, { stream: string; localKey: string }[]>> {
  const accepted = which === 'accepted' ? sql`AND object_hash IS NOT NULL` : sql``;
  const rows = await queryState(() =>
    db.execute<{ externalId: string; stream: string; localKey: string }>(sql`
      SELECT external_id AS "externalId", stream, local_key AS "localKey" FROM slotsync.records
      WHERE status <> 'retired' ${accepted}
        AND external_id IN (SELECT jsonb_array_elements_text(${JSON.stringify(externalIds)}::jsonb))`),
  );
  const owners = new Map<string, { stream: string; localKey: string }[]>();
  for (const { externalId, ...owner } of rows)
    owners.set(externalId, [...(owners.get(externalId) ?? []), owner]);
  return owners;
}

/** Writes failures found while planning, for records no batch has claimed. */
export async function failRecords(
  db: Queries,
  stream: string,
  runId: number,
  failures: readonly { localKey: string; externalId: string; code: string; message: string }[],
): Promise<void> {
  await queryState(() =>
    db.execute(sql`
      INSERT INTO slotsync.records AS r (stream, local_key, status, external_id, error_code, error_message, attempts, run_id)
      SELECT ${stream}, f."localKey", 'failed', f."externalId", f.code, f.message, 1, ${runId}::bigint
      FROM jsonb_to_recordset(${JSON.stringify(failures)}::jsonb) AS f("localKey" text, "externalId" text, code text, message text)
      ON CONFLICT (stream, local_key) DO UPDATE SET
        status = 'failed', error_code = excluded.error_code, error_message = excluded.error_message,
        attempts = r.attempts + 1, run_id = excluded.run_id, updated_at = now()`),
  );
}

/** Forgets records that never reached the service and whose row is gone. */
export async function forgetRecords(db: Queries, stream: string, keys: readonly string[]): Promise<void> {
  await queryState(() =>
    db.execute(sql`
      DELETE FROM slotsync.records WHERE stream = ${stream} AND object_hash IS NULL AND NOT in_doubt AND claimed_by IS NULL
        AND local_key IN (SELECT jsonb_array_elements_text(${JSON.stringify(keys)}::jsonb))`),
  );
}

/** External ids of records, as far as the state has them, by local key. */
export async function readRecordIds(
  db: Queries,
  stream: string,
  keys: readonly string[],
): Promise<Map<string, string>> {
  const rows = await queryState(() =>
    db.execute<{ localKey: string; externalId: string }>(sql`
      SELECT local_key AS "localKey", external_id AS "externalId" FROM slotsync.records
      WHERE stream = ${stream} AND external_id IS NOT NULL
        AND local_key IN (SELECT jsonb_array_elements_text(${JSON.stringify(keys)}::jsonb))`),
  );
  return new Map(rows.map(({ localKey, externalId }) => [localKey, externalId]));
}
