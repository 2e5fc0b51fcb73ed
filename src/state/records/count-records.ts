// How many records there are: by status, not in sync, at the service.
import { and, count, eq, isNotNull, ne, notInArray, or } from 'drizzle-orm';
import type { Queries } from '../database.js';
import { records, type RecordStatus } from '../schema.js';

/** Statuses of records that are in sync. */
export const SETTLED: RecordStatus[] = ['synced', 'retired'];

/** Records by stream and status. */
export async function countRecords(db: Queries) {
  const { stream, status } = records;
  const counted = db.select({ stream, status, count: count() }).from(records);
  return counted.groupBy(stream, status).orderBy(stream, status);
}

/** Records that are not in sync, of one stream when given. */
export async function countUnsettled(db: Queries, stream?: string): Promise<number> {
  const isOfStream = stream === undefined ? undefined : eq(records.stream, stream);
  return db.$count(records, and(notInArray(records.status, SETTLED), isOfStream));
}

/** Records of a stream that the service is believed to hold, without retired ones. */
export async function countAccepted(db: Queries, stream: string): Promise<number> {
  const isHeld = or(isNotNull(records.objectHash), records.inDoubt);
  return db.$count(records, and(eq(records.stream, stream), ne(records.status, 'retired'), isHeld));
}
