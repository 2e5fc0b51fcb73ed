// A write whose answer was lost may be carried out late, and replace a newer write. When that can no longer happen, the
// record is marked as in doubt and its key is added to the inbox, so that the object is read back. A refusal while
// nothing was accepted is followed up in the same way.
import { sql, type SQL } from 'drizzle-orm';
import { anyOf, queryOne, type Queries } from '../database.js';
import { ENDING_EXPIRED } from '../exceptions.js';
import {
  AWAITS_SECOND_ANSWER,
  FIELDS_IN_DOUBT,
  IS_FORMER,
  IS_FREE,
  MAY_BE_REPLACED,
} from '../records/record-state.js';
import { isWorkWaiting } from './take-changes.js';

const AT_ONCE = 1000;

/**
 * Query of the distinct runs in a column of the inbox. Looks up one run after the other in the index, because a run may
 * have very many rows.
 */
const namedIn = (column: SQL) => sql`(WITH RECURSIVE named AS (
  SELECT min(${column}) AS id FROM slotsync.changes
  UNION ALL SELECT (SELECT min(${column}) FROM slotsync.changes WHERE ${column} > named.id) FROM named WHERE id IS NOT NULL
) SELECT id FROM named WHERE id IS NOT NULL)`;

/**
 * Runs that inbox rows refer to but that are over, so that the keys of these rows can be taken again. A run may also
 * never have existed, because other programs can write any number into a row.
 */
const ENDED = sql`ARRAY(SELECT id FROM (${namedIn(sql`run_id`)} UNION ${namedIn(sql`after_run`)}) AS named
  WHERE NOT EXISTS (SELECT FROM slotsync.runs AS r WHERE r.id = named.id AND r.kind = 'incremental' AND r.finished_at IS NULL))`;

/**
 * Puts the records of these streams whose check is due into the inbox, and the keys of exceptions whose time is over; an object
 * that no row has stays in doubt until one does. Rows of no unfinished run wait again. Returns whether anything in the inbox may be
 * taken: all that an idle worker asks. Notifies no worker, because the caller takes what it has added.
 */
export async function addDueChecks(db: Queries, streams: readonly string[]): Promise<boolean> {
  const { found } = await queryOne<{ found: boolean }>(db)`
    WITH expired AS (${ENDING_EXPIRED}), due AS (
      SELECT r.stream, r.local_key FROM slotsync.records AS r
      WHERE r.check_after <= now() AND r.stream = ${anyOf(streams)} AND ${IS_FREE}
      ORDER BY r.check_after LIMIT ${AT_ONCE} FOR UPDATE SKIP LOCKED
    ), doubted AS (
      UPDATE slotsync.records AS r
      SET in_doubt = r.in_doubt OR NOT ${AWAITS_SECOND_ANSWER}, check_after = NULL,
        accepted_fields = CASE WHEN ${MAY_BE_REPLACED} THEN ${FIELDS_IN_DOUBT} ELSE r.accepted_fields END
      FROM due WHERE r.stream = due.stream AND r.local_key = due.local_key
      RETURNING r.stream, r.local_key, ${IS_FORMER} AS is_former
    ), added AS (
      INSERT INTO slotsync.changes (stream, local_key)
      SELECT stream, local_key FROM doubted WHERE NOT is_former UNION ALL TABLE expired RETURNING 1
    ), freed AS (
      UPDATE slotsync.changes AS c SET run_id = NULL, after_run = NULL WHERE c.run_id = ANY (${ENDED}) OR c.after_run = ANY (${ENDED}) RETURNING 1
    )
    SELECT EXISTS (SELECT FROM added) OR EXISTS (SELECT FROM freed) OR ${isWorkWaiting(streams)} AS found`;
  return found;
}
