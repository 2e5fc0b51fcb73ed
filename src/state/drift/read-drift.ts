// Queries of the tables `drift` and `drift_events`. write-drift.ts writes these tables.
import { sql, type SQL } from 'drizzle-orm';
import { anyOf, query, queryOne, type Queries, type RowOf } from '../database.js';
import type { RecordKey } from '../records/outcome-types.js';
import type { drift, DriftKind, DriftSummary } from '../schema.js';

export type DriftRow = RowOf<typeof drift>;

const REPAIRED_KINDS: readonly DriftKind[] = ['changed', 'missing', 'inactive'];
/** SQL: kinds of drift that a repair corrects by sending the object again. */
export const REPAIRED = sql.raw(`kind IN (${REPAIRED_KINDS.map((kind) => `'${kind}'`).join(', ')})`);
/** Kinds that are no drift, because the service reformats a value, no record owns the object, or a rule keeps it. */
const NO_DRIFT: readonly DriftKind[] = ['stored_otherwise', 'extra', 'kept'];
const IS_NO_DRIFT = sql.raw(`IN (${NO_DRIFT.map((kind) => `'${kind}'`).join(', ')})`);
export const isDrift = (kind: DriftKind): boolean => !NO_DRIFT.includes(kind);
export const isRepaired = (kind: DriftKind): boolean => REPAIRED_KINDS.includes(kind);

const ALL = sql.raw(
  `stream, local_key AS "localKey", external_id AS "externalId", kind, fields, seen_at AS "seenAt"`,
);

export interface DriftCount {
  stream: string;
  kind: DriftKind;
  count: number;
}

export async function countDrift(db: Queries): Promise<DriftCount[]> {
  return query<DriftCount>(db)`
    SELECT stream, kind, count(*)::int AS count FROM slotsync.drift GROUP BY stream, kind ORDER BY stream, kind`;
}

export async function listDrift(db: Queries, limit: number): Promise<DriftRow[]> {
  return query<DriftRow>(db)`SELECT ${ALL} FROM slotsync.drift ORDER BY stream, local_key LIMIT ${limit}`;
}

/** Returns up to `limit` drifting objects that a verify run found, ordered by stream and key, after `after`. */
export async function listDriftSeenBy(
  db: Queries,
  runId: number,
  { after, limit }: { after?: Pick<DriftRow, 'stream' | 'localKey'> | undefined; limit: number },
): Promise<DriftRow[]> {
  const isAfter = after ? sql`(stream, local_key) > (${after.stream}, ${after.localKey})` : sql`true`;
  return query<DriftRow>(db)`
    SELECT ${ALL} FROM slotsync.drift AS d
    WHERE stream = ANY (SELECT unnest(streams) FROM slotsync.runs WHERE id = ${runId}::bigint)
      AND ${isSeenBy(runId)} AND ${isAfter}
    ORDER BY stream, local_key LIMIT ${limit}`;
}

/** Returns the drift of one object. Undefined if the object is correct or was never compared. */
export async function readDriftOf(
  db: Queries,
  { stream, localKey }: RecordKey,
): Promise<DriftRow | undefined> {
  const [row] = await query<DriftRow>(db)`
    SELECT ${ALL} FROM slotsync.drift WHERE stream = ${stream} AND local_key = ${localKey}`;
  return row;
}

export async function readDriftingKeys(db: Queries, stream: string, keys: readonly string[]) {
  const rows = await query<{ localKey: string }>(db)`
    SELECT local_key AS "localKey" FROM slotsync.drift WHERE stream = ${stream} AND local_key = ${anyOf(keys)}`;
  return new Set(rows.map(({ localKey }) => localKey));
}

/** Counts objects that an earlier verify found drifting and that this verify run could not compare. */
export async function countNotComparedAgain(db: Queries, runId: number): Promise<number> {
  const { count } = await queryOne<{ count: number }>(db)`
    SELECT count(*)::int AS count FROM slotsync.drift AS d
    WHERE stream = ANY (SELECT unnest(streams) FROM slotsync.runs WHERE id = ${runId}::bigint)
      AND NOT kind ${IS_NO_DRIFT} AND NOT ${isSeenBy(runId)}`;
  return count;
}

/** SQL: found since the run began. Only one verify runs at a time, so the time identifies the run. */
const isSeenBy = (runId: number): SQL =>
  sql`seen_at >= (SELECT started_at FROM slotsync.runs WHERE id = ${runId}::bigint)`;

export interface Repairable {
  localKey: string;
  /** True if the repair must make the object inactive again. */
  isRetired: boolean;
  kind: DriftKind;
}

/** Selects the drift of a stream. If `seenSince` (ISO time) is set, only drift seen since then. */
export interface DriftChoice {
  stream: string;
  seenSince?: string | undefined;
}

/** Returns up to `most` records whose drift can be repaired, ordered by key, beginning after `after`. */
export async function listRepairable(
  db: Queries,
  choice: DriftChoice,
  after: string | undefined,
  most: number,
): Promise<Repairable[]> {
  return query<Repairable>(db)`
    SELECT d.local_key AS "localKey", r.status = 'retired' AS "isRetired", d.kind FROM slotsync.drift AS d
    JOIN slotsync.records AS r ON r.stream = d.stream AND r.local_key = d.local_key
    WHERE ${isChosen(choice)} AND ${after === undefined ? sql`true` : sql`d.local_key > ${after}`} ORDER BY d.local_key LIMIT ${most}`;
}

export async function countRepairable(db: Queries, stream: string): Promise<number> {
  return (await summarizeDrift(db, { stream })).total;
}

/** Counts the drifting objects of a stream by kind, and finds the field in which all changed objects differ. */
export async function summarizeDrift(db: Queries, choice: DriftChoice): Promise<DriftSummary> {
  return queryOne<DriftSummary>(db)`
    WITH chosen AS MATERIALIZED (SELECT kind, fields FROM slotsync.drift AS d WHERE ${isChosen(choice)})
    SELECT count(*)::int AS total, count(*) FILTER (WHERE kind = 'missing')::int AS missing,
      count(*) FILTER (WHERE kind = 'inactive')::int AS inactive,
      count(*) FILTER (WHERE kind = 'changed')::int AS changed, (
        SELECT field FROM chosen AS c CROSS JOIN LATERAL jsonb_object_keys(c.fields) AS field WHERE c.kind = 'changed'
        GROUP BY field HAVING count(*) = (SELECT count(*) FROM chosen WHERE kind = 'changed')
        ORDER BY field LIMIT 1) AS "commonField"
    FROM chosen`;
}

const isChosen = ({ stream, seenSince }: DriftChoice): SQL =>
  sql`d.stream = ${stream} AND d.${REPAIRED} AND d.seen_at >= ${seenSince ?? '-infinity'}::text::timestamptz`;

/** SQL: number of objects that began to drift, and number that ceased. Ignores kinds that are no drift. */
const FOUND_AND_MENDED = sql`count(*) FILTER (WHERE NOT to_kind ${IS_NO_DRIFT})::int AS found,
  count(*) FILTER (WHERE to_kind IS NULL AND NOT from_kind ${IS_NO_DRIFT})::int AS mended`;

/** Counts objects that a run found drifting, and objects whose drift the run ended. */
export async function countDriftEvents(
  db: Queries,
  runId: number,
): Promise<{ found: number; mended: number }> {
  return queryOne<{ found: number; mended: number }>(db)`
    SELECT ${FOUND_AND_MENDED}
    FROM slotsync.drift_events WHERE run_id = ${runId}::bigint
      AND at >= (SELECT requested_at FROM slotsync.runs WHERE id = ${runId}::bigint)`;
}

/** Counts objects that were found drifting in a period, and objects whose drift ended in it. */
export async function countDriftChanges(
  db: Queries,
  from: Date,
  to: Date,
): Promise<{ found: number; mended: number }> {
  return queryOne<{ found: number; mended: number }>(db)`
    SELECT ${FOUND_AND_MENDED}
    FROM slotsync.drift_events
    WHERE at BETWEEN ${from.toISOString()}::text::timestamptz AND ${to.toISOString()}::text::timestamptz`;
}
