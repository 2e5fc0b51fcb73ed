// Counts of what the service accepted lately, by stream and operation. Limits are weighed against them, whatever way a change came.
import { sql, type SQL } from 'drizzle-orm';
import { queryOne, type Queries } from './database.js';
import type { LimitedOperation } from './schema.js';

/** Less than 24 hours: two nights do not count together because a run started late or clocks were changed. */
const DAY = sql`interval '23 hours'`;

/** Batches (named b) of other unfinished runs that are still to be sent: runs planned side by side see each other. */
const unsentBatches = ({ stream, operation, runId }: Counted) => sql`
  slotsync.batches AS b JOIN slotsync.runs AS r ON r.id = b.run_id
  WHERE b.state IN ('planned', 'queued') AND r.finished_at IS NULL AND b.stream = ${stream} AND b.operation = ${operation}
    AND NOT b.exempt AND b.run_id <> ${runId}::bigint`;

interface Counted {
  stream: string;
  operation: LimitedOperation;
  /** The run that asks. */
  runId: number;
}

/**
 * Records of a stream that were sent for an operation within a day by other runs, or still will be. `isExact`: each key counts
 * once, and not at all when this run has it too; this reads the records of the stream. Otherwise a key may count several
 * times, which costs no reading.
 */
export async function countWithinADay(
  db: Queries,
  counted: Counted,
  { isExact }: { isExact: boolean },
): Promise<number> {
  const { stream, operation, runId } = counted;
  const { count } = isExact
    ? await queryOne<{ count: number }>(db)`
      SELECT count(*)::int AS count FROM (
        (SELECT local_key FROM slotsync.records
          WHERE stream = ${stream} AND counted_as = ${operation} AND synced_at > now() - ${DAY}
        UNION SELECT key COLLATE "C" FROM unnest(ARRAY(
          SELECT k FROM ${unsentBatchesKeys(counted)})) AS key)
        EXCEPT SELECT key COLLATE "C" FROM slotsync.batches AS own CROSS JOIN unnest(own.keys) AS key
          WHERE own.run_id = ${runId}::bigint AND own.stream = ${stream} AND own.operation = ${operation}
      ) AS keys`
    : await queryOne<{ count: number }>(db)`
      SELECT (coalesce((SELECT sum(records) FROM slotsync.sent
          WHERE stream = ${stream} AND operation = ${operation} AND hour > now() - ${DAY}), 0)
        + coalesce((SELECT sum(cardinality(b.keys)) FROM ${unsentBatches(counted)}), 0))::int AS count`;
  return count;
}

const unsentBatchesKeys = (counted: Counted) =>
  sql`(SELECT unnest(b.keys) AS k FROM ${unsentBatches(counted)}) AS unsent`;

/** Creates of a stream that plans of the last day have sent without asking what they meet at the service. */
export async function countUnaskedWithinADay(db: Queries, stream: string): Promise<number> {
  const { count } = await queryOne<{ count: number }>(db)`
    SELECT coalesce(sum(records), 0)::int AS count FROM slotsync.sent
    WHERE stream = ${stream} AND operation = 'unasked' AND hour > now() - ${DAY}`;
  return count;
}

/** The statement that counts records as sent now. */
export const countingSent = (
  stream: string,
  operation: LimitedOperation | 'unasked',
  records: number,
): SQL => sql`
  INSERT INTO slotsync.sent AS s (stream, operation, hour, records)
  VALUES (${stream}, ${operation}, date_trunc('hour', now()), ${records}::int)
  ON CONFLICT (stream, operation, hour) DO UPDATE SET records = s.records + excluded.records`;
