// The queues in PostgreSQL in which jobs wait. A worker learns of a job by NOTIFY, which is lost with a broken connection.
import { query, type Queries } from '../state/database.js';
import { arrayLiteral } from '../text/sql-text.js';

/** The queues, of these, in which a job could be taken now. */
export async function listWaiting(queues: readonly string[], db: Queries): Promise<string[]> {
  const waiting = await query<{ name: string }>(db)`
    SELECT name FROM unnest(${arrayLiteral(queues)}::text[]) AS queue (name)
    WHERE EXISTS (SELECT FROM slotsync_queue.job AS j WHERE j.queue = queue.name AND j.state = 'waiting')`;
  return waiting.map(({ name }) => name);
}
