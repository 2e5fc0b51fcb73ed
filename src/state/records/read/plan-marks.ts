// Marks: what a plan or a poll has to know of a record, as one short text. sync/object/decide-operation.ts reads them.
import { sql } from 'drizzle-orm';
import { encodeColumn, escapeColumn } from '../../../connections/postgres-copy.js';
import { quoteLiteral } from '../../../text/sql-text.js';
import { anyOf, query, type State } from '../../database.js';
import {
  REFERENCE_CIRCLE,
  RETIREMENT_POSTPONED,
  RETIREMENT_REFUSED,
  STILL_RESERVED,
} from '../outcome-types.js';
import { AWAITS_SECOND_ANSWER, WAS_SENT } from '../record-state.js';

/**
 * The mark of a row of `records` (named r), in SQL: of a record that is exactly as accepted its source hash alone;
 * otherwise `status:a|n:hash`, where `a` says that the service may hold the object, with `:gone` behind it when its row
 * was seen to be gone. The common case comes first and costs nothing but its hash. A former object that an operator has
 * not decided about reads as retired: nothing is planned of it.
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
 * `(key, mark)` of a stream, or of these keys of it, in the byte order of the key: blocks of COPY lines, latin1. A stream is
 * read over a connection of its own, which is why plans take turns; a few keys need none.
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
