// When runs last succeeded.
import { sql } from 'drizzle-orm';
import { arrayLiteral } from '../../text/sql-text.js';
import { queryOne, type Queries } from '../database.js';

/**
 * Whether a sync has all these streams, or is one of the schedule, which has all that were configured then. One of some
 * streams says nothing of the others.
 */
export const isWhole = (streams: readonly string[]) =>
  sql`(started_by = 'schedule' OR streams @> ${arrayLiteral(streams)}::text[])`;

/** When a whole sync last succeeded; null: none is known. */
export async function readWholeSuccess(db: Queries, streams: readonly string[]): Promise<Date | null> {
  const { succeededAt } = await queryOne<{ succeededAt: Date | null }>(db)`
    SELECT max(finished_at) AS "succeededAt" FROM slotsync.runs WHERE kind = 'sync' AND status = 'succeeded'
      AND ${isWhole(streams)}`;
  return succeededAt;
}
