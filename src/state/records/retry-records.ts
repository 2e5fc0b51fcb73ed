// An operator's retry of records that were given up.
import { and, eq, inArray, sql, type AnyColumn } from 'drizzle-orm';
import type { Queries } from '../database.js';
import { records } from '../schema.js';

/**
 * Lets dead and failed records be sent again by the next run. One whose external id changed lets go of the object it had:
 * the next run creates the new one. Returns those that were changed.
 */
export async function retryRecords(
  db: Queries,
  which: { stream?: string | undefined; keys: readonly string[] },
): Promise<{ stream: string; localKey: string }[]> {
  const unlessRenamed = (column: AnyColumn) =>
    sql`CASE WHEN error_code = 'external_id_changed' THEN NULL ELSE ${column} END`;
  return db
    .update(records)
    .set({
      status: 'failed',
      refusedHash: null,
      externalId: unlessRenamed(records.externalId),
      destinationId: unlessRenamed(records.destinationId),
      objectHash: unlessRenamed(records.objectHash),
      sourceHash: unlessRenamed(records.sourceHash),
      updatedAt: sql`now()`,
    })
    .where(
      and(
        inArray(records.status, ['dead', 'failed']),
        which.stream === undefined ? undefined : eq(records.stream, which.stream),
        which.keys.length === 0 ? undefined : inArray(records.localKey, [...which.keys]),
      ),
    )
    .returning({ stream: records.stream, localKey: records.localKey });
}
