// A run belongs to the configuration that it was started with: only processes that have it plan the run and map for it.
import { sql } from 'drizzle-orm';
import type { Fingerprints } from '../../streams/fingerprints.js';
import { arrayLiteral } from '../../text/sql-text.js';
import { query, type Queries } from '../database.js';
import { ALIVE_SECONDS } from '../processes.js';
import { replaceRun } from './end-run.js';
import { ONLY_READS } from './read-runs.js';

/** Whether a run `r` is unfinished, and no process at work has its configuration. */
const IS_LEFT = sql`(r.finished_at IS NULL AND NOT EXISTS (SELECT FROM slotsync.processes AS p
  WHERE p.configuration = r.configuration AND p.seen_at > now() - make_interval(secs => ${ALIVE_SECONDS})))`;

/** Whether the streams of a run `r` are declared as here. A run without fingerprints was started by a former version. */
const isDeclared = ({ streams }: Fingerprints) =>
  sql`coalesce(r.fingerprints <@ ${JSON.stringify(streams)}::jsonb, true)`;

/** Makes runs that are left, and whose streams are declared alike in this configuration, runs of this configuration. */
export async function adoptRuns(db: Queries, fingerprints: Fingerprints): Promise<void> {
  await query(db)`
    UPDATE slotsync.runs AS r SET configuration = ${fingerprints.configuration}
    WHERE ${IS_LEFT} AND ${isDeclared(fingerprints)} AND NOT ${ONLY_READS}
      AND configuration IS DISTINCT FROM ${fingerprints.configuration}`;
}

/**
 * Ends runs that are left and belong to another configuration than this: those that cover one of the streams, or take their
 * keys from the inbox. What they have not sent is planned by the next run, or goes back to the inbox. A paused run stays.
 * Returns how many there were.
 */
export async function endLeftRuns(
  db: Queries,
  fingerprints: Fingerprints,
  which: { streams: readonly string[] } | 'incremental',
): Promise<number> {
  const isMeant =
    which === 'incremental'
      ? sql`kind = 'incremental'`
      : sql`kind <> 'incremental' AND streams && ${arrayLiteral(which.streams)}::text[]`;
  const left = await query<{ id: number }>(db)`
    SELECT id::float8 AS id FROM slotsync.runs AS r
    WHERE ${IS_LEFT} AND NOT ${isDeclared(fingerprints)} AND paused_at IS NULL AND ${isMeant}`;
  for (const { id } of left) await replaceRun(db, id);
  return left.length;
}
