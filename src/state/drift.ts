// Reads and writes the table `drift`, with one row for each object that is not correct at the service, and its history
// `drift_events`. A row is deleted when the object is found correct or a write of the object is accepted.
import { sql, type SQL } from 'drizzle-orm';
import {
  anyOf,
  query,
  queryColumn,
  queryFirst,
  queryOne,
  queryValue,
  type Queries,
  type RowOf,
} from './database.js';
import { type RecordKey, toStorableJson } from './records/outcome-types.js';
import {
  columnList,
  drift,
  verifications,
  type DriftFields,
  type DriftKind,
  type DriftSummary,
} from './schema.js';

export type DriftRow = RowOf<typeof drift>;

const REPAIRED_KINDS: readonly DriftKind[] = ['changed', 'missing', 'inactive'];
/** SQL: kinds of drift that a repair corrects by sending the object again. */
export const REPAIRED = sql.raw(`kind IN (${REPAIRED_KINDS.map((kind) => `'${kind}'`).join(', ')})`);
/** Kinds that are no drift, because the service reformats a value, no record owns the object, or a rule keeps it. */
const NO_DRIFT: readonly DriftKind[] = ['stored_otherwise', 'extra', 'kept'];
const IS_NO_DRIFT = sql.raw(`IN (${NO_DRIFT.map((kind) => `'${kind}'`).join(', ')})`);
export const isDrift = (kind: DriftKind): boolean => !NO_DRIFT.includes(kind);
export const isRepaired = (kind: DriftKind): boolean => REPAIRED_KINDS.includes(kind);

const ALL = columnList(drift);

export const countDrift = (db: Queries) => query<{ stream: string; kind: DriftKind; count: number }>(db)`
  SELECT stream, kind, count(*)::int AS count FROM slotsync.drift GROUP BY stream, kind ORDER BY stream, kind`;

export const listDrift = (db: Queries, limit: number) =>
  query<DriftRow>(db)`SELECT ${ALL} FROM slotsync.drift ORDER BY stream, local_key LIMIT ${limit}`;

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
export const readDriftOf = (db: Queries, { stream, localKey }: RecordKey) => queryFirst<DriftRow>(db)`
  SELECT ${ALL} FROM slotsync.drift WHERE stream = ${stream} AND local_key = ${localKey}`;

export const readDriftingKeys = async (db: Queries, stream: string, keys: readonly string[]) =>
  new Set(
    await queryColumn<string>(db)`
    SELECT local_key AS "localKey" FROM slotsync.drift WHERE stream = ${stream} AND local_key = ${anyOf(keys)}`,
  );

/** Counts objects that an earlier verify found drifting and that this verify run could not compare. */
export const countNotComparedAgain = (db: Queries, runId: number) => queryValue<number>(db)`
  SELECT count(*)::int AS count FROM slotsync.drift AS d
  WHERE stream = ANY (SELECT unnest(streams) FROM slotsync.runs WHERE id = ${runId}::bigint)
    AND NOT kind ${IS_NO_DRIFT} AND NOT ${isSeenBy(runId)}`;

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
export const listRepairable = (db: Queries, choice: DriftChoice, after: string | undefined, most: number) =>
  query<Repairable>(db)`
    SELECT d.local_key AS "localKey", r.status = 'retired' AS "isRetired", d.kind FROM slotsync.drift AS d
    JOIN slotsync.records AS r ON r.stream = d.stream AND r.local_key = d.local_key
    WHERE ${isChosen(choice)} AND ${after === undefined ? sql`true` : sql`d.local_key > ${after}`} ORDER BY d.local_key LIMIT ${most}`;

export async function countRepairable(db: Queries, stream: string): Promise<number> {
  return (await summarizeDrift(db, { stream })).total;
}

/** Counts the drifting objects of a stream by kind, and finds the field in which all changed objects differ. */
export const summarizeDrift = (db: Queries, choice: DriftChoice) => queryOne<DriftSummary>(db)`
  WITH chosen AS MATERIALIZED (SELECT kind, fields FROM slotsync.drift AS d WHERE ${isChosen(choice)})
  SELECT count(*)::int AS total, count(*) FILTER (WHERE kind = 'missing')::int AS missing,
    count(*) FILTER (WHERE kind = 'inactive')::int AS inactive,
    count(*) FILTER (WHERE kind = 'changed')::int AS changed, (
      SELECT field FROM chosen AS c CROSS JOIN LATERAL jsonb_object_keys(c.fields) AS field WHERE c.kind = 'changed'
      GROUP BY field HAVING count(*) = (SELECT count(*) FROM chosen WHERE kind = 'changed')
      ORDER BY field LIMIT 1) AS "commonField"
  FROM chosen`;

const isChosen = ({ stream, seenSince }: DriftChoice): SQL =>
  sql`d.stream = ${stream} AND d.${REPAIRED} AND d.seen_at >= ${seenSince ?? '-infinity'}::text::timestamptz`;

/** Counts objects that began to drift, and objects that ceased. Ignores kinds that are no drift. */
const countEvents = (db: Queries, condition: SQL) =>
  queryOne<{ found: number; mended: number }>(db)`
    SELECT count(*) FILTER (WHERE NOT to_kind ${IS_NO_DRIFT})::int AS found,
      count(*) FILTER (WHERE to_kind IS NULL AND NOT from_kind ${IS_NO_DRIFT})::int AS mended
    FROM slotsync.drift_events WHERE ${condition}`;

/** Counts objects that a run found drifting, and objects whose drift the run ended. */
export const countDriftEvents = (db: Queries, runId: number) =>
  countEvents(
    db,
    sql`run_id = ${runId}::bigint AND at >= (SELECT requested_at FROM slotsync.runs WHERE id = ${runId}::bigint)`,
  );

/** Counts objects that were found drifting in a period, and objects whose drift ended in it. */
export const countDriftChanges = (db: Queries, from: Date, to: Date) =>
  countEvents(
    db,
    sql`at BETWEEN ${from.toISOString()}::text::timestamptz AND ${to.toISOString()}::text::timestamptz`,
  );

export interface DriftingObject {
  localKey: string;
  externalId: string | undefined;
  kind: DriftKind;
  fields: DriftFields | undefined;
  /** Time of the record's last change when the object was compared. Undefined if no record owns the object. */
  writtenAt: string | undefined;
}

export interface DriftSource {
  runId: number;
  stream: string;
}

/**
 * SQL: the service stores another value than it accepts. True if the object `g` differs in the same values as before
 * its last write, and no whole verify found it correct in between. Otherwise, somebody has changed the object at the
 * service.
 */
const isStoredOtherwise = (stream: string): SQL => sql`
  g.fields IS NOT NULL AND EXISTS (
    SELECT FROM (SELECT * FROM slotsync.drift_events WHERE stream = ${stream} AND local_key = g."localKey"
      ORDER BY id DESC LIMIT 1) AS e
    WHERE NOT EXISTS (SELECT FROM jsonb_each(g.fields) AS f WHERE e.fields->f.key IS DISTINCT FROM f.value)
      AND (e.to_kind = 'stored_otherwise' OR e.to_kind IS NULL
        AND NOT EXISTS (SELECT FROM slotsync.verifications AS v WHERE v.stream = ${stream} AND v.verified_at > e.at)))`;

/**
 * Writes drifting objects and each change of their drift. Skips records that were written since the comparison or are
 * being written now, because the comparison is outdated. Returns the number of written rows, by kind.
 */
export async function writeDrift(
  db: Queries,
  { runId, stream }: DriftSource,
  drifting: readonly DriftingObject[],
): Promise<Partial<Record<DriftKind, number>>> {
  if (drifting.length === 0) return {};
  const rows = await query<{ kind: DriftKind; count: number }>(db)`
    WITH given AS MATERIALIZED (
      SELECT * FROM jsonb_to_recordset(${toStorableJson(drifting)}::jsonb) AS g(
        "localKey" text, "externalId" text, kind text, fields jsonb, "writtenAt" text)
    ), locked AS MATERIALIZED (
      SELECT r.local_key, r.updated_at FROM slotsync.records AS r
      WHERE r.stream = ${stream} AND r.local_key = ${anyOf(drifting.map(({ localKey }) => localKey))}
        AND r.claimed_by IS NULL
      FOR SHARE SKIP LOCKED
    ), standing AS MATERIALIZED (
      SELECT g."localKey", g."externalId", g.fields,
        CASE WHEN g.kind <> 'kept' AND ${isStoredOtherwise(stream)} THEN 'stored_otherwise' ELSE g.kind END AS kind
      FROM given AS g LEFT JOIN locked AS l ON l.local_key = g."localKey"
      WHERE g."writtenAt" IS NULL OR l.updated_at = g."writtenAt"::timestamptz
    ), written AS (
      INSERT INTO slotsync.drift AS d (stream, local_key, external_id, kind, fields, seen_at)
      SELECT ${stream}, "localKey", "externalId", kind, fields, clock_timestamp() FROM standing
      ON CONFLICT (stream, local_key) DO UPDATE SET external_id = excluded.external_id, kind = excluded.kind,
        fields = excluded.fields, seen_at = excluded.seen_at
      RETURNING d.kind
    ), changed AS (
      INSERT INTO slotsync.drift_events (stream, local_key, external_id, from_kind, to_kind, fields, run_id)
      SELECT ${stream}, s."localKey", s."externalId", b.kind, s.kind, s.fields, ${runId}::bigint FROM standing AS s
      -- As it was before: what the statement itself writes is not seen by it.
      LEFT JOIN slotsync.drift AS b ON b.stream = ${stream} AND b.local_key = s."localKey"
      WHERE b.kind IS DISTINCT FROM s.kind OR b.fields IS DISTINCT FROM s.fields
    )
    SELECT kind, count(*)::int AS count FROM written GROUP BY kind`;
  return Object.fromEntries(rows.map(({ kind, count }) => [kind, count]));
}

interface Mended {
  keys: readonly string[];
  /** External ids of `extra` objects that now belong to a record. */
  externalIds?: readonly string[];
  /** Keys whose write was accepted. The history keeps the fields that differed until then. */
  written?: readonly string[];
}

/** Deletes the drift of objects that are correct again. */
export async function mendDrift(db: Queries, source: DriftSource, mended: Mended): Promise<void> {
  if (mended.keys.length > 0) await query(db)`${mendingDrift(source, mended)}`;
}

/** Returns the statement that deletes the drift of correct objects. `isMeant` is a condition on the drift row `d`. */
export function mendingDrift(
  { runId, stream }: DriftSource,
  { keys, externalIds = [], written = [] }: Mended,
  isMeant = sql`true`,
): SQL {
  const isFound = sql`kind = 'extra' AND external_id = ${anyOf(externalIds)}`;
  const isOf = (these: readonly string[]) => sql`(stream = ${stream} AND local_key = ${anyOf(these)})`;
  return deletingDrift(runId, sql`(${isOf(keys)} OR (${isFound})) AND ${isMeant}`, isOf(written));
}

/**
 * Deletes outdated drift after a whole verify of a stream: drift of deleted records, and `extra` objects not seen
 * again.
 */
export async function deleteOutdatedDrift(db: Queries, { runId, stream }: DriftSource): Promise<void> {
  const startedAt = sql`(SELECT started_at FROM slotsync.runs WHERE id = ${runId}::bigint)`;
  await deleteDrift(
    db,
    runId,
    sql`stream = ${stream} AND CASE WHEN kind = 'extra' THEN seen_at < ${startedAt}
      ELSE NOT EXISTS (SELECT FROM slotsync.records AS r
        WHERE r.stream = d.stream AND r.local_key = d.local_key AND r.external_id IS NOT NULL) END`,
  );
}

/** Deletes the drift of all streams outside `streams`, because they are no longer verified. */
export async function deleteDriftOfOthers(db: Queries, runId: number, streams: readonly string[]) {
  await deleteDrift(db, runId, sql`NOT stream = ${anyOf(streams)}`);
}

async function deleteDrift(db: Queries, runId: number, condition: SQL): Promise<void> {
  await query(db)`${deletingDrift(runId, condition)}`;
}

function deletingDrift(runId: number, condition: SQL, isWritten = sql`false`): SQL {
  return sql`
    WITH mended AS (
      DELETE FROM slotsync.drift AS d WHERE ${condition} RETURNING stream, local_key, external_id, kind, fields
    )
    INSERT INTO slotsync.drift_events (stream, local_key, external_id, from_kind, fields, run_id)
    SELECT stream, local_key, external_id, kind, CASE WHEN ${isWritten} THEN fields END, ${runId}::bigint FROM mended`;
}

export type Verification = typeof verifications.$inferSelect;

/** Stores a whole verify of a stream. Its result is valid for the time when the run began. */
export async function noteVerified(
  db: Queries,
  { runId, stream, objects }: { runId: number; stream: string; objects: number },
): Promise<void> {
  await query(db)`
    INSERT INTO slotsync.verifications (stream, verified_at, objects, run_id)
    SELECT ${stream}, started_at, ${objects}::bigint, id FROM slotsync.runs WHERE id = ${runId}::bigint
    ON CONFLICT (stream) DO UPDATE SET verified_at = excluded.verified_at, objects = excluded.objects,
      run_id = excluded.run_id`;
}

export const listVerifications = (db: Queries): Promise<Verification[]> =>
  db.select().from(verifications).orderBy(verifications.stream);
