// Facts about each stream: last whole plan and sync, due time, problem, and the load of the mirror at its last plan.
// Decisions about sending use these tables, not past runs.
import { sql, type SQL, eq } from 'drizzle-orm';
import { arrayLiteral } from '../text/sql-text.js';
import { anyOf, query, queryColumn, queryOne, queryValue, type Queries } from './database.js';
import { exceptedKeys } from './exceptions.js';
import { isFrozen, reasonFrozen } from './freezes.js';
import { toStorableJson } from './records/outcome-types.js';
import {
  type DueReason,
  type GatedOperation,
  type GateReason,
  type GateFacts,
  streams,
  type StreamProblem,
  freshness,
} from './schema.js';

export type StreamFacts = typeof streams.$inferSelect;

export interface PlanGate {
  operation: GatedOperation;
  reason: GateReason;
  count: number;
  /** Number of records that the approval permits. Null if the gate has no valid approval. */
  allowed: number | null;
  allowedDigest: string | null;
  isRejected: boolean;
  facts: GateFacts;
}

/** Facts about a stream that a plan uses, from before the plan read the mirror. */
export interface StreamStanding {
  /** Time of the facts by the database clock, as text at full precision. */
  at: string;
  /** Reason of the freeze. Null if the stream is not frozen. */
  frozen: string | null;
  /** Set if the mirror became another database after the last sync, and no whole plan has passed since. */
  mirrorChange: { at: string; why: string } | null;
  gates: PlanGate[];
  /** Refusals of the service since the last whole plan. Null if there were none. */
  refusals: Refusals | null;
  /** True if the stream has a problem, from its last full or partial run. */
  hasProblem: boolean;
  excepted: string[];
}

export async function readStanding(db: Queries, stream: string): Promise<StreamStanding> {
  return queryOne<StreamStanding>(db)`
    SELECT now()::text AS at, ${reasonFrozen(sql`n.name`)} AS frozen,
      (SELECT jsonb_build_object('at', d.restored_at::text, 'why', d.restored_why) FROM slotsync.databases AS d
        WHERE d.name = 'mirror' AND d.restored_at IS NOT NULL AND coalesce(s.mirror_passed_at < d.restored_at, true)
          AND EXISTS (SELECT FROM slotsync.records AS r WHERE r.stream = n.name AND r.synced_at < d.restored_at)) AS "mirrorChange",
      coalesce((SELECT jsonb_agg(jsonb_build_object('operation', g.operation, 'reason', g.reason, 'count', g.count,
          'allowed', CASE WHEN g.expires_at > now() THEN g.allowed END, 'allowedDigest', g.allowed_digest, 'isRejected', g.rejected_at IS NOT NULL,
          'facts', g.facts))
        FROM slotsync.gates AS g WHERE g.stream = n.name), '[]') AS gates,
      CASE WHEN s.refused > 0 THEN jsonb_build_object('answered', s.answered, 'refused', s.refused, 'code', s.refused_code,
        'message', s.refused_message, 'allowed', s.refusals_allowed) END AS refusals,
      s.problem IS NOT NULL AS "hasProblem", ${exceptedKeys(sql`n.name`)} AS excepted
    FROM (SELECT ${stream}::text AS name) AS n LEFT JOIN slotsync.streams AS s ON s.stream = n.name`;
}

export const listStreams = (db: Queries): Promise<StreamFacts[]> =>
  db.select().from(streams).orderBy(streams.stream);

/** Makes streams due for a whole sync. A stream that is already due keeps its reason, unless `replaces` is set. */
export async function markDue(
  db: Queries,
  names: readonly string[],
  reason: DueReason,
  { replaces = false } = {},
): Promise<void> {
  if (names.length === 0) return;
  await query(db)`
    INSERT INTO slotsync.streams AS s (stream, due_since, due_reason)
    SELECT name, now(), ${reason} FROM unnest(${arrayLiteral(names)}::text[]) AS name
    ON CONFLICT (stream) DO UPDATE SET
      -- A whole plan that is under way may have read the mirror before.
      due_since = CASE WHEN s.due_since IS NULL OR EXISTS (SELECT FROM slotsync.runs AS r WHERE r.finished_at IS NULL AND r.status = 'planning'
        AND r.kind = 'sync' AND r.range IS NULL AND s.stream = ANY (r.streams)) THEN now() ELSE s.due_since END,
      due_reason = CASE WHEN s.due_since IS NULL OR ${replaces} THEN ${reason} ELSE s.due_reason END`;
}

/** Stores new streams. Streams that were never planned whole become due. */
export async function registerStreams(db: Queries, names: readonly string[]): Promise<void> {
  await query(db)`
    INSERT INTO slotsync.streams AS s (stream, due_since, due_reason)
    SELECT name, now(), 'new' FROM unnest(${arrayLiteral(names)}::text[]) AS name
    ON CONFLICT (stream) DO UPDATE SET due_since = now(), due_reason = 'new'
      WHERE s.planned_at IS NULL AND s.due_since IS NULL`;
}

/** Time during which deleted rows are collected before a whole sync is started for them. */
const GONE_COLLECTED = sql`interval '5 minutes'`;
/** Time after which a whole sync is started again if its plan did not end. */
const TRIED_AGAIN_AFTER = sql`interval '1 hour'`;

/**
 * Returns the streams for which a worker starts a whole sync now. A frozen stream waits for the end of the freeze. A
 * stream whose run was cancelled waits for its schedule or a command.
 */
export const listStartable = (db: Queries, names: readonly string[]) => queryColumn<string>(db)`
  SELECT stream FROM slotsync.streams AS s
  WHERE due_since IS NOT NULL AND stream = ${anyOf(names)} AND due_reason <> 'cancelled'
    AND (due_reason <> 'rows_gone' OR due_since < now() - ${GONE_COLLECTED})
    AND coalesce(attempted_at < due_since OR attempted_at < now() - ${TRIED_AGAIN_AFTER}, true)
    AND NOT ${isFrozen(sql`s.stream`)}
  ORDER BY stream`;

export interface WholePlan {
  stream: string;
  fingerprint: string;
  /** Time when the plan began to read the mirror. Changes after this time keep the stream due. */
  begunAt: string;
  /** True if the plan was allowed to send, so that the stream is no longer due. */
  maySend: boolean;
  /** Start of the plan, if the mirror has become another database and the plan held nothing back. Otherwise null. */
  passedAt: string | null;
  /** Refusals that an approval permits. */
  refusalsAllowed: number;
}

/** Stores whole plans and resets the counts of refusals. Must be called in the transaction that ends the plans. */
export async function notePlannedWhole(tx: Queries, plans: readonly WholePlan[]): Promise<void> {
  if (plans.length === 0) return;
  const maySend = sql`s.stream = ${anyOf(plans.flatMap((plan) => (plan.maySend ? plan.stream : [])))}`;
  const isDone = sql`(SELECT p."maySend" AND s.due_since <= p."begunAt"::timestamptz FROM plans AS p WHERE p.stream = s.stream)`;
  await query(tx)`
    WITH plans AS MATERIALIZED (
      SELECT * FROM jsonb_to_recordset(${JSON.stringify(plans)}::jsonb)
        AS p(stream text, fingerprint text, "begunAt" text, "maySend" boolean, "passedAt" text, "refusalsAllowed" int)
    )
    INSERT INTO slotsync.streams AS s (stream, fingerprint, planned_at, mirror_passed_at, refusals_allowed)
    SELECT p.stream, p.fingerprint, now(), CASE WHEN d.name IS NULL THEN p."passedAt"::timestamptz END, p."refusalsAllowed"
    FROM plans AS p
      -- A state that was put back as well is as old as the mirror: that they agree says nothing.
      LEFT JOIN slotsync.databases AS d ON d.name = 'state' AND d.restored_at IS NOT NULL
    ON CONFLICT (stream) DO UPDATE SET fingerprint = excluded.fingerprint, planned_at = now(),
      mirror_passed_at = coalesce(excluded.mirror_passed_at, s.mirror_passed_at), refusals_allowed = excluded.refusals_allowed,
      answered = 0, refused = 0, refused_code = NULL, refused_message = NULL,
      due_since = CASE WHEN NOT ${isDone} THEN s.due_since END, due_reason = CASE WHEN NOT ${isDone} THEN s.due_reason END,
      -- After the freeze it is begun at once.
      attempted_at = CASE WHEN ${maySend} THEN s.attempted_at END`;
}

export async function noteAttempted(tx: Queries, names: readonly string[]): Promise<void> {
  await query(tx)`
    INSERT INTO slotsync.streams (stream, attempted_at) SELECT name, now() FROM unnest(${arrayLiteral(names)}::text[]) AS name
    ON CONFLICT (stream) DO UPDATE SET attempted_at = now()`;
}

/** Stores a problem of streams. A problem with the same code as before keeps its start time. */
export async function noteProblems(
  db: Queries,
  names: readonly string[],
  problem: Omit<StreamProblem, 'since'>,
): Promise<void> {
  if (names.length === 0) return;
  const json = sql`${toStorableJson(problem)}::jsonb`;
  const since = sql`to_jsonb(now())`;
  await query(db)`
    INSERT INTO slotsync.streams AS s (stream, problem)
    SELECT name, ${json} || jsonb_build_object('since', ${since}) FROM unnest(${arrayLiteral(names)}::text[]) AS name
    ON CONFLICT (stream) DO UPDATE SET problem = excluded.problem || jsonb_build_object('since',
        CASE WHEN s.problem->>'code' IS NOT DISTINCT FROM ${problem.code} THEN coalesce(s.problem->'since', ${since}) ELSE ${since} END)
      -- A part of a stream says nothing of what a whole run found.
      WHERE ${problem.isWhole} OR NOT coalesce((s.problem->>'isWhole')::boolean, false)`;
}

/** Ends problems that partial runs have found, because another part of the stream could be read. */
export async function endPartialProblems(db: Queries, names: readonly string[]): Promise<void> {
  await query(db)`
    UPDATE slotsync.streams SET problem = NULL
    WHERE stream = ${anyOf(names)} AND NOT coalesce((problem->>'isWhole')::boolean, true)`;
}

/** Stores the end of whole syncs. `fine`: streams without failed records. `synced`: those that sent everything. */
export async function noteEndedWhole(
  tx: Queries,
  { fine, synced }: { fine: readonly string[]; synced: readonly string[] },
): Promise<void> {
  if (fine.length === 0) return;
  await query(tx)`
    UPDATE slotsync.streams SET problem = NULL,
      synced_at = CASE WHEN stream = ${anyOf(synced)} THEN clock_timestamp() ELSE synced_at END
    WHERE stream = ${anyOf(fine)}`;
}

/** Returns the earliest time at which one of these streams was last synced whole. Null if one never was. */
export async function readWholeSuccess(db: Queries, names: readonly string[]): Promise<Date | null> {
  return queryValue<Date | null>(db)`
    SELECT CASE WHEN count(s.synced_at) = count(*) THEN min(s.synced_at) END AS at
    FROM unnest(${arrayLiteral(names)}::text[]) AS name LEFT JOIN slotsync.streams AS s ON s.stream = name`;
}

export interface Refusals {
  answered: number;
  refused: number;
  code: string;
  message: string;
  /** Refusals that an approval permits. */
  allowed: number;
}

/**
 * Returns the statement that counts answers without refusals. It must be the last of its transaction, because all
 * batches of a stream lock this row.
 */
export const countingAnswered = (stream: string, answered: number): SQL => sql`
  UPDATE slotsync.streams SET answered = answered + ${answered}::int WHERE stream = ${stream}`;

/** Counts an answer with refusals. Returns the totals since the last whole plan. */
export async function noteRefusals(
  db: Queries,
  stream: string,
  answer: Omit<Refusals, 'allowed'>,
): Promise<Refusals> {
  return queryOne<Refusals>(db)`
    INSERT INTO slotsync.streams AS s (stream, answered, refused, refused_code, refused_message)
    VALUES (${stream}, ${answer.answered}::int, ${answer.refused}::int, ${answer.code}, ${answer.message})
    ON CONFLICT (stream) DO UPDATE SET answered = s.answered + excluded.answered, refused = s.refused + excluded.refused,
      refused_code = excluded.refused_code, refused_message = excluded.refused_message
    RETURNING answered, refused, refused_code AS code, refused_message AS message, refusals_allowed AS allowed`;
}

export type NotedLoad = typeof freshness.$inferSelect;

/** Load that a plan has read. `loadedAt` is null if the load time could not be read. */
export type SeenLoad = Omit<NotedLoad, 'stream' | 'syncedLoadAt'>;

export async function readLoad(db: Queries, stream: string): Promise<NotedLoad | undefined> {
  const [noted] = await db.select().from(freshness).where(eq(freshness.stream, stream));
  return noted;
}

export async function listLoads(db: Queries): Promise<NotedLoad[]> {
  return db.select().from(freshness).orderBy(freshness.stream);
}

/**
 * Stores the load that a plan has read, unless a later plan has stored one. If `isWhole`, the next nightly sync
 * compares its load with this one.
 */
export async function noteLoad(
  db: Queries,
  stream: string,
  { loadedAt, ...seen }: SeenLoad,
  { isWhole }: { isWhole: boolean },
): Promise<void> {
  const row = { stream, loadedAt, ...seen, syncedLoadAt: isWhole ? loadedAt : null };
  await db
    .insert(freshness)
    .values(row)
    .onConflictDoUpdate({
      target: freshness.stream,
      set: {
        ...seen,
        loadedAt: sql`coalesce(excluded.loaded_at, ${freshness.loadedAt})`,
        syncedLoadAt: sql`coalesce(excluded.synced_load_at, ${freshness.syncedLoadAt})`,
      },
      // A stored time in the future comes from a wrong clock and is overwritten.
      setWhere: sql`${freshness.readAt} <= excluded.read_at OR ${freshness.readAt} > now() + interval '1 minute'`,
    });
}

/** Deletes the loads of all streams outside `streams`. */
export async function keepLoads(db: Queries, streams: readonly string[]): Promise<void> {
  await query(db)`DELETE FROM slotsync.freshness WHERE NOT stream = ANY (${arrayLiteral(streams)}::text[])`;
}
