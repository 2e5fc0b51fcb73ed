// A hold that begins while its run is under way: what of a stream was not sent yet waits, because the service refuses too
// much of it or because the stream is frozen. What is in flight ends as it does.
import { sql } from 'drizzle-orm';
import { query, queryOne, type Queries } from '../database.js';
import { toStorableJson, type Refusals } from '../records/outcome-types.js';
import type { HoldFacts, LimitedOperation } from '../schema.js';
import { DAY } from './batches.js';

interface Rest {
  runId: number;
  stream: string;
  operation: 'refused' | 'frozen';
  /** No approval releases what is frozen. */
  approvable: boolean;
}

/** A batch `b` that a process works on: it has claimed the first of its keys. */
const IS_IN_FLIGHT = sql`EXISTS (SELECT FROM slotsync.records AS r
  WHERE r.stream = b.stream AND r.local_key = ANY (b.keys[1:3]) AND r.claimed_until > now()
    AND r.claimed_by LIKE '% batch ' || b.id || ' %')`;

/**
 * Holds the batches of a stream that its run has not begun to send. Held so, they are of the operation that names why; the
 * facts keep what they were. Returns how many records are held now.
 */
export async function holdRest(
  db: Queries,
  { runId, stream, operation, approvable }: Rest,
  facts: Partial<HoldFacts>,
): Promise<number> {
  return db.transaction(async (tx) => {
    // A run that is cancelled or takes a step waits, and the other way round.
    const [run] = await query(tx)`
      SELECT FROM slotsync.runs WHERE id = ${runId}::bigint AND finished_at IS NULL FOR NO KEY UPDATE`;
    if (!run) return 0;
    const rest = await query<{ was: LimitedOperation | null; records: number }>(tx)`
      WITH rest AS (
        SELECT b.id, b.operation FROM slotsync.batches AS b
        WHERE b.run_id = ${runId}::bigint AND b.stream = ${stream} AND b.state IN ('planned', 'queued')
          AND NOT (b.state = 'queued' AND ${IS_IN_FLIGHT})
        FOR NO KEY UPDATE
      ), held AS (
        UPDATE slotsync.batches AS b SET state = 'held', operation = ${operation} FROM rest
        WHERE b.id = rest.id RETURNING rest.operation AS was, cardinality(b.keys) AS records
      )
      SELECT was, sum(records)::int AS records FROM held GROUP BY was`;
    const records = rest.reduce((sum, part) => sum + part.records, 0);
    if (records === 0) return 0;
    const [earlier] = await query<{ facts: HoldFacts }>(tx)`
      SELECT facts FROM slotsync.holds
      WHERE run_id = ${runId}::bigint AND stream = ${stream} AND operation = ${operation}`;
    const released = { ...earlier?.facts.released };
    for (const part of rest)
      if (part.was !== null) released[part.was] = (released[part.was] ?? 0) + part.records;
    const all = toStorableJson({ accepted: 0, ...facts, released });
    await query(tx)`
      INSERT INTO slotsync.holds AS h (run_id, stream, operation, count, facts, approvable)
      VALUES (${runId}::bigint, ${stream}, ${operation}, ${records}, ${all}::jsonb, ${approvable})
      ON CONFLICT (run_id, stream, operation) DO UPDATE SET count = h.count + excluded.count, facts = excluded.facts`;
    return records;
  });
}

/**
 * Whether a batch `b` counts with those of a run: it is the run's; of an incremental run, also those of other incremental runs
 * of the day count, since the latest sync or backfill of the whole stream, which has looked at everything anew.
 */
const countsWith = ({
  runId,
  stream,
}: Pick<Rest, 'runId' | 'stream'>) => sql`b.stream = ${stream} AND b.run_id IN (
  SELECT r.id FROM slotsync.runs AS own JOIN slotsync.runs AS r ON r.id = own.id OR own.kind = 'incremental'
    AND r.kind = 'incremental' AND r.requested_at > now() - ${DAY} AND r.id > (
      SELECT coalesce(max(id), 0) FROM slotsync.runs
      WHERE kind IN ('sync', 'backfill') AND range IS NULL AND plan ? ${stream})
  WHERE own.id = ${runId}::bigint)`;

/** Reads what the service refused of a stream in a run, with the commonest reason; undefined: nothing. */
export async function readRefusals(
  db: Queries,
  part: Pick<Rest, 'runId' | 'stream'>,
): Promise<Refusals | undefined> {
  const [refusals] = await query<Refusals>(db)`
    SELECT sum(sum(b.refused)) OVER ()::int AS records, b.error_code AS code, b.error_message AS message
    FROM slotsync.batches AS b WHERE b.refused IS NOT NULL AND ${countsWith(part)}
    GROUP BY b.error_code, b.error_message ORDER BY sum(b.refused) DESC LIMIT 1`;
  return refusals;
}

/** How many the service accepted beside them, and how many refusals an approval of the run allows. */
export const readAccepted = (db: Queries, part: Pick<Rest, 'runId' | 'stream'>) =>
  queryOne<{ accepted: number; allowed: number }>(db)`
    SELECT coalesce(sum((b.counts->>'synced')::int), 0)::int AS accepted,
      coalesce((SELECT allowed FROM slotsync.holds WHERE for_run = ${part.runId}::bigint AND stream = ${part.stream}
        AND operation = 'refused' AND state = 'used'), 0) AS allowed
    FROM slotsync.batches AS b WHERE ${countsWith(part)}`;
