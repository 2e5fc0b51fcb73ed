// Writes the table `drift`, with one row for each object that is not correct at the service, and its history
// `drift_events`. A row is deleted when the object is found correct or a write of the object is accepted.
import { sql, type SQL } from 'drizzle-orm';
import { anyOf, query, type Queries } from '../database.js';
import { toStorableJson } from '../records/outcome-types.js';
import type { DriftFields, DriftKind } from '../schema.js';

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
