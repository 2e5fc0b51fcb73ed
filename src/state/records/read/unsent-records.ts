// Tells if the state has records and if everything was sent. Used when no record has failed.
import { sql } from 'drizzle-orm';
import { anyOf, query, queryOne, type Queries } from '../../database.js';
import { readRestored, type Restored } from '../../restored-databases.js';
import { isFrozen } from '../../freezes.js';
import type { DueReason } from '../../schema.js';

export interface DueStream {
  stream: string;
  since: Date;
  reason: DueReason;
}

export interface Knowledge {
  hasRecords: boolean;
  isPlanned: boolean;
  /** Number of planned but unsent records of each unfinished run, latest run first. */
  underWay: { runId: number; records: number }[];
  held: number;
  /** Number of objects found to differ from the last accepted write and not repaired since. */
  drifting: number;
  /** Due streams, except frozen streams and streams of an unfinished whole sync. */
  due: DueStream[];
  /** Set if the state was restored from a backup, so that later writes are unknown. Null after a whole verify. */
  restored: Restored | null;
}

/** Reads the facts about one stream, or about all. No run plans streams outside `configured`, so they are not due. */
export async function readKnowledge(
  db: Queries,
  { stream, configured }: { stream?: string | undefined; configured?: readonly string[] | undefined } = {},
): Promise<Knowledge> {
  const isOf = (column: string) => (stream === undefined ? sql`true` : sql`${sql.raw(column)} = ${stream}`);
  // Repairs are not counted, because a repair sends rows that have not changed.
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
