// A run has one planner at a time: a process, which alone writes the batches of the run. After the queue was lost, or a
// process slept, a run may have two planners. The newest wins, and writes of the other have no effect. `finishPlanning`
// of advance-run.ts ends the planning.
import { randomUUID } from 'node:crypto';
import { sql } from 'drizzle-orm';
import { query, queryTogether, type Queries } from '../database.js';
import { ALIVE_SECONDS } from '../processes.js';

export interface Planner {
  runId: number;
  token: string;
}

/** Returns a token for a process that plans a run without a job. */
export const plannerOf = (processId = ''): string => `${processId} ${randomUUID()}`;

/** Returns the numbers of runs that another live process plans. These runs have no job. */
export async function listPlannedElsewhere(db: Queries, processId: string): Promise<Set<number>> {
  const planned = await query<{ id: number }>(db)`
    SELECT r.id::float8 AS id FROM slotsync.runs AS r
    JOIN slotsync.processes AS p ON p.id = split_part(r.planner, ' ', 1)
    WHERE r.finished_at IS NULL AND r.status = 'planning' AND p.id <> ${processId}
      AND p.seen_at > now() - make_interval(secs => ${ALIVE_SECONDS})`;
  return new Set(planned.map(({ id }) => id));
}

/** Thrown if another process took over the run, or its planning has ended. The plan of this process is void then. */
export class PlannerReplaced extends Error {
  override readonly message = 'another process now plans this run, or its planning has ended';
}

/** Milliseconds after which PostgreSQL ends an idle transaction. A planner that hangs must not block the next one. */
const IDLE_MS = 30_000;
export const LIMIT_IDLE = sql`set_config('idle_in_transaction_session_timeout', ${String(IDLE_MS)}, true)`;

/**
 * Claims the planning of a run, and deletes the batches of the former planner. Waits if the former planner is writing.
 * Returns false if the run is not to be planned.
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

export async function isPlanner(db: Queries, { runId, token }: Planner): Promise<boolean> {
  const found = await query(db)`
    SELECT FROM slotsync.runs WHERE id = ${runId}::bigint AND planner = ${token} AND status = 'planning'`;
  return found.length > 0;
}

/** Runs `write` in a transaction. Throws PlannerReplaced, and writes nothing, if another process plans the run. */
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
