// Rows that seem to have another key now: a plan found one gone and a new one with the same values, and no operator has said
// that they are the same.
import { query, type Queries } from '../../database.js';
import type { RenamedRow } from '../gone-rows.js';

/** Who has not renamed by then does not mean to. */
const OFFERED_DAYS = 30;

export type OfferedRename = RenamedRow & { stream: string };

/** The latest ones whose former row is still gone and whose new one is not. Of one stream, and gone since a time, when given. */
export async function listRenamedRows(db: Queries, stream?: string, since?: Date): Promise<OfferedRename[]> {
  return query<OfferedRename>(db)`
    SELECT r.stream, r.local_key AS "from", r.renamed_to AS "to"
    FROM slotsync.records AS r LEFT JOIN slotsync.records AS n ON n.stream = r.stream AND n.local_key = r.renamed_to
    WHERE r.renamed_to IS NOT NULL AND r.stream = coalesce(${stream ?? null}, r.stream) AND r.external_id IS NOT NULL
      AND (r.gone_since IS NOT NULL OR r.status = 'retired') AND n.gone_since IS NULL AND n.status IS DISTINCT FROM 'retired'
      AND coalesce(r.gone_since, r.updated_at) > coalesce(${since?.toISOString() ?? null}::timestamptz, now() - make_interval(days => ${OFFERED_DAYS}))
    ORDER BY coalesce(r.gone_since, r.updated_at) DESC, r.stream, r.local_key`;
}
