// The records that are not in sync, and why.
import { sql } from 'drizzle-orm';
import { anyOf, query, type Queries, type RowOf } from '../database.js';
import type { records, RecordStatus } from '../schema.js';
import { UNSETTLED } from './count-records.js';
import { FORMER_HAS_RECORD } from './former-objects.js';
import type { RecordKey } from './outcome-types.js';

type RecordColumn =
  | 'externalId'
  | 'formerExternalId'
  | 'status'
  | 'errorCode'
  | 'errorMessage'
  | 'attempts'
  | 'runId'
  | 'updatedAt';
interface FailureRow extends RecordKey, Pick<RowOf<typeof records>, RecordColumn> {
  waitsFor: RecordKey | null;
  /** Of the record it waits for; null when the state has none. */
  parentStatus: RecordStatus | null;
}

export type Failure = Awaited<ReturnType<typeof listFailures>>[number];

/** Oldest key first; of one stream, one run or one status when given. */
export async function listFailures(
  db: Queries,
  filter: { stream?: string | undefined; runId?: number; statuses?: RecordStatus[]; limit: number },
) {
  const rows = await query<FailureRow>(db)`
    SELECT r.stream, r.local_key AS "localKey", r.external_id AS "externalId",
      CASE WHEN NOT ${FORMER_HAS_RECORD} THEN r.former_external_id END AS "formerExternalId", r.status, r.error_code AS "errorCode",
      r.error_message AS "errorMessage", r.attempts, r.run_id::float8 AS "runId", r.updated_at AS "updatedAt",
      CASE WHEN r.waits_for IS NOT NULL
        THEN jsonb_build_object('stream', r.waits_for::jsonb->0, 'localKey', r.waits_for::jsonb->1) END AS "waitsFor",
      p.status AS "parentStatus"
    FROM slotsync.records AS r LEFT JOIN slotsync.records AS p
      ON p.stream = r.waits_for::jsonb->>0 AND p.local_key = r.waits_for::jsonb->>1
    WHERE ${filter.statuses ? sql`r.status = ${anyOf(filter.statuses)}` : sql`r.${UNSETTLED}`}
      AND r.stream = coalesce(${filter.stream ?? null}, r.stream)
      ${filter.runId === undefined ? undefined : sql`AND r.run_id = ${filter.runId}::bigint`}
    ORDER BY r.stream, r.local_key LIMIT ${filter.limit}`;
  return rows.map((row) => ({ ...row, updatedAt: new Date(row.updatedAt) }));
}
