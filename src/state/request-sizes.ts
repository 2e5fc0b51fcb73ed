// How much of each type the service takes in one request, as the processes of this state have learned it.
import { query, type Queries } from './database.js';
import { requestSizes } from './schema.js';

export type RequestSizeRow = typeof requestSizes.$inferSelect;

export async function listRequestSizes(db: Queries): Promise<RequestSizeRow[]> {
  return db.select().from(requestSizes).orderBy(requestSizes.type);
}

/**
 * Notes what was learned of a type. What another process learned later stays, unless it was known: `knownAt` is when that
 * was learned, by a clock that may be ahead of this one.
 */
export async function saveRequestSize(db: Queries, row: RequestSizeRow, knownAt?: Date): Promise<void> {
  const { type, objects, accepted, tooMany, acceptedBytes, refusedBytes, seconds, reason, changedAt } = row;
  await query(db)`
    INSERT INTO slotsync.request_sizes AS known
      (type, objects, accepted, too_many, accepted_bytes, refused_bytes, seconds, reason, changed_at)
    VALUES (${type}, ${objects}, ${accepted}, ${tooMany}, ${acceptedBytes}, ${refusedBytes}, ${seconds}, ${reason},
      ${changedAt.toISOString()}::timestamptz)
    ON CONFLICT (type) DO UPDATE SET objects = excluded.objects, accepted = excluded.accepted,
      too_many = excluded.too_many, accepted_bytes = excluded.accepted_bytes,
      refused_bytes = excluded.refused_bytes, seconds = excluded.seconds, reason = excluded.reason,
      changed_at = excluded.changed_at
    WHERE known.changed_at <= greatest(excluded.changed_at, ${knownAt?.toISOString() ?? null}::timestamptz)`;
}
