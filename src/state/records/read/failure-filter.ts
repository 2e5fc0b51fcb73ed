// A choice of the records that are not in sync, for the list of causes, the list of records, and a retry.
import { sql, type SQL } from 'drizzle-orm';
import { IS_EXCEPTED } from '../../exceptions.js';
import type { RecordStatus } from '../../schema.js';
import { UNSETTLED } from '../record-state.js';

/** Each part narrows the choice. */
export interface FailureFilter {
  stream?: string | undefined;
  /** `held`: no record has it; the table `held` has those keys. */
  status?: RecordStatus | 'held' | undefined;
  code?: string | undefined;
  /** Only what is so since this time or later. */
  since?: Date | undefined;
  /** Only what this run changed last. */
  runId?: number | undefined;
}

/** Since when a record (named r) is as it is: a failed one since its last attempt. */
export const SINCE = sql`coalesce(r.waits_since, r.updated_at)`;

/** A record (named r) is not in sync, and no exception leaves it as it is. */
export const NOT_IN_SYNC = sql`(r.${UNSETTLED} AND NOT ${IS_EXCEPTED})`;

/** A record (named r) is one of them. */
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
