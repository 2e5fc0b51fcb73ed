// A write whose answer was lost may be carried out late, over a newer one. When that cannot happen any more, the record is
// in doubt once more, and its key goes into the inbox, so that the object is looked at. A refusal while nothing was accepted
// is followed up in the same way.
import { sql } from 'drizzle-orm';
import { anyOf, queryOne, type Queries } from '../database.js';
import { AWAITS_SECOND_ANSWER, IS_FORMER, IS_FREE } from '../records/record-state.js';
import { CHANGES_CHANNEL } from './add-changes.js';
import { isWorkWaiting } from './take-changes.js';

/** Records taken in one statement. */
const AT_ONCE = 1000;

/** A row `c` that names no run which may have taken it: a program that adds rows may have named one. */
const IS_MISTAKEN = sql`(c.run_id IS NOT NULL AND NOT EXISTS (
  SELECT FROM slotsync.runs AS r WHERE r.id = c.run_id AND r.kind = 'incremental' AND r.finished_at IS NULL))`;

/**
 * Puts the records of these streams whose check is due into the inbox; an object that no row has stays in doubt until
 * one does. Rows that no run can have taken wait again. Returns how many checks were due, and whether anything in the inbox
 * may be taken: all that an idle worker asks.
 */
export async function addDueChecks(
  db: Queries,
  streams: readonly string[],
): Promise<{ added: number; isWorkWaiting: boolean }> {
  return queryOne<{ added: number; isWorkWaiting: boolean }>(db)`
    WITH due AS (
      SELECT r.stream, r.local_key FROM slotsync.records AS r
      WHERE r.check_after <= now() AND r.stream = ${anyOf(streams)} AND ${IS_FREE}
      ORDER BY r.check_after LIMIT ${AT_ONCE} FOR UPDATE SKIP LOCKED
    ), doubted AS (
      UPDATE slotsync.records AS r
      SET in_doubt = r.in_doubt OR NOT ${AWAITS_SECOND_ANSWER}, check_after = NULL
      FROM due WHERE r.stream = due.stream AND r.local_key = due.local_key
      RETURNING r.stream, r.local_key, ${IS_FORMER} AS is_former
    ), added AS (
      INSERT INTO slotsync.changes (stream, local_key) SELECT stream, local_key FROM doubted WHERE NOT is_former RETURNING 1
    ), mended AS (
      UPDATE slotsync.changes AS c SET run_id = NULL WHERE ${IS_MISTAKEN} RETURNING 1
    )
    SELECT count(*)::int AS added,
      count(*) > 0 OR EXISTS (SELECT FROM mended) OR ${isWorkWaiting(streams)} AS "isWorkWaiting",
      CASE WHEN count(*) > 0 THEN pg_notify(${CHANGES_CHANNEL}, '') END
    FROM added`;
}
