// Objects that records had before their external ids changed. The record remembers one until it is retired, or until the
// row gives its id again.
import { sql } from 'drizzle-orm';
import { quoteLiteral } from '../../sql-text.js';
import { anyOf, query, queryOne, type Queries } from '../database.js';
import type { RecordKey } from './outcome-types.js';
import { HOLDS_FORMER, isChosen, type ChosenRecords } from './retry-records.js';

const PREFIX = '#former ';

/** The key of the record of a former object: no row has it. */
export const formerKey = (externalId: string): string => PREFIX + externalId;
const formerKeyOf = (column: string) => sql.raw(`${quoteLiteral(PREFIX)} || ${column}`);

/** Its former object has become a record of its own, which is not retired yet. Of a row of `records` (named r). */
export const FORMER_HAS_RECORD = sql`EXISTS (SELECT FROM slotsync.records AS f
  WHERE f.stream = r.stream AND f.local_key = ${formerKeyOf('r.former_external_id')}
    AND f.external_id = r.former_external_id AND f.status <> 'retired')`;

/** What a record becomes that would be deleted but for its former object, which `retireFormer` is to find. */
export const KEPT_FOR_FORMER = sql`status = 'retired', external_id = NULL, destination_id = NULL, source_hash = NULL,
  object_hash = NULL, refused_hash = NULL, error_code = NULL, error_message = NULL, waits_for = NULL, waits_since = NULL,
  in_doubt = false, gone_since = NULL, claimed_by = NULL, claimed_until = NULL, updated_at = now()`;

/** Former objects of records that are otherwise in sync; those of others are shown with them. Of one stream when given. */
export async function countFormerObjects(db: Queries, stream?: string): Promise<number> {
  const { count } = await queryOne<{ count: number }>(db)`
    SELECT count(*)::int AS count FROM slotsync.records
    WHERE former_external_id IS NOT NULL AND status IN ('synced', 'retired') AND stream = coalesce(${stream ?? null}, stream)`;
  return count;
}

/** Streams with former objects, other than these. */
export async function listOtherFormerStreams(db: Queries, streams: readonly string[]): Promise<string[]> {
  const rows = await query<{ stream: string }>(db)`
    SELECT DISTINCT stream FROM slotsync.records
    WHERE former_external_id IS NOT NULL AND NOT stream = ${anyOf(streams)} ORDER BY stream`;
  return rows.map(({ stream }) => stream);
}

/** A record, and the objects it no longer stands for. */
export interface FormerObjects extends RecordKey {
  externalIds: string[];
}

/**
 * Makes former objects records of their own, whose rows are gone by definition: the next plan retires them, through every
 * guard and limit. A record that still has the object lets go of it, as with `retryRecords`; until the new one is accepted
 * it remembers the former one, so that what refers to it is sent again then. Leaves records that a batch has claimed.
 * Returns those that were changed; a second call finds none.
 */
export async function retireFormer(
  db: Queries,
  { streams, ...chosen }: ChosenRecords & { streams: readonly string[] },
): Promise<FormerObjects[]> {
  return query<FormerObjects>(db)`
    WITH chosen AS (
      SELECT r.*, ${HOLDS_FORMER} AS holds FROM slotsync.records AS r
      WHERE ${isChosen(chosen)} AND r.stream = ${anyOf(streams)}
        AND (${HOLDS_FORMER} OR (r.former_external_id <> coalesce(r.external_id, '') AND NOT ${FORMER_HAS_RECORD}))
        AND (r.claimed_by IS NULL OR r.claimed_until < now())
      FOR UPDATE
    ), former AS (
      SELECT c.stream, c.local_key, f.external_id, c.synced_at, c.check_after, c.in_doubt AND c.holds AS in_doubt,
        CASE WHEN c.holds AND f.external_id = c.external_id THEN c.destination_id END AS destination_id
      FROM chosen AS c CROSS JOIN LATERAL (
        SELECT c.former_external_id UNION SELECT c.external_id WHERE c.holds) AS f(external_id)
      WHERE f.external_id IS NOT NULL
    ), made AS (
      INSERT INTO slotsync.records AS r (stream, local_key, external_id, destination_id, source_hash, object_hash,
        status, in_doubt, check_after, synced_at)
      SELECT stream, ${formerKeyOf('external_id')}, external_id, max(destination_id), 0, '', 'synced',
        bool_or(in_doubt), max(check_after), max(synced_at)
      FROM former GROUP BY stream, external_id
      ON CONFLICT (stream, local_key) DO UPDATE SET status = 'synced', source_hash = 0, object_hash = '',
        refused_hash = NULL, error_code = NULL, error_message = NULL, gone_since = NULL, attempts = 0, updated_at = now(),
        in_doubt = r.in_doubt OR excluded.in_doubt, check_after = greatest(r.check_after, excluded.check_after)
      WHERE r.external_id = excluded.external_id
      RETURNING r.stream, r.external_id
    )
    UPDATE slotsync.records AS r SET updated_at = now(),
      (status, refused_hash, former_external_id, external_id, destination_id, object_hash, source_hash, in_doubt,
        check_after) = (
        SELECT r.status, r.refused_hash, CASE WHEN r.status NOT IN ('synced', 'retired') THEN r.former_external_id END,
          r.external_id, r.destination_id, r.object_hash, r.source_hash, r.in_doubt, r.check_after WHERE NOT c.holds
        UNION ALL
        SELECT 'failed', NULL, r.external_id, NULL, NULL, NULL, NULL, false, NULL WHERE c.holds)
    FROM chosen AS c, LATERAL (
      SELECT array_agg(f.external_id ORDER BY f.external_id) AS ids, count(m.external_id) AS made FROM former AS f
      LEFT JOIN made AS m ON m.stream = f.stream AND m.external_id = f.external_id
      WHERE f.stream = c.stream AND f.local_key = c.local_key) AS f
    WHERE r.stream = c.stream AND r.local_key = c.local_key AND f.made = cardinality(f.ids)
    RETURNING r.stream, r.local_key AS "localKey", f.ids AS "externalIds"`;
}
