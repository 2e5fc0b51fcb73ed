// Finds records for a text that an operator enters, and reads everything that the state holds about one record.
import { and, desc, eq, sql } from 'drizzle-orm';
import { anyOf, query, type Queries } from '../../database.js';
import { readDriftOf } from '../../drift.js';
import { findExceptions } from '../../exceptions.js';
import { recordName, type RecordKey } from '../outcome-types.js';
import { listWrites } from '../../history.js';
import { batches, changes, records, runs, type RecordStatus } from '../../schema.js';
import { readLinks } from '../links.js';
import { listFormerObjects } from './owners.js';
import { readWaiting } from './waiting-chains.js';
import { listRecordedStreams } from './count-records.js';

export type RecordRow = typeof records.$inferSelect;

export async function readRecord(db: Queries, stream: string, localKey: string) {
  const [row] = await db
    .select()
    .from(records)
    .where(and(eq(records.stream, stream), eq(records.localKey, localKey)));
  return row;
}

/** Reads everything about one key except its gate, with up to `most` of its latest writes and batches. */
export async function readKnown(db: Queries, stream: string, key: string, most: number) {
  const named = { stream, localKey: key };
  return {
    stream,
    key,
    record: await readRecord(db, stream, key),
    link: (await readLinks(db, stream, [key])).get(key),
    former: await listFormerObjects(db, stream, [key]),
    exception: (await findExceptions(db, [named])).get(recordName(named)),
    drift: await readDriftOf(db, named),
    batches: await listBatchesOf(db, stream, key, most),
    writes: await listWrites(db, named, most),
    /** Records that refer to this record and wait for it. */
    waiting: await readWaiting(db, named),
    /** Number of the key's rows in the inbox. */
    waitingChanges: await db.$count(changes, and(eq(changes.stream, stream), eq(changes.localKey, key))),
  };
}

export async function readRecordKeys(db: Queries, stream: string, keys: readonly string[]) {
  const isAsked = and(eq(records.stream, stream), sql`${records.localKey} = ${anyOf(keys)}`);
  const rows = await db.select({ localKey: records.localKey }).from(records).where(isAsked);
  return new Set(rows.map(({ localKey }) => localKey));
}

/** Returns the latest batches with this key, newest first. Batches are deleted some days after their run has ended. */
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

/** Finds records of all streams whose key or external id equals the text that an operator searches for. */
export async function findRecords(db: Queries, text: string, limit: number) {
  const streams = await listRecordedStreams(db);
  return query<RecordKey & { externalId: string | null; status: RecordStatus }>(db)`
    SELECT stream, local_key AS "localKey", coalesce(external_id, row_external_id) AS "externalId", status FROM slotsync.records
    WHERE stream = ${anyOf(streams)} AND local_key = ${text} OR external_id = ${text} OR row_external_id = ${text}
    ORDER BY stream, local_key LIMIT ${limit}`;
}
