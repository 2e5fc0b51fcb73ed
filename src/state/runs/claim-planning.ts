// A run has one planner at a time, which alone writes its batches. A queue that lost everything, or a process that slept, can
// leave two planners of one run; the newest wins, and whatever the other still writes changes nothing. A planning ends with
// `finishPlanning` of advance-run.ts, which also lets the run take its first step.
import { randomUUID } from 'node:crypto';
import { sql } from 'drizzle-orm';
import { query, queryTogether, type Queries } from '../database.js';
import { ALIVE_SECONDS } from '../processes.js';

/** The run that is planned, and the token of the process that plans it. */
export interface Planner {
  runId: number;
  token: string;
}

/** A token for a process that plans a run without a job. */
export const plannerOf = (processId = ''): string => `${processId} ${randomUUID()}`;

/** The runs that another process plans without a job, and is alive. */
export async function listPlannedElsewhere(db: Queries, processId: string): Promise<Set<number>> {
  const planned = await query<{ id: number }>(db)`
    SELECT r.id::float8 AS id FROM slotsync.runs AS r
    JOIN slotsync.processes AS p ON p.id = split_part(r.planner, ' ', 1)
    WHERE r.finished_at IS NULL AND r.status = 'planning' AND p.id <> ${processId}
      AND p.seen_at > now() - make_interval(secs => ${ALIVE_SECONDS})`;
  return new Set(planned.map(({ id }) => id));
}

/** Another planner took the run over, or its planning has ended: what this one knows is worth nothing any more. */
export class PlannerReplaced extends Error {
  override readonly message = 'another process plans this run, or its planning has ended';
}

/**
 * A planner that stops answering in the middle of a transaction would keep the next one waiting: the server ends it after
 * this time. Milliseconds.
 */
const IDLE_MS = 30_000;
export const LIMIT_IDLE = sql`set_config('idle_in_transaction_session_timeout', ${String(IDLE_MS)}, true)`;

/**
 * Makes this the planner of its run, and removes what the one before has written. Waits for a write of the
 * former planner that is under way. False: the run is not to be planned.
 */
export async function takePlanning(db: Queries, { runId, token }: Planner): Promise<boolean> {
  const [taken] = await queryTogether(db, [
    sql`UPDATE slotsync.runs SET planner = ${token}
      WHERE id = ${runId}::bigint AND status = 'planning' AND paused_at IS NULL RETURNING id`,
    sql`DELETE FROM slotsync.batches AS b USING slotsync.runs AS r
      WHERE run_id = ${runId}::bigint AND r.id = run_id AND planner = ${token} AND status = 'planning'`,
  ]);
  return taken !== undefined && taken.length > 0;
}

/** Whether this is still the planner of its run. */
export async function isPlanner(db: Queries, { runId, token }: Planner): Promise<boolean> {
  const found = await query(db)`
    SELECT FROM slotsync.runs WHERE id = ${runId}::bigint AND planner = ${token} AND status = 'planning'`;
  return found.length > 0;
}

/** Writes as the planner of a run, in one transaction. Throws PlannerReplaced, and writes nothing, when it is not. */
export async function asPlanner<T>(
  db: Queries,
  { runId, token }: Planner,
  write: (tx: Queries) => Promise<T>,
): Promise<T> {
  return db.transaction(async (tx) => {
    const own = await query(tx)`
      SELECT ${LIMIT_IDLE} FROM slotsync.runs
      WHERE id = ${runId}::bigint AND planner = ${token} AND status = 'planning' FOR SHARE`;
    if (own.length === 0) throw new PlannerReplaced();
    return write(tx);
  });
}
