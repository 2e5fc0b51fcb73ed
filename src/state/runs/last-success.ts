// When runs last succeeded.
import { sql, type SQL } from 'drizzle-orm';
import { arrayLiteral } from '../../text/sql-text.js';
import { NIGHTLY } from '../../time/schedule.js';
import { query, queryOne, type Queries } from '../database.js';
import type { RunKind } from '../schema.js';
import { RUNS_LOOKED_AT } from './backlog.js';

/**
 * Whether a sync has all streams of a schedule, or was started by it, and has all that were configured for it then. One of some
 * streams says nothing of the others.
 */
const isWhole = (streams: SQL) =>
  sql`(streams @> ${streams} OR started_by = 'schedule' AND streams && ${streams})`;

const listed = (streams: readonly string[]) => sql`${arrayLiteral(streams)}::text[]`;

/** A row of `runs` that succeeded, or sent everything but what a freeze held: that is no failure, and no alert follows from it. */
const SUCCEEDED = sql.raw(`(status = 'succeeded' OR status = 'held' AND NOT EXISTS (
  SELECT FROM slotsync.holds AS h WHERE h.run_id = runs.id AND h.operation <> 'frozen'))`);

/** When a sync of all these streams last succeeded; null: none is known. */
export async function readWholeSuccess(db: Queries, streams: readonly string[]): Promise<Date | null> {
  const { succeededAt } = await queryOne<{ succeededAt: Date | null }>(db)`
    SELECT max(finished_at) AS "succeededAt" FROM slotsync.runs WHERE kind = 'sync' AND ${SUCCEEDED}
      AND ${isWhole(listed(streams))}`;
  return succeededAt;
}

export interface StreamSuccess {
  stream: string;
  /** How long ago a run that sends ended well for the stream; null: none of those looked at. */
  ageSeconds: number | null;
}

/** A dead record of one stream does not cancel the success of the others. */
export const listStreamSuccesses = (
  db: Queries,
  streams: readonly string[],
): Promise<StreamSuccess[]> => query<StreamSuccess>(db)`
  SELECT stream, (
    SELECT greatest(0, extract(epoch FROM now() - finished_at))::float8 FROM slotsync.runs
    WHERE id > (SELECT max(id) FROM slotsync.runs) - ${RUNS_LOOKED_AT}::bigint
      AND finished_at IS NOT NULL AND stream = ANY(streams) AND kind IN ('incremental', 'sync', 'backfill')
      AND (status = 'succeeded' OR status IN ('partial', 'held') AND plan ? stream AND NOT plan->stream ? 'staleLoad'
        AND NOT EXISTS (
          SELECT FROM slotsync.holds AS h WHERE h.run_id = runs.id AND h.stream = named.stream AND h.state <> 'rejected'
            AND h.operation <> 'frozen')
        AND coalesce((counts->stream->>'failed')::int, 0) + coalesce((counts->stream->>'dead')::int, 0) = 0)
    ORDER BY id DESC LIMIT 1
  ) AS "ageSeconds"
  FROM jsonb_array_elements_text(${JSON.stringify(streams)}::text::jsonb) AS named(stream)`;

export interface KindSuccess {
  kind: RunKind;
  /** How long ago a run of the kind succeeded; of `sync`, a whole one; null: never. */
  ageSeconds: number | null;
}

/** The streams of the nightly schedule; without one those of these that have no schedule of their own. */
const ofNightly = (streams: readonly string[]) => sql`coalesce(
  (SELECT n.streams FROM slotsync.schedules AS n WHERE n.name = ${NIGHTLY} AND n.streams <> '{}'),
  ARRAY(SELECT unnest(${listed(streams)}) EXCEPT SELECT unnest(o.streams) FROM slotsync.schedules AS o))`;

/** All runs are read: the last success of a kind that seldom runs may be long ago. */
export const listKindSuccesses = (
  db: Queries,
  streams: readonly string[],
): Promise<KindSuccess[]> => query<KindSuccess>(db)`
  SELECT kind, extract(epoch FROM now() - max(finished_at)
    FILTER (WHERE ${SUCCEEDED} AND (kind <> 'sync' OR ${isWhole(ofNightly(streams))})))::float8 AS "ageSeconds"
  FROM slotsync.runs GROUP BY kind ORDER BY kind`;
