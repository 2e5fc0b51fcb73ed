// Keys that gates hold back. A held key is in no batch. A later plan reads the row of the key from the mirror again.
import { sql, type SQL } from 'drizzle-orm';
import { anyOf, query, queryCount, queryValue, type Queries, type RowOf } from '../database.js';
import { toStorableJson } from '../records/outcome-types.js';
import {
  columnList,
  held,
  type GatedOperation,
  type GateFacts,
  type GateReason,
  type HeldSample,
  type LimitedOperation,
} from '../schema.js';

export interface ClosedGate {
  operation: GatedOperation;
  reason: GateReason;
  runId: number;
  facts: GateFacts;
  samples?: readonly HeldSample[] | undefined;
}

/**
 * SQL digest of a set of keys in any order. It is not cryptographic, because keys are not secret and nobody forges
 * them.
 */
export const digestOf = (key: SQL): SQL =>
  sql`concat_ws(' ', count(*), sum(hashtextextended(${key} COLLATE "C", 0)), sum(hashtextextended(${key} COLLATE "C", 1)))`;

/** SQL: a process is working on batch `b`, because one of its first keys is claimed for the batch. */
const IS_IN_FLIGHT = sql`EXISTS (SELECT FROM slotsync.records AS r
  WHERE r.stream = b.stream AND r.local_key = ANY (b.keys[1:3]) AND r.claimed_until > now()
    AND r.claimed_by LIKE '% batch ' || b.id || ' %')`;

/**
 * Moves the keys of batches that are not in flight from the run to a gate. `operations` restricts this to batches of
 * these operations. Returns the number of moved keys, by operation.
 */
export async function holdBatches(
  tx: Queries,
  { runId, stream, operations }: { runId: number; stream: string; operations?: readonly LimitedOperation[] },
  { operation, reason }: Pick<ClosedGate, 'operation' | 'reason'>,
): Promise<{ operation: LimitedOperation | null; records: number }[]> {
  const isMeant = operations === undefined ? sql`true` : sql`b.operation = ${anyOf(operations)}`;
  return query<{ operation: LimitedOperation | null; records: number }>(tx)`
    WITH moved AS (
      DELETE FROM slotsync.batches AS b
      WHERE b.run_id = ${runId}::bigint AND b.stream = ${stream} AND ${isMeant}
        AND (b.state = 'planned' OR b.state = 'queued' AND NOT ${IS_IN_FLIGHT})
      RETURNING b.operation, b.keys
    ), kept AS (
      INSERT INTO slotsync.held AS h (stream, local_key, operation, gate, reason)
      SELECT DISTINCT ON (key) ${stream}, key, m.operation, ${operation}, ${reason} FROM moved AS m, unnest(m.keys) AS key
      ON CONFLICT (stream, local_key) DO UPDATE SET operation = excluded.operation, gate = excluded.gate,
        reason = excluded.reason, planned_at = now(),
        since = CASE WHEN (h.gate, h.reason) = (excluded.gate, excluded.reason) THEN h.since ELSE now() END
      -- Another gate keeps its answer during a freeze.
      WHERE excluded.reason <> 'frozen' OR h.reason = 'frozen'
    )
    SELECT operation, sum(cardinality(keys))::int AS records FROM moved GROUP BY operation`;
}

/** SQL: the row of `held` is a deactivation of a deleted row. Only a whole plan decides about it. */
const IS_GONE = sql`(operation IS NOT DISTINCT FROM 'retire' AND EXISTS (SELECT FROM slotsync.records AS r
  WHERE r.stream = held.stream AND r.local_key = held.local_key AND r.gone_since IS NOT NULL))`;

/**
 * Deletes rows of `held` that a plan has replaced. A whole plan replaces all rows older than its start, and any plan
 * replaces the rows of the keys that it sends or was to cover. Must be called after the plan has stored its held keys.
 * Returns the number of deleted rows.
 */
export async function releaseReplaced(
  tx: Queries,
  plan: {
    runId: number;
    stream: string;
    isWhole: boolean;
    keys: readonly string[] | undefined;
    startedAt: string;
    isFrozen: boolean;
  },
): Promise<number> {
  const { runId, stream, isWhole, keys, isFrozen } = plan;
  const ofBatches = sql`ANY (SELECT unnest(keys) FROM slotsync.batches WHERE run_id = ${runId}::bigint AND stream = ${stream})`;
  const isReplaced = isWhole
    ? sql`(planned_at < ${plan.startedAt}::text::timestamptz OR (planned_at < now() AND local_key = ${ofBatches}))`
    : sql`planned_at < now() AND NOT ${IS_GONE} AND local_key = ${keys ? anyOf(keys) : ofBatches}`;
  return queryCount(tx)`DELETE FROM slotsync.held WHERE stream = ${stream} AND ${isReplaced}
    AND (reason = 'frozen' OR ${!isFrozen})`;
}

/**
 * Updates the gates of a stream to match the held keys. Gates of `closed` are closed, and gates without keys are
 * deleted. A rejection ends if the keys have changed. Returns the gates of `closed` that remain rejected.
 */
export async function recountGates(
  tx: Queries,
  stream: string,
  closed: readonly ClosedGate[] = [],
  { isWhole = false } = {},
): Promise<Pick<ClosedGate, 'operation' | 'reason'>[]> {
  const rows = closed.map(({ samples = [], ...gate }) => ({ ...gate, samples }));
  const stands = await query<Pick<ClosedGate, 'operation' | 'reason'> & { isRejected: boolean }>(tx)`
    WITH counted AS MATERIALIZED (
      SELECT gate, reason, sum(records)::int AS records, jsonb_object_agg(operation, records) FILTER (WHERE operation IS NOT NULL) AS by_operation
      FROM (SELECT gate, reason, operation, count(*) AS records FROM slotsync.held
        WHERE stream = ${stream} GROUP BY gate, reason, operation) AS parts
      GROUP BY gate, reason
    ), digests AS MATERIALIZED (
      SELECT gate, reason, ${digestOf(sql`local_key`)} AS digest FROM slotsync.held
      WHERE stream = ${stream} GROUP BY gate, reason
    ), closed AS MATERIALIZED (
      SELECT * FROM jsonb_to_recordset(${toStorableJson(rows)}::jsonb)
        AS g(operation text, reason text, "runId" bigint, facts jsonb, samples jsonb)
    ), opened AS (
      DELETE FROM slotsync.gates AS g WHERE g.stream = ${stream}
        AND NOT EXISTS (SELECT FROM counted AS c WHERE (c.gate, c.reason) = (g.operation, g.reason))
    ), kept AS (
      UPDATE slotsync.gates AS g SET count = c.records, digest = d.digest, ${REJECTED_STILL(sql`g.digest = d.digest`, 'g')}
      FROM counted AS c JOIN digests AS d USING (gate, reason)
      WHERE g.stream = ${stream} AND (c.gate, c.reason) = (g.operation, g.reason)
        AND NOT EXISTS (SELECT FROM closed AS o WHERE (o.operation, o.reason) = (g.operation, g.reason))
    )
    INSERT INTO slotsync.gates AS g (stream, operation, reason, run_id, count, digest, facts, samples)
    SELECT ${stream}, o.operation, o.reason, o."runId", c.records, d.digest,
      CASE WHEN o.operation = '*' THEN o.facts || jsonb_build_object('byOperation', coalesce(c.by_operation, '{}')) ELSE o.facts END,
      o.samples
    FROM closed AS o JOIN counted AS c ON (c.gate, c.reason) = (o.operation, o.reason)
      JOIN digests AS d ON (d.gate, d.reason) = (o.operation, o.reason)
    ON CONFLICT (stream, operation, reason) DO UPDATE SET run_id = CASE WHEN ${isWhole} THEN excluded.run_id ELSE g.run_id END, count = excluded.count,
      digest = excluded.digest,
      -- A part of the stream knows less about a gate that stands.
      facts = CASE WHEN ${isWhole} THEN excluded.facts ELSE excluded.facts || g.facts
        || CASE WHEN g.operation = '*' THEN jsonb_build_object('byOperation', excluded.facts->'byOperation') ELSE '{}' END END,
      samples = CASE WHEN excluded.samples = '[]' THEN g.samples ELSE excluded.samples END,
      ${REJECTED_STILL(sql`g.digest = excluded.digest`, 'g')}
    RETURNING operation, reason, rejected_at IS NOT NULL AS "isRejected"`;
  return stands.filter(({ isRejected }) => isRejected);
}

const REJECTED_STILL = (isSame: SQL, name: string) => sql`
  rejected_at = CASE WHEN ${isSame} THEN ${sql.raw(name)}.rejected_at END,
  rejected_by = CASE WHEN ${isSame} THEN ${sql.raw(name)}.rejected_by END`;

const HELD_KEY = ['stream', 'localKey', 'operation', 'gate', 'reason', 'since'] as const;
export type HeldKey = Pick<RowOf<typeof held>, (typeof HELD_KEY)[number]>;

/** Returns a page of the keys that one gate holds, ordered by key: at most `limit` keys, beginning after `after`. */
export const listHeldKeys = (
  db: Queries,
  { stream, operation, reason }: Pick<ClosedGate, 'operation' | 'reason'> & { stream: string },
  { after, limit }: { after?: string | undefined; limit: number },
) => query<HeldKey>(db)`
  SELECT ${columnList(held, undefined, HELD_KEY)} FROM slotsync.held
  WHERE stream = ${stream} AND gate = ${operation} AND reason = ${reason}
    AND ${after === undefined ? sql`true` : sql`local_key > ${after}`}
  ORDER BY local_key LIMIT ${limit}`;

export async function findHeld(
  db: Queries,
  stream: string,
  keys: readonly string[],
): Promise<Map<string, HeldKey>> {
  if (keys.length === 0) return new Map();
  const rows = await query<HeldKey>(db)`
    SELECT ${columnList(held, undefined, HELD_KEY)} FROM slotsync.held WHERE stream = ${stream} AND local_key = ${anyOf(keys)}`;
  return new Map(rows.map((row) => [row.localKey, row]));
}

/** Returns the digest of keys that a run has planned for an operation, comparable to the digest of a gate. */
export async function digestPlanned(
  db: Queries,
  { runId, stream, operation }: { runId: number; stream: string; operation: LimitedOperation },
): Promise<string> {
  return queryValue<string>(db)`
    SELECT ${digestOf(sql`key`)} AS digest FROM (
      SELECT DISTINCT key FROM slotsync.batches AS b, unnest(b.keys) AS key
      WHERE b.run_id = ${runId}::bigint AND b.stream = ${stream} AND b.operation = ${operation} AND b.state = 'planned'
    ) AS planned`;
}
