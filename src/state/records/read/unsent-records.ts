// Says of a state where every record is in sync whether there are any, and whether the latest plan was carried out.
import { sql } from 'drizzle-orm';
import { query, queryOne, type Queries } from '../../database.js';
import { readRestored, type Restored } from '../../databases.js';

/** Nothing is known at all when `isPlanned` is false and there is no record. */
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

/** Answers for a stream, or for all. */
export async function readKnowledge(db: Queries, stream?: string): Promise<Knowledge> {
  const isOf = (column: string) => (stream === undefined ? sql`true` : sql`${sql.raw(column)} = ${stream}`);
  const isPlanned = stream === undefined ? sql`plan <> '{}'::jsonb` : sql`plan ? ${stream}`;
  const known = await queryOne<Pick<Knowledge, 'hasRecords' | 'isPlanned'>>(db)`
    SELECT EXISTS (SELECT FROM slotsync.records WHERE ${isOf('stream')}) AS "hasRecords",
      EXISTS (SELECT FROM slotsync.runs WHERE ${isPlanned}) AS "isPlanned"`;
  // The unsent keys of a cancelled incremental run are in the inbox again; a repair says nothing of rows.
  const unsent = await query<Knowledge['unsent'][number]>(db)`
    SELECT r.id::float8 AS "runId", r.finished_at IS NULL AS "isUnderWay", sum(cardinality(b.keys))::int AS records
    FROM slotsync.runs AS r JOIN slotsync.batches AS b ON b.run_id = r.id
    WHERE b.state IN ('planned', 'queued', 'cancelled') AND (r.finished_at IS NULL OR r.kind <> 'incremental')
      AND r.kind <> 'repair' AND ${isOf('b.stream')} AND NOT EXISTS (
        SELECT FROM slotsync.replaced_runs AS p JOIN slotsync.runs AS l ON l.id = p.replaced_by
        WHERE p.run_id = r.id AND p.stream = b.stream AND l.plan ? b.stream)
    GROUP BY r.id HAVING sum(cardinality(b.keys)) > 0 ORDER BY r.id DESC`;
  return { ...known, unsent: [...unsent], restored: (await readRestored(db)) ?? null };
}
