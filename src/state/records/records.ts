// One row per object: what the service accepted last, and what became of the latest attempt. Here is what is asked of
// them; claims.ts writes them.
import { sql } from 'drizzle-orm';
import { arrayLiteral } from '../../sql-text.js';
import { anyOf, queryState, type Queries } from '../database.js';
import { waitingName } from './outcomes.js';

/** External ids of records the service has accepted, by stream and key. */
export async function readExternalIds(
  db: Queries,
  wanted: readonly { stream: string; localKey: string }[],
): Promise<(reference: { stream: string; localKey: string }) => string | undefined> {
  if (wanted.length === 0) return () => undefined;
  const rows = await queryState(
    () =>
      db.execute<{ stream: string; localKey: string; externalId: string }>(sql`
      SELECT r.stream, r.local_key AS "localKey", r.external_id AS "externalId"
      FROM jsonb_to_recordset(${JSON.stringify(wanted)}::jsonb) AS w(stream text, "localKey" text)
      CROSS JOIN LATERAL (
        SELECT * FROM slotsync.records AS r
        WHERE r.stream = w.stream AND r.local_key = w."localKey" AND r.object_hash IS NOT NULL
        OFFSET 0) AS r`), // one look at the index for each: a table that has just grown has no statistics
  );
  const found = new Map(rows.map((row) => [waitingName(row), row.externalId]));
  return (reference) => found.get(waitingName(reference));
}

/** A record that stands for an external id. */
export interface Owner {
  stream: string;
  localKey: string;
  /** The service has taken its object. */
  isAccepted: boolean;
  /** A batch is writing it just now, or it is not known whether one has. */
  isWritten: boolean;
}

/** Which records stand for each of these external ids, as far as the state knows; retired ones do not. */
export async function readOwners(db: Queries, externalIds: readonly string[]): Promise<Map<string, Owner[]>> {
  const rows = await queryState(
    () =>
      db.execute<{ externalId: string } & Record<keyof Owner, never>>(sql`
      SELECT r.external_id AS "externalId", r.stream, r.local_key AS "localKey",
        r.object_hash IS NOT NULL AS "isAccepted", r.claimed_by IS NOT NULL OR r.in_doubt AS "isWritten"
      FROM unnest(${arrayLiteral([...new Set(externalIds)])}::text[]) AS w(external_id)
      CROSS JOIN LATERAL (
        SELECT * FROM slotsync.records AS r
        WHERE r.external_id = w.external_id AND r.status <> 'retired'
        OFFSET 0) AS r`), // as above
  );
  const owners = new Map<string, Owner[]>();
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
        AND local_key = ${anyOf(keys)}`),
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
        AND local_key = ${anyOf(keys)}`),
  );
  return new Map(rows.map(({ localKey, externalId }) => [localKey, externalId]));
}

/** Those of these keys that the state has a record of. */
export async function readRecordKeys(
  db: Queries,
  stream: string,
  keys: readonly string[],
): Promise<Set<string>> {
  const rows = await queryState(() =>
    db.execute<{ localKey: string }>(sql`
      SELECT local_key AS "localKey" FROM slotsync.records
      WHERE stream = ${stream} AND local_key = ${anyOf(keys)}`),
  );
  return new Set(rows.map(({ localKey }) => localKey));
}

/** Notes that the rows of these keys are gone, those for which it was not noted yet. */
export async function noteGone(db: Queries, stream: string, keys: readonly string[]): Promise<void> {
  await queryState(() =>
    db.execute(sql`
      UPDATE slotsync.records SET gone_since = now()
      WHERE stream = ${stream} AND gone_since IS NULL
        AND local_key = ${anyOf(keys)}`),
  );
}

/** Notes that the rows of these keys are there again: what is counted in days begins anew. */
export async function noteBack(db: Queries, stream: string, keys: readonly string[]): Promise<void> {
  await queryState(() =>
    db.execute(sql`
      UPDATE slotsync.records SET gone_since = NULL
      WHERE stream = ${stream} AND local_key = ${anyOf(keys)}`),
  );
}

/** Those of the keys whose rows have been gone for so many days. */
export async function readLongGone(
  db: Queries,
  stream: string,
  keys: readonly string[],
  days: number,
): Promise<Set<string>> {
  const rows = await queryState(() =>
    db.execute<{ localKey: string }>(sql`
      SELECT local_key AS "localKey" FROM slotsync.records
      WHERE stream = ${stream} AND local_key = ${anyOf(keys)}
        AND gone_since <= now() - make_interval(secs => ${days * 24 * 60 * 60})`),
  );
  return new Set(rows.map(({ localKey }) => localKey));
}

/** Records of a stream the service is believed to hold, retired ones left out. */
export async function countAccepted(db: Queries, stream: string): Promise<number> {
  const [row] = await queryState(() =>
    db.execute<{ count: number }>(sql`
      SELECT count(*)::int AS count FROM slotsync.records
      WHERE stream = ${stream} AND status <> 'retired' AND (object_hash IS NOT NULL OR in_doubt)`),
  );
  return row?.count ?? 0;
}
