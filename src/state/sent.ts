// Counts recently accepted records by stream and operation. Limits use these counts for every kind of run.
import { sql, type SQL } from 'drizzle-orm';
import { queryValue, type Queries } from './database.js';
import type { LimitedOperation } from './schema.js';

/** Period that limits count. Shorter than a day, so that a late run or a clock change does not merge two nights. */
const DAY = sql`interval '23 hours'`;

/** SQL: unsent batches `b` of other unfinished runs. Runs planned at the same time thus count each other. */
const unsentBatches = ({ stream, operation, runId }: Counted) => sql`
  slotsync.batches AS b JOIN slotsync.runs AS r ON r.id = b.run_id
  WHERE b.state IN ('planned', 'queued') AND r.finished_at IS NULL AND b.stream = ${stream} AND b.operation = ${operation}
    AND NOT b.exempt AND b.run_id <> ${runId}::bigint`;

interface Counted {
  stream: string;
  operation: LimitedOperation;
  runId: number;
}

/**
 * Counts records that other runs sent with an operation within 23 hours or will still send. If `isExact`, each key
 * counts once and keys of this run do not count, but all records of the stream are read.
 */
export function countWithinADay(
  db: Queries,
  counted: Counted,
  { isExact }: { isExact: boolean },
): Promise<number> {
  const { stream, operation, runId } = counted;
  if (!isExact)
    return queryValue<number>(db)`
      SELECT (coalesce((SELECT sum(records) FROM slotsync.sent
          WHERE stream = ${stream} AND operation = ${operation} AND hour > now() - ${DAY}), 0)
        + coalesce((SELECT sum(cardinality(b.keys)) FROM ${unsentBatches(counted)}), 0))::int`;
  return queryValue<number>(db)`
    SELECT count(*)::int FROM (
      (SELECT local_key FROM slotsync.records
        WHERE stream = ${stream} AND counted_as = ${operation} AND synced_at > now() - ${DAY}
      UNION SELECT key COLLATE "C" FROM unnest(ARRAY(
        SELECT k FROM (SELECT unnest(b.keys) AS k FROM ${unsentBatches(counted)}) AS unsent)) AS key)
      EXCEPT SELECT key COLLATE "C" FROM slotsync.batches AS own CROSS JOIN unnest(own.keys) AS key
        WHERE own.run_id = ${runId}::bigint AND own.stream = ${stream} AND own.operation = ${operation}
    ) AS keys`;
}

/** Counts creates of a stream that plans sent within 23 hours without looking up existing objects. */
export const countUnaskedWithinADay = (db: Queries, stream: string) => queryValue<number>(db)`
  SELECT coalesce(sum(records), 0)::int AS count FROM slotsync.sent
  WHERE stream = ${stream} AND operation = 'unasked' AND hour > now() - ${DAY}`;

export const countingSent = (
  stream: string,
  operation: LimitedOperation | 'unasked',
  records: number,
): SQL => sql`
  INSERT INTO slotsync.sent AS s (stream, operation, hour, records)
  VALUES (${stream}, ${operation}, date_trunc('hour', now()), ${records}::int)
  ON CONFLICT (stream, operation, hour) DO UPDATE SET records = s.records + excluded.records`;
