// All the state has about one record: its row, what of it is in the inbox, and the batches that had its key.
import { and, desc, eq, sql } from 'drizzle-orm';
import { anyOf, type Queries } from '../../database.js';
import { batches, changes, records, runs } from '../../schema.js';

export type RecordRow = typeof records.$inferSelect;

/** The record of a key, if there is one. */
export async function readRecord(db: Queries, stream: string, localKey: string) {
  const [row] = await db
    .select()
    .from(records)
    .where(and(eq(records.stream, stream), eq(records.localKey, localKey)));
  return row;
}

/** The keys among these of which the state has a record. */
export async function readRecordKeys(db: Queries, stream: string, keys: readonly string[]) {
  const isAsked = and(eq(records.stream, stream), sql`${records.localKey} = ${anyOf(keys)}`);
  const rows = await db.select({ localKey: records.localKey }).from(records).where(isAsked);
  return new Set(rows.map(({ localKey }) => localKey));
}

export type RecordBatch = Awaited<ReturnType<typeof listBatchesOf>>[number];

/** The latest batches with this key, latest first, as long as batches are kept. */
export async function listBatchesOf(db: Queries, stream: string, localKey: string, limit: number) {
  const { runId, id: batchId, operation, state, errorCode } = batches;
  const at = sql<string>`coalesce(${batches.finishedAt}, ${batches.createdAt})`;
  return db
    .select({ runId, kind: runs.kind, batchId, operation, state, errorCode, at })
    .from(batches)
    .innerJoin(runs, eq(runs.id, runId))
    .where(and(eq(batches.stream, stream), sql`${localKey} = ANY (${batches.keys})`))
    .orderBy(desc(batchId))
    .limit(limit);
}

/** Rows of the inbox with this key. */
export async function countChangesOf(db: Queries, stream: string, localKey: string): Promise<number> {
  return db.$count(changes, and(eq(changes.stream, stream), eq(changes.localKey, localKey)));
}
