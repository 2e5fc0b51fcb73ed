// BullMQ sets delays, and on PostgreSQL also locks, by the clock of the process. If that clock is wrong, a job waits
// until the wrong time, and a job of a killed process stays locked until then. The sweep finds such times by the
// state's clock and corrects them.
import type { Queue } from 'bullmq';
import { anyOf, query, readClock, type Queries } from '../state/database.js';

/** Limit that is longer than any retry delay and any lock. */
const LONGEST_MS = 2 * 60 * 1000;

/** Promotes the delayed jobs of a queue if a job is due later than any delay can be, or has been due for that long. */
export async function releaseMisdated(queue: Queue, db: Queries): Promise<void> {
  const delayed = await queue.getDelayedCount();
  if (delayed === 0) return;
  const now = (await readClock(db)).getTime();
  const isLate = (await queue.getDelayedCount(now + LONGEST_MS)) < delayed;
  const isOverdue = (await queue.getDelayedCount(now - LONGEST_MS)) > 0;
  if (isLate || isOverdue) await queue.promoteJobs();
}

/**
 * Corrects queues in PostgreSQL. Promotes misdated jobs, as `releaseMisdated` does. Also shortens locks, and the time
 * until BullMQ's next check for stalled jobs, if they are longer than a lock can be.
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
