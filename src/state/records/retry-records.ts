// An operator's retry of records that were given up.
import { sql } from 'drizzle-orm';
import { anyOf, query, type Queries } from '../database.js';
import { isWanted, type FailureFilter } from './failure-filter.js';
import { AWAITS_SECOND_LOOK, EXTERNAL_ID_CHANGED, type RecordKey } from './outcome-types.js';

/** Records of one stream or of all, with these keys or with any, and with this status and code if they are given. */
export interface ChosenRecords extends Pick<FailureFilter, 'stream' | 'status' | 'code'> {
  keys: readonly string[];
}

export const isChosen = ({ keys, ...filter }: ChosenRecords) =>
  sql`(${isWanted(filter)} AND ${keys.length === 0 ? sql`true` : sql`r.local_key = ${anyOf(keys)}`})`;

/** Its external id has changed, and it still has that of the object it is to let go of. */
export const HOLDS_FORMER = sql`(r.status = 'dead' AND r.external_id IS NOT NULL
  AND r.error_code IS NOT DISTINCT FROM ${EXTERNAL_ID_CHANGED})`;
/** A record remembers one former object. */
const WOULD_FORGET_ONE = sql`(${HOLDS_FORMER} AND coalesce(r.former_external_id <> r.external_id, false))`;

/** A record that is sent again, with the code it was given up with. */
export interface RetriedRecord extends RecordKey {
  code: string | null;
}

/**
 * Lets dead and failed records be sent again by the next run; without keys all of them. One whose external id changed lets
 * go of the object it had, and remembers it: the next run creates the new one. Returns those that were changed.
 */
export async function retryRecords(db: Queries, chosen: ChosenRecords): Promise<RetriedRecord[]> {
  return query<RetriedRecord>(db)`
    UPDATE slotsync.records AS r SET status = 'failed', refused_hash = NULL, updated_at = now(),
      check_after = CASE WHEN NOT ${sql.raw(AWAITS_SECOND_LOOK)} THEN r.check_after END,
      -- What was in doubt was the object that it lets go of; of the new one nothing was sent yet.
      in_doubt = r.in_doubt AND NOT ${HOLDS_FORMER},
      (former_external_id, external_id, destination_id, object_hash, source_hash) = (
        SELECT r.former_external_id, r.external_id, r.destination_id, r.object_hash, r.source_hash
        WHERE NOT ${HOLDS_FORMER} UNION ALL SELECT r.external_id, NULL, NULL, NULL, NULL WHERE ${HOLDS_FORMER})
    WHERE r.status IN ('dead', 'failed') AND ${isChosen(chosen)} AND NOT ${WOULD_FORGET_ONE}
    RETURNING r.stream, r.local_key AS "localKey", r.error_code AS code`;
}

/** Records whose external id has changed twice: `retryRecords` leaves them as they are, `retireFormer` takes both objects. */
export async function listTwiceChanged(db: Queries, chosen: ChosenRecords) {
  return query<RecordKey & { formerExternalId: string }>(db)`
    SELECT r.stream, r.local_key AS "localKey", r.former_external_id AS "formerExternalId" FROM slotsync.records AS r
    WHERE ${isChosen(chosen)} AND ${WOULD_FORGET_ONE} ORDER BY r.stream, r.local_key`;
}
