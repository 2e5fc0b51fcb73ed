// Says of a state where every record is in sync whether there are any, and whether everything was sent.
import { sql } from 'drizzle-orm';
import { anyOf, query, queryOne, type Queries } from '../../database.js';
import { readRestored, type Restored } from '../../restored-databases.js';
import { isFrozen } from '../../freezes.js';
import type { DueReason } from '../../schema.js';

/** A stream that needs a whole sync, and since when. */
export interface DueStream {
  stream: string;
  since: Date;
  reason: DueReason;
}

/** Nothing is known at all when `isPlanned` is false and there is no record. */
export interface Knowledge {
  hasRecords: boolean;
  /** A plan has read all of a stream. */
  isPlanned: boolean;
  /** Records that unfinished runs have planned and not sent yet, the latest run first. */
  underWay: { runId: number; records: number }[];
  /** Keys that gates keep back. */
  held: number;
  /** Objects of records that a verify saw to hold something else than was accepted, and that nothing has mended since. */
  drifting: number;
  /** Streams that are due, without those of an unfinished whole sync and those that are frozen. */
  due: DueStream[];
  /** The state was restored: what was sent since its backup is not known. Null: it was not, or a verify has compared all. */
  restored: Restored | null;
}

/** Answers for a stream, or for all. `configured`: no other stream is due, because no run plans it. */
export async function readKnowledge(
  db: Queries,
  { stream, configured }: { stream?: string | undefined; configured?: readonly string[] | undefined } = {},
): Promise<Knowledge> {
  const isOf = (column: string) => (stream === undefined ? sql`true` : sql`${sql.raw(column)} = ${stream}`);
  // Repairs say nothing of rows.
  const known = await queryOne<Pick<Knowledge, 'hasRecords' | 'isPlanned' | 'held' | 'drifting'>>(db)`
    SELECT EXISTS (SELECT FROM slotsync.records WHERE ${isOf('stream')}) AS "hasRecords",
      EXISTS (SELECT FROM slotsync.streams WHERE planned_at IS NOT NULL AND ${isOf('stream')}) AS "isPlanned",
      (SELECT count(*)::int FROM slotsync.drift WHERE kind NOT IN ('extra', 'kept') AND ${isOf('stream')}) AS drifting,
      (SELECT coalesce(sum(count), 0)::int FROM slotsync.gates WHERE operation <> 'repair' AND ${isOf('stream')}) AS held`;
  const underWay = await query<Knowledge['underWay'][number]>(db)`
    SELECT r.id::float8 AS "runId", sum(cardinality(b.keys))::int AS records
    FROM slotsync.runs AS r JOIN slotsync.batches AS b ON b.run_id = r.id
    WHERE r.finished_at IS NULL AND r.kind <> 'repair' AND b.state IN ('planned', 'queued') AND ${isOf('b.stream')}
    GROUP BY r.id HAVING sum(cardinality(b.keys)) > 0 ORDER BY r.id DESC`;
  const due = await query<DueStream>(db)`
    SELECT stream, due_since AS since, due_reason AS reason FROM slotsync.streams AS s
    WHERE due_since IS NOT NULL AND ${isOf('stream')} AND NOT ${isFrozen(sql`s.stream`)}
      AND ${configured ? sql`stream = ${anyOf(configured)}` : sql`true`}
      AND NOT EXISTS (SELECT FROM slotsync.runs AS r
        WHERE r.finished_at IS NULL AND r.kind = 'sync' AND r.range IS NULL AND s.stream = ANY (r.streams))
    ORDER BY due_since, stream`;
  return { ...known, underWay: [...underWay], due: [...due], restored: (await readRestored(db)) ?? null };
}
