// All the state has about one record: its row, what of it is in the inbox, and the batches that had its key.
import { and, desc, eq, sql } from 'drizzle-orm';
import { anyOf, type Queries } from '../../database.js';
import { readDriftOf } from '../../drift/read-drift.js';
import { findExceptions } from '../../exceptions.js';
import { recordName } from '../outcome-types.js';
import { listWrites } from '../../history.js';
import { batches, changes, records, runs } from '../../schema.js';
import { readLinks } from '../links.js';
import { listFormerObjects } from './former-objects.js';
import { readWaiting } from './waiting-chains.js';

export type RecordRow = typeof records.$inferSelect;

/** The record of a key, if there is one. */
export async function readRecord(db: Queries, stream: string, localKey: string) {
  const [row] = await db
    .select()
    .from(records)
    .where(and(eq(records.stream, stream), eq(records.localKey, localKey)));
  return row;
}

/** All of one key but its gate: as many of its writes, and of the batches that had it, latest first. */
export async function readKnown(db: Queries, stream: string, key: string, most: number) {
  const named = { stream, localKey: key };
  return {
    stream,
    key,
    record: await readRecord(db, stream, key),
    link: (await readLinks(db, stream, [key])).get(key),
    former: await listFormerObjects(db, stream, [key]),
    /** Leaves it as it is. */
    exception: (await findExceptions(db, [named])).get(recordName(named)),
    drift: await readDriftOf(db, named),
    batches: await listBatchesOf(db, stream, key, most),
    writes: await listWrites(db, named, most),
    /** The records that refer to it and wait for it. */
    waiting: await readWaiting(db, named),
    /** Times it stands in the inbox. */
    waitingChanges: await db.$count(changes, and(eq(changes.stream, stream), eq(changes.localKey, key))),
  };
}

/** The keys among these of which the state has a record. */
export async function readRecordKeys(db: Queries, stream: string, keys: readonly string[]) {
  const isAsked = and(eq(records.stream, stream), sql`${records.localKey} = ${anyOf(keys)}`);
  const rows = await db.select({ localKey: records.localKey }).from(records).where(isAsked);
  return new Set(rows.map(({ localKey }) => localKey));
}

/** The latest batches with this key, latest first, as long as batches are kept. */
async function listBatchesOf(db: Queries, stream: string, localKey: string, limit: number) {
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
