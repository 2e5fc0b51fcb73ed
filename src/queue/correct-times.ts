// BullMQ dates delays, and on PostgreSQL locks, by the clock of the process that sets them. Set by a wrong clock, a job would
// wait until that clock's time, and a job of a killed process would stay locked until then. The sweep finds such dates by
// the time of the state, and corrects them.
import type { Queue } from 'bullmq';
import { anyOf, query, readClock, type Queries } from '../state/database.js';

/** Longer than any delay of a retry, and than any lock. */
const LONGEST_MS = 2 * 60 * 1000;

/** Lets the delayed jobs of a queue go when one is due later than any delay can be, or was due that long ago. */
export async function releaseMisdated(queue: Queue, db: Queries): Promise<void> {
  const delayed = await queue.getDelayedCount();
  if (delayed === 0) return;
  const now = (await readClock(db)).getTime();
  const isLate = (await queue.getDelayedCount(now + LONGEST_MS)) < delayed;
  const isOverdue = (await queue.getDelayedCount(now - LONGEST_MS)) > 0;
  if (isLate || isOverdue) await queue.promoteJobs();
}

/**
 * The same for queues in PostgreSQL, in one statement. It also shortens what lasts longer than a lock can: locks, and the time
 * until ended ones are looked for.
 */
export async function correctInPostgres(queues: readonly Queue[], db: Queries): Promise<void> {
  const names = anyOf(queues.map(({ name }) => name));
  const misdated = await query<{ name: string }>(db)`
    WITH time AS (SELECT (extract(epoch FROM now()) * 1000)::bigint AS now_ms),
    limits AS (SELECT now_ms - ${LONGEST_MS}::bigint AS earliest, now_ms + ${LONGEST_MS}::bigint AS latest FROM time),
    locks AS (
      UPDATE slotsync_queue.job SET locked_until_ms = latest FROM limits
      WHERE queue = ${names} AND state = 'active' AND locked_until_ms > latest),
    checks AS (
      UPDATE slotsync_queue.meta SET value = '0' FROM limits
      WHERE queue = ${names} AND field = 'stalled-check'
        AND CASE WHEN field = 'stalled-check' THEN value::bigint > latest END)
    SELECT DISTINCT queue AS name FROM slotsync_queue.job, limits
    WHERE queue = ${names} AND state = 'delayed' AND NOT process_at_ms BETWEEN earliest AND latest`;
  for (const queue of queues) if (misdated.some(({ name }) => name === queue.name)) await queue.promoteJobs();
}
