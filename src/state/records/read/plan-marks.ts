// Marks: short texts with everything that a plan or a poll needs to know about a record.
// sync/object/decide-operation.ts parses them.
import { sql } from 'drizzle-orm';
import { encodeColumn, escapeColumn } from '../../../connections/postgres-copy.js';
import { quoteLiteral } from '../../../text/sql-text.js';
import { anyOf, query, type Queries, type State } from '../../database.js';
import {
  REFERENCE_CIRCLE,
  RETIREMENT_POSTPONED,
  RETIREMENT_REFUSED,
  STILL_RESERVED,
} from '../outcome-types.js';
import { AWAITS_SECOND_ANSWER, WAS_SENT } from '../record-state.js';
import { isExcepted } from '../../exceptions.js';

/**
 * SQL for the mark of record `r`. The mark of a record in sync is only its source hash, because this is the most
 * frequent case. Other marks are `status:a:hash` or `status:n:hash`, where `a` means that the service may hold the
 * object. `:gone` is appended if the row is deleted. A former object without an operator's decision is marked as
 * retired, so that nothing is planned for it.
 */
export const MARK = `CASE
    WHEN r.status = 'synced' AND r.claimed_by IS NULL AND NOT r.in_doubt AND r.gone_since IS NULL AND r.resend IS NULL
      AND (r.check_after IS NULL OR r.check_after > now()) THEN r.source_hash::text
    ELSE CASE
      WHEN r.former_key IS NOT NULL AND r.source_hash IS NULL THEN 'retired:a:'
      WHEN r.resend = 'repair' THEN 'repair:a:' || CASE WHEN r.status = 'retired' THEN '' ELSE coalesce(r.source_hash::text, '') END
      WHEN r.resend IS NOT NULL AND r.gone_since IS NULL
        THEN 'resend' || CASE WHEN ${WAS_SENT.text} OR r.claimed_by IS NOT NULL THEN ':a:' ELSE ':n:' END
      WHEN r.claimed_by IS NOT NULL OR ((r.in_doubt OR (r.check_after <= now() AND NOT ${AWAITS_SECOND_ANSWER.text}))
        AND r.status <> 'dead') THEN CASE WHEN r.status = 'retired' THEN 'reserved:a:' ELSE 'doubt:a:' || coalesce(r.source_hash::text, '') END
      WHEN r.status = 'synced' THEN 'synced:a:' || r.source_hash
      WHEN r.status = 'deferred' AND r.error_code = ${quoteLiteral(REFERENCE_CIRCLE)} AND r.object_hash IS NOT NULL THEN 'doubt:a:' || r.source_hash
      WHEN r.status = 'retired' THEN 'retired:a:'
      WHEN r.status = 'deferred' AND r.error_code IN (${quoteLiteral(STILL_RESERVED)}, ${quoteLiteral(RETIREMENT_POSTPONED)}) THEN 'reserved:a:'
      WHEN r.status = 'dead' AND starts_with(r.error_code, ${quoteLiteral(RETIREMENT_REFUSED)}) THEN 'unretired:a:'
      ELSE CASE WHEN r.status = 'failed' AND r.error_code = 'external_id_shared' THEN 'shared' ELSE r.status END
        || CASE WHEN ${WAS_SENT.text} THEN ':a:' ELSE ':n:' END || coalesce(r.refused_hash::text, '')
    END || CASE WHEN r.gone_since IS NULL THEN '' ELSE ':gone' END
  END`;

/**
 * Yields blocks of COPY lines (latin1) with key and mark, ordered by the bytes of the key. A complete stream is read
 * over a separate connection, so plans take turns. Single `keys` are read over `state.db`.
 */
export async function* readPlanMarks(
  state: State,
  stream: string,
  keys?: readonly string[],
): AsyncGenerator<string[]> {
  if (keys !== undefined) {
    const rows = await query<{ key: string; mark: string }>(state.db)`
      SELECT r.local_key AS key, ${sql.raw(MARK)} AS mark FROM slotsync.records AS r
      WHERE r.stream = ${stream} AND r.local_key = ${anyOf(keys)} ORDER BY r.local_key`;
    yield rows.map(({ key, mark }) => `${escapeColumn(encodeColumn(key))}\t${mark}`);
    return;
  }
  const statement = `COPY (SELECT r.local_key, ${MARK}
    FROM slotsync.records AS r WHERE r.stream = ${quoteLiteral(stream)} ORDER BY r.local_key) TO STDOUT`;
  yield* state.copy(statement);
}

export interface PolledRecord {
  localKey: string;
  /** Mark of the record, see plan-marks.ts. Null if there is no record. */
  mark: string | null;
  /** True if the key is in the inbox. */
  isWaiting: boolean;
  /** True if a gate holds the record or an exception protects it. */
  isHeld: boolean;
}

export async function readPolledRecords(db: Queries, stream: string, keys: readonly string[]) {
  const rows = await query<PolledRecord>(db)`
    WITH wanted AS (
      SELECT jsonb_array_elements_text(${JSON.stringify(keys)}::jsonb) COLLATE "C" AS key
    )
    SELECT w.key AS "localKey", CASE WHEN r.local_key IS NOT NULL THEN ${sql.raw(MARK)} END AS mark,
      EXISTS (SELECT FROM slotsync.changes AS c
        WHERE c.stream = ${stream} AND c.local_key = w.key AND c.run_id IS NULL) AS "isWaiting",
      EXISTS (SELECT FROM slotsync.held AS h WHERE h.stream = ${stream} AND h.local_key = w.key)
        OR ${isExcepted(sql`${stream}`, sql`w.key`)} AS "isHeld"
    FROM wanted AS w
    LEFT JOIN slotsync.records AS r ON r.stream = ${stream} AND r.local_key = w.key`;
  return new Map(rows.map((row) => [row.localKey, row]));
}
