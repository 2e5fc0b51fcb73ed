// Rows whose key seems to have changed: a plan found a deleted and a new row with the same values.
import { query, type Queries } from '../../database.js';
import type { RenamedRow } from '../gone-rows.js';

/** Days for which an unconfirmed rename is offered. Later, the operator probably does not want it. */
const OFFERED_DAYS = 30;

export type OfferedRename = RenamedRow & { stream: string };

/** Returns unconfirmed renames, latest first. Optionally of one stream, or of rows deleted after `since`. */
export async function listRenamedRows(db: Queries, stream?: string, since?: Date): Promise<OfferedRename[]> {
  return query<OfferedRename>(db)`
    SELECT r.stream, r.local_key AS "from", r.renamed_to AS "to"
    FROM slotsync.records AS r LEFT JOIN slotsync.records AS n ON n.stream = r.stream AND n.local_key = r.renamed_to
    WHERE r.renamed_to IS NOT NULL AND r.stream = coalesce(${stream ?? null}, r.stream) AND r.external_id IS NOT NULL
      AND (r.gone_since IS NOT NULL OR r.status = 'retired') AND n.gone_since IS NULL AND n.status IS DISTINCT FROM 'retired'
      AND coalesce(r.gone_since, r.updated_at) > coalesce(${since?.toISOString() ?? null}::timestamptz, now() - make_interval(days => ${OFFERED_DAYS}))
    ORDER BY coalesce(r.gone_since, r.updated_at) DESC, r.stream, r.local_key`;
}
