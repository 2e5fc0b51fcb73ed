// An operator's retry of records that were given up.
import { sql } from 'drizzle-orm';
import { anyOf, query, type Queries } from '../database.js';
import { AWAITS_SECOND_LOOK, EXTERNAL_ID_CHANGED, type RecordKey } from './outcome-types.js';

/** Records of one stream or of all, with these keys or with any. */
export interface ChosenRecords {
  stream?: string | undefined;
  keys: readonly string[];
}

/**
 * Lets dead and failed records be sent again by the next run; without keys all of them. One whose external id changed lets
 * go of the object it had, and remembers it: the next run creates the new one. Returns those that were changed.
 */
export async function retryRecords(db: Queries, chosen: ChosenRecords): Promise<RecordKey[]> {
  return query<RecordKey>(db)`
    UPDATE slotsync.records AS r SET status = 'failed', refused_hash = NULL, updated_at = now(),
      check_after = CASE WHEN NOT ${sql.raw(AWAITS_SECOND_LOOK)} THEN r.check_after END, ${LET_GO}
    WHERE status IN ('dead', 'failed') AND ${isChosen(chosen)} AND NOT ${HAS_TWO_FORMER}
    RETURNING stream, local_key AS "localKey"`;
}

/**
 * Records that `retryRecords` leaves as they are: their external id has changed twice, and a record remembers one former
 * object. `retireFormer` takes both.
 */
export async function listTwiceChanged(db: Queries, chosen: ChosenRecords) {
  return query<RecordKey & { formerExternalId: string }>(db)`
    SELECT stream, local_key AS "localKey", former_external_id AS "formerExternalId" FROM slotsync.records AS r
    WHERE status = 'dead' AND ${isChosen(chosen)} AND ${HAS_TWO_FORMER} ORDER BY stream, local_key`;
}

const isChosen = ({ stream, keys }: ChosenRecords) =>
  sql`r.stream = coalesce(${stream ?? null}, r.stream) AND ${keys.length === 0 ? sql`true` : sql`r.local_key = ${anyOf(keys)}`}`;

/** Its external id changed, and it still has that of the object it is to let go of. */
const HOLDS_FORMER = sql`(r.error_code IS NOT DISTINCT FROM ${EXTERNAL_ID_CHANGED} AND r.external_id IS NOT NULL)`;
const HAS_TWO_FORMER = sql`(${HOLDS_FORMER} AND coalesce(r.former_external_id <> r.external_id, false))`;
const LET_GO = sql`former_external_id = CASE WHEN ${HOLDS_FORMER} THEN r.external_id ELSE r.former_external_id END,
      (external_id, destination_id, object_hash, source_hash) = (
        SELECT r.external_id, r.destination_id, r.object_hash, r.source_hash WHERE NOT ${HOLDS_FORMER})`;
