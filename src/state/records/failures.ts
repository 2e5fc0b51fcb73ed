// The records that are not in sync, and why.
import { and, eq, inArray, notInArray, sql } from 'drizzle-orm';
import { alias } from 'drizzle-orm/pg-core';
import type { Queries } from '../database.js';
import { records, type RecordStatus } from '../schema.js';
import { SETTLED } from './count-records.js';

export type Failure = Awaited<ReturnType<typeof listFailures>>[number];

const parents = alias(records, 'parents');
const isParent = sql`${parents.stream} = ${records.waitsFor}::jsonb->>0 AND ${parents.localKey} = ${records.waitsFor}::jsonb->>1`;

/** Oldest key first; of one stream, one run or one status when given. */
export async function listFailures(
  db: Queries,
  filter: { stream?: string | undefined; runId?: number; statuses?: RecordStatus[]; limit: number },
) {
  const rows = await db
    .select({
      stream: records.stream,
      localKey: records.localKey,
      externalId: records.externalId,
      status: records.status,
      errorCode: records.errorCode,
      errorMessage: records.errorMessage,
      attempts: records.attempts,
      runId: records.runId,
      updatedAt: records.updatedAt,
      waitsFor: records.waitsFor,
      /** Of the record it waits for; null when the state has none. */
      parentStatus: parents.status,
    })
    .from(records)
    .leftJoin(parents, isParent)
    .where(
      and(
        filter.statuses ? inArray(records.status, filter.statuses) : notInArray(records.status, SETTLED),
        filter.stream === undefined ? undefined : eq(records.stream, filter.stream),
        filter.runId === undefined ? undefined : eq(records.runId, filter.runId),
      ),
    )
    .orderBy(records.stream, records.localKey)
    .limit(filter.limit);
  return rows.map(({ waitsFor, ...row }) => ({ ...row, waitsFor: parseWaitsFor(waitsFor) }));
}

function parseWaitsFor(text: string | null): { stream: string; localKey: string } | null {
  if (text === null) return null;
  const [stream, localKey] = JSON.parse(text) as [string, string];
  return { stream, localKey };
}
