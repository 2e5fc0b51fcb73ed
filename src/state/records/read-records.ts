// All the state has about one record: its row, what of it is in the inbox, and the batches that had its key.
import { and, desc, eq, sql } from 'drizzle-orm';
import { anyOf, type Queries } from '../database.js';
import { batches, changes, records, runs } from '../schema.js';

export type RecordRow = typeof records.$inferSelect;

export async function readRecord(
  db: Queries,
  stream: string,
  localKey: string,
): Promise<RecordRow | undefined> {
  const isIt = and(eq(records.stream, stream), eq(records.localKey, localKey));
  const [row] = await db.select().from(records).where(isIt);
  return row;
}

/** Those of these keys that the state has a record of. */
export async function readRecordKeys(
  db: Queries,
  stream: string,
  keys: readonly string[],
): Promise<Set<string>> {
  const rows = await db
    .select({ localKey: records.localKey })
    .from(records)
    .where(and(eq(records.stream, stream), sql`${records.localKey} = ${anyOf(keys)}`));
  return new Set(rows.map(({ localKey }) => localKey));
}

export type RecordBatch = Awaited<ReturnType<typeof listBatchesOf>>[number];

/** The latest batches with this key, latest first, as long as batches are kept. */
export async function listBatchesOf(db: Queries, stream: string, localKey: string, limit: number) {
  return db
    .select({
      runId: batches.runId,
      kind: runs.kind,
      batchId: batches.id,
      operation: batches.operation,
      state: batches.state,
      errorCode: batches.errorCode,
      at: sql<string>`coalesce(${batches.finishedAt}, ${batches.createdAt})`,
    })
    .from(batches)
    .innerJoin(runs, eq(runs.id, batches.runId))
    .where(and(eq(batches.stream, stream), sql`${localKey} = ANY (${batches.keys})`))
    .orderBy(desc(batches.id))
    .limit(limit);
}

/** Rows of the inbox with this key. */
export async function countChangesOf(db: Queries, stream: string, localKey: string): Promise<number> {
  return db.$count(changes, and(eq(changes.stream, stream), eq(changes.localKey, localKey)));
}
