// Tracks rows that were deleted in the mirror: since when, and under which new key a row seems to exist. Also ends
// records of deleted rows that have no object to retire.
import { sql } from 'drizzle-orm';
import type { Stream } from '../../streams/stream.js';
import { anyOf, query, queryColumn, type Queries } from '../database.js';
import { FIELDS_IN_DOUBT, MAY_BE_AT_SERVICE, MAY_BE_REPLACED, PLANNED_AT } from './record-state.js';
import { wakeSharers } from './wake-waiting.js';

/** Key of a deleted row (`from`), and key under which the row seems to exist now (`to`). */
export interface RenamedRow {
  from: string;
  to: string;
}

/** Stores the current time as `gone_since` for records whose row was found missing, unless it is stored already. */
export async function noteGone(db: Queries, stream: string, keys: readonly string[]): Promise<void> {
  await query(db)`
    UPDATE slotsync.records AS r SET gone_since = now(), there_until = ${PLANNED_AT}, renamed_to = NULL
    WHERE stream = ${stream} AND local_key = ${anyOf(keys)} AND gone_since IS NULL`;
}

/** Marks rows as present again. If a row is deleted again, its grace period starts from the beginning. */
export async function noteBack(db: Queries, stream: string, keys: readonly string[]): Promise<void> {
  await query(db)`
    UPDATE slotsync.records SET gone_since = NULL, renamed_to = NULL
    WHERE stream = ${stream} AND local_key = ${anyOf(keys)}`;
}

export async function noteRenamed(
  db: Queries,
  stream: string,
  renamed: readonly RenamedRow[],
): Promise<void> {
  for (const { from, to } of renamed)
    await query(db)`
      UPDATE slotsync.records SET renamed_to = ${to} WHERE stream = ${stream} AND local_key = ${from}`;
}

/**
 * Returns the keys of deleted rows whose grace period is over. The period starts when the row was found missing, or at
 * the record's `ends_at`. In a preview of a plan, `gone_since` may still be null.
 */
export async function readLongGone(db: Queries, { name, graceDays }: Stream, keys: readonly string[]) {
  const isCounted = typeof graceDays === 'number';
  const days = isCounted ? graceDays : graceDays.days;
  const since = isCounted ? sql`gone_since` : sql`coalesce(ends_at, gone_since, now())`;
  const longGone = await queryColumn<string>(db)`
    SELECT local_key FROM slotsync.records WHERE stream = ${name} AND local_key = ${anyOf(keys)}
      AND ${since} <= now() - make_interval(secs => ${days * 24 * 60 * 60})`;
  return new Set(longGone);
}

/** Deletes records whose objects the service cannot hold. Records claimed by a batch are kept. */
export async function forgetRecords(db: Queries, stream: string, keys: readonly string[]): Promise<void> {
  const forgotten = await query<{ externalId: string | null }>(db)`
    DELETE FROM slotsync.records AS r WHERE r.stream = ${stream} AND r.local_key = ${anyOf(keys)} AND NOT ${MAY_BE_AT_SERVICE}
    RETURNING coalesce(external_id, row_external_id) AS "externalId"`;
  await wakeSharers(
    db,
    forgotten.flatMap(({ externalId }) => externalId ?? []),
  );
}

/** SQL: the service can no longer execute a write of record `r`. */
const IS_QUIET = sql`(coalesce(r.check_after <= now(), true)
  AND coalesce(r.claimed_until < now() - interval '1 day', true))`;

/**
 * Settles records whose rows are deleted and whose stream retires nothing. A record that was accepted becomes `synced`
 * with an empty object hash, so that its row is sent if it reappears. A record that was never accepted is deleted. A
 * doubt remains while the service may still execute a write. Records that a batch is writing are skipped.
 */
export async function abandonRecords(db: Queries, stream: string, keys: readonly string[]): Promise<void> {
  const isOfKeys = sql`r.stream = ${stream} AND r.local_key = ${anyOf(keys)} AND r.status <> 'retired'`;
  await query(db)`
    UPDATE slotsync.records AS r SET in_doubt = false, check_after = NULL, claimed_by = NULL, claimed_until = NULL,
      accepted_fields = CASE WHEN r.claimed_by IS NOT NULL OR ${MAY_BE_REPLACED} THEN ${FIELDS_IN_DOUBT} ELSE r.accepted_fields END
    WHERE ${isOfKeys} AND ${IS_QUIET}`;
  await forgetRecords(db, stream, keys);
  const abandoned = await query<{ externalId: string | null; rowId: string | null }>(db)`
    WITH abandoned AS (
      SELECT stream, local_key, row_external_id FROM slotsync.records AS r
      WHERE ${isOfKeys} AND r.object_hash IS NOT NULL AND coalesce(r.claimed_until < now(), true) FOR UPDATE)
    UPDATE slotsync.records AS r SET row_external_id = NULL, status = 'synced', source_hash = 0, object_hash = '', refused_hash = NULL,
      error_code = NULL, error_message = NULL, waits_for = NULL, waits_since = NULL, attempts = 0,
      there_until = CASE WHEN r.gone_since IS NULL THEN ${PLANNED_AT} ELSE r.there_until END,
      gone_since = coalesce(r.gone_since, now()), updated_at = now()
    FROM abandoned AS a WHERE r.stream = a.stream AND r.local_key = a.local_key
    RETURNING r.external_id AS "externalId", a.row_external_id AS "rowId"`;
  await wakeSharers(
    db,
    abandoned.flatMap(({ externalId, rowId }) => [externalId, rowId].filter((id) => id !== null)),
  );
}

/** Days for which an unconfirmed rename is offered. Later, the operator probably does not want it. */
const OFFERED_DAYS = 30;

export type OfferedRename = RenamedRow & { stream: string };

/** Returns unconfirmed renames, latest first. Optionally of one stream, or of rows deleted after `since`. */
export const listRenamedRows = (db: Queries, stream?: string, since?: Date) => query<OfferedRename>(db)`
  SELECT r.stream, r.local_key AS "from", r.renamed_to AS "to"
  FROM slotsync.records AS r LEFT JOIN slotsync.records AS n ON n.stream = r.stream AND n.local_key = r.renamed_to
  WHERE r.renamed_to IS NOT NULL AND r.stream = coalesce(${stream ?? null}, r.stream) AND r.external_id IS NOT NULL
    AND (r.gone_since IS NOT NULL OR r.status = 'retired') AND n.gone_since IS NULL AND n.status IS DISTINCT FROM 'retired'
    AND coalesce(r.gone_since, r.updated_at) > coalesce(${since?.toISOString() ?? null}::timestamptz, now() - make_interval(days => ${OFFERED_DAYS}))
  ORDER BY coalesce(r.gone_since, r.updated_at) DESC, r.stream, r.local_key`;
