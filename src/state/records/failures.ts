// The records that are not in sync, and why.
import { and, eq, inArray, notInArray, sql } from 'drizzle-orm';
import { alias } from 'drizzle-orm/pg-core';
import type { Queries } from '../database.js';
import { records, type RecordStatus } from '../schema.js';
import { SETTLED } from './count-records.js';
import { parseName } from './outcomes.js';

export type Failure = Awaited<ReturnType<typeof listFailures>>[number];

const parents = alias(records, 'parents');
const isParent = sql`${parents.stream} = ${records.waitsFor}::jsonb->>0 AND ${parents.localKey} = ${records.waitsFor}::jsonb->>1`;

/** Oldest key first; of one stream, one run or one status when given. */
export async function listFailures(
  db: Queries,
  filter: { stream?: string | undefined; runId?: number; statuses?: RecordStatus[]; limit: number },
) {
  const {
    stream,
    localKey,
    externalId,
    status,
    errorCode,
    errorMessage,
    attempts,
    runId,
    updatedAt,
    waitsFor,
  } = records;
  const isWanted = and(
    filter.statuses ? inArray(status, filter.statuses) : notInArray(status, SETTLED),
    filter.stream === undefined ? undefined : eq(stream, filter.stream),
    filter.runId === undefined ? undefined : eq(runId, filter.runId),
  );
  const columns = {
    stream,
    localKey,
    externalId,
    status,
    errorCode,
    errorMessage,
    attempts,
    runId,
    updatedAt,
  };
  const rows = await db
    // The status of the record it waits for is null when the state has none.
    .select({ ...columns, parentStatus: parents.status, waitsFor })
    .from(records)
    .leftJoin(parents, isParent)
    .where(isWanted)
    .orderBy(stream, localKey)
    .limit(filter.limit);
  return rows.map((row) => ({ ...row, waitsFor: row.waitsFor === null ? null : parseName(row.waitsFor) }));
}
