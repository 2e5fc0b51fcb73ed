// Filter of records that are not in sync, for the list of causes, the list of records, and retries.
import { sql, type SQL } from 'drizzle-orm';
import { IS_EXCEPTED } from '../../exceptions.js';
import type { RecordStatus } from '../../schema.js';
import { UNSETTLED } from '../record-state.js';

export interface FailureFilter {
  stream?: string | undefined;
  /** `held` matches no record. The table `held` has those keys. */
  status?: RecordStatus | 'held' | undefined;
  code?: string | undefined;
  /** Only records that have been in their status since this time or later. */
  since?: Date | undefined;
  /** Only records that this run changed last. */
  runId?: number | undefined;
}

/** SQL: time since when record `r` is in its status. For a failed record, time of the last attempt. */
export const SINCE = sql`coalesce(r.waits_since, r.updated_at)`;

/** SQL: record `r` is not in sync, and no operator has excepted it. */
export const NOT_IN_SYNC = sql`(r.${UNSETTLED} AND NOT ${IS_EXCEPTED})`;

export function isWanted({ stream, status, code, since, runId }: FailureFilter): SQL {
  const conditions = [
    stream !== undefined && sql`r.stream = ${stream}`,
    status !== undefined && sql`r.status = ${status}`,
    code !== undefined && sql`r.error_code = ${code}`,
    since !== undefined && sql`${SINCE} >= ${since.toISOString()}::text::timestamptz`,
    runId !== undefined && sql`r.run_id = ${runId}::bigint`,
  ].filter((condition) => condition !== false);
  return conditions.length === 0 ? sql`true` : sql`(${sql.join(conditions, sql` AND `)})`;
}
