// What is known of records where none is out of sync: whether there are any, and whether the latest plan was carried out.
import { sql } from 'drizzle-orm';
import { query, queryOne, type Queries } from '../database.js';
import { readRestored, type Restored } from '../databases.js';

/** Where `isPlanned` is false and there is no record, nothing is known at all. */
export interface Knowledge {
  hasRecords: boolean;
  /** Some run has planned it. */
  isPlanned: boolean;
  /**
   * Records that a run has planned and neither sent nor held, and that no later run has planned again: the run is under way,
   * or it was cancelled, failed, or an operator rejected them.
   */
  unsent: { runId: number; isUnderWay: boolean; records: number }[];
  /** The state was restored: what was sent since its backup is not known. Null: it was not, or a verify has compared all. */
  restored: Restored | null;
}

/** Of one stream, or of all. */
export async function readKnowledge(db: Queries, stream?: string): Promise<Knowledge> {
  const isOf = (column: string) => (stream === undefined ? sql`true` : sql`${sql.raw(column)} = ${stream}`);
  const isPlanned = stream === undefined ? sql`plan <> '{}'::jsonb` : sql`plan ? ${stream}`;
  const known = await queryOne<Pick<Knowledge, 'hasRecords' | 'isPlanned'>>(db)`
    SELECT EXISTS (SELECT FROM slotsync.records WHERE ${isOf('stream')}) AS "hasRecords",
      EXISTS (SELECT FROM slotsync.runs WHERE ${isPlanned}) AS "isPlanned"`;
  // What a cancelled incremental run had not sent is in the inbox again; a repair says nothing of rows.
  const unsent = await query<Knowledge['unsent'][number]>(db)`
    SELECT r.id::float8 AS "runId", r.finished_at IS NULL AS "isUnderWay", sum(cardinality(b.keys))::int AS records
    FROM slotsync.runs AS r JOIN slotsync.batches AS b ON b.run_id = r.id
    WHERE b.state IN ('planned', 'queued', 'cancelled') AND (r.finished_at IS NULL OR r.kind <> 'incremental')
      AND r.kind <> 'verify' AND ${isOf('b.stream')} AND NOT EXISTS (
        SELECT FROM slotsync.runs AS l
        WHERE l.id > r.id AND l.plan ? b.stream AND l.range IS NULL AND l.kind IN ('sync', 'backfill')
          AND l.status <> 'planning')
    GROUP BY r.id HAVING sum(cardinality(b.keys)) > 0 ORDER BY r.id DESC`;
  return { ...known, unsent: [...unsent], restored: (await readRestored(db)) ?? null };
}
