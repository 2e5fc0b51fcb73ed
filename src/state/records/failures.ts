// The records that are not at the service as the mirror has them, and why.
import { and, count, eq, inArray, notInArray, sql } from 'drizzle-orm';
import { alias } from 'drizzle-orm/pg-core';
import { queryState, type Queries } from '../database.js';
import { records, type RecordStatus } from '../schema.js';

export interface Failure {
  stream: string;
  localKey: string;
  externalId: string | null;
  status: RecordStatus;
  errorCode: string | null;
  errorMessage: string | null;
  attempts: number;
  runId: number | null;
  updatedAt: Date;
  waitsFor: { stream: string; localKey: string } | null;
  /** Status of the record it waits for; null when the state knows none. */
  parentStatus: RecordStatus | null;
}

const SETTLED: RecordStatus[] = ['synced', 'retired'];

/** Oldest key first; of one stream, one run or one status when given. */
export async function listFailures(
  db: Queries,
  filter: { stream?: string | undefined; runId?: number; statuses?: RecordStatus[]; limit: number },
): Promise<Failure[]> {
  const parents = alias(records, 'parents');
  const rows = await queryState(() =>
    db
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
        parentStatus: parents.status,
      })
      .from(records)
      .leftJoin(
        parents,
        sql`${parents.stream} = ${records.waitsFor}::jsonb->>0 AND ${parents.localKey} = ${records.waitsFor}::jsonb->>1`,
      )
      .where(
        and(
          filter.statuses ? inArray(records.status, filter.statuses) : notInArray(records.status, SETTLED),
          filter.stream === undefined ? undefined : eq(records.stream, filter.stream),
          filter.runId === undefined ? undefined : eq(records.runId, filter.runId),
        ),
      )
      .orderBy(records.stream, records.localKey)
      .limit(filter.limit),
  );
  return rows.map(({ waitsFor, ...row }) => ({ ...row, waitsFor: parseWaitsFor(waitsFor) }));
}

function parseWaitsFor(text: string | null): { stream: string; localKey: string } | null {
  if (text === null) return null;
  const [stream, localKey] = JSON.parse(text) as [string, string];
  return { stream, localKey };
}

/** Records that are not at the service as the mirror has them, of one stream when given. */
export async function countUnsettled(db: Queries, stream?: string): Promise<number> {
  const [row] = await queryState(() =>
    db
      .select({ count: count() })
      .from(records)
      .where(
        and(
          notInArray(records.status, SETTLED),
          stream === undefined ? undefined : eq(records.stream, stream),
        ),
      ),
  );
  return row?.count ?? 0;
}

/** Records by stream and status. */
export async function countRecords(
  db: Queries,
): Promise<{ stream: string; status: RecordStatus; count: number }[]> {
  return queryState(() =>
    db
      .select({ stream: records.stream, status: records.status, count: count() })
      .from(records)
      .groupBy(records.stream, records.status)
      .orderBy(records.stream, records.status),
  );
}

/**
 * Lets dead and failed records go again with the next run. One whose external id changed lets go of the object
 * it had: the next run creates the new one. Returns those that were changed.
 */
export async function retryRecords(
  db: Queries,
  which: { stream?: string | undefined; keys: readonly string[] },
): Promise<{ stream: string; localKey: string }[]> {
  const changed = sql`error_code = 'external_id_changed'`;
  return queryState(() =>
    db
      .update(records)
      .set({
        status: 'failed',
        refusedHash: null,
        externalId: sql`CASE WHEN ${changed} THEN NULL ELSE external_id END`,
        destinationId: sql`CASE WHEN ${changed} THEN NULL ELSE destination_id END`,
        objectHash: sql`CASE WHEN ${changed} THEN NULL ELSE object_hash END`,
        sourceHash: sql`CASE WHEN ${changed} THEN NULL ELSE source_hash END`,
        updatedAt: sql`now()`,
      })
      .where(
        and(
          inArray(records.status, ['dead', 'failed']),
          which.stream === undefined ? undefined : eq(records.stream, which.stream),
          which.keys.length === 0 ? undefined : inArray(records.localKey, [...which.keys]),
        ),
      )
      .returning({ stream: records.stream, localKey: records.localKey }),
  );
}
