// One row per object: what the service accepted last, and what became of the latest attempt. Here is what is asked of
// them; claims.ts writes them.
import { sql } from 'drizzle-orm';
import postgres from 'postgres';
import { readCopy } from '../copy-lines.js';
import { asStateError, queryState, type Queries, type State } from './database.js';
import { waitingName } from './outcomes.js';

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
