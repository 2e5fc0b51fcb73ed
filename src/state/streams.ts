// The state's facts of each stream: when it was planned and synced whole, whether it is due, what is wrong with it. A run is
// only history: whoever decides what is sent asks this table.
import { sql, type SQL } from 'drizzle-orm';
import { arrayLiteral } from '../text/sql-text.js';
import { anyOf, query, type Queries, type RowOf } from './database.js';
import { exceptedKeys } from './exceptions.js';
import { isFrozen, reasonFrozen } from './freezes.js';
import { toStorableJson } from './records/outcome-types.js';
import type { DueReason, GatedOperation, GateReason, GateFacts, streams, StreamProblem } from './schema.js';

export type StreamFacts = RowOf<typeof streams>;

/** A closed gate, as a plan needs it. */
export interface PlanGate {
  operation: GatedOperation;
  reason: GateReason;
  count: number;
  /** Records that an approval of the gate allows; null: nobody approved it, or the approval has expired. */
  allowed: number | null;
  allowedDigest: string | null;
  isRejected: boolean;
  facts: GateFacts;
}

/** The facts that a plan of a stream goes by, as they were before the plan began to read the mirror. */
export interface StreamStanding {
  /** By the database's clock, as text at full precision. */
  at: string;
  /** Why it is frozen; null: it is not. */
  frozen: string | null;
  /** The mirror is another database than the one that was synced; null: as before, or a whole plan has passed since. */
  mirrorChange: { at: string; why: string } | null;
  gates: PlanGate[];
  /** Refusals of the service since the last whole plan; null: there were none. */
  refusals: Refusals | null;
  /** Something is wrong with the stream, as a part of it was read last. */
  hasProblem: boolean;
  /** Keys that exceptions leave as they are. */
  excepted: string[];
}

export async function readStanding(db: Queries, stream: string): Promise<StreamStanding> {
  const [standing] = await query<StreamStanding>(db)`
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
  if (!standing) throw new Error('a statement of the state answered no row');
  return standing;
}

/** The streams that the state knows. */
export async function listStreams(db: Queries): Promise<StreamFacts[]> {
  return query<StreamFacts>(db)`
    SELECT stream, fingerprint, planned_at AS "plannedAt", synced_at AS "syncedAt", due_since AS "dueSince",
      due_reason AS "dueReason", attempted_at AS "attemptedAt", problem, cursor, cursor_key AS "cursorKey",
      cursor_column AS "cursorColumn", cursor_type AS "cursorType", cursor_moved_at AS "cursorMovedAt",
      mirror_passed_at AS "mirrorPassedAt", answered, refused, refused_code AS "refusedCode",
      refused_message AS "refusedMessage", refusals_allowed AS "refusalsAllowed"
    FROM slotsync.streams ORDER BY stream`;
}

/** Streams are due for a whole sync from now on. One that is due already stays so for its first reason, unless the new one replaces it. */
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

/** Notes streams that were never planned whole: they are due. */
export async function registerStreams(db: Queries, names: readonly string[]): Promise<void> {
  await query(db)`
    INSERT INTO slotsync.streams AS s (stream, due_since, due_reason)
    SELECT name, now(), 'new' FROM unnest(${arrayLiteral(names)}::text[]) AS name
    ON CONFLICT (stream) DO UPDATE SET due_since = now(), due_reason = 'new'
      WHERE s.planned_at IS NULL AND s.due_since IS NULL`;
}

/** Rows that are gone are collected for this long before a whole sync is begun for them. */
const GONE_COLLECTED = sql`interval '5 minutes'`;
/** A stream whose whole sync has not come to the end of its plan is tried again after so long. */
const TRIED_AGAIN_AFTER = sql`interval '1 hour'`;

/**
 * The streams, of these, for which a worker begins a whole sync now. One that is frozen waits for the end of the freeze, and one
 * whose run an operator has cancelled for its schedule or a command.
 */
export async function listStartable(db: Queries, names: readonly string[]): Promise<string[]> {
  const rows = await query<{ stream: string }>(db)`
    SELECT stream FROM slotsync.streams AS s
    WHERE due_since IS NOT NULL AND stream = ${anyOf(names)} AND due_reason <> 'cancelled'
      AND (due_reason <> 'rows_gone' OR due_since < now() - ${GONE_COLLECTED})
      AND coalesce(attempted_at < due_since OR attempted_at < now() - ${TRIED_AGAIN_AFTER}, true)
      AND NOT ${isFrozen(sql`s.stream`)}
    ORDER BY stream`;
  return rows.map(({ stream }) => stream);
}

/** The end of a whole plan of a stream. */
export interface WholePlan {
  stream: string;
  fingerprint: string;
  /** When it began to read. The stream stays due for what came later. */
  begunAt: string;
  /** It was allowed to send: the stream is not due any more. */
  maySend: boolean;
  /** When it began, if it held nothing although the mirror is another database than before. */
  passedAt: string | null;
  /** Refusals that an approval allows. */
  refusalsAllowed: number;
}

/** Notes whole plans. What the service refused is counted anew from here on. Call it in the transaction that ends the plans. */
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

/** Notes that whole syncs of these streams begin. */
export async function noteAttempted(tx: Queries, names: readonly string[]): Promise<void> {
  await query(tx)`
    INSERT INTO slotsync.streams (stream, attempted_at) SELECT name, now() FROM unnest(${arrayLiteral(names)}::text[]) AS name
    ON CONFLICT (stream) DO UPDATE SET attempted_at = now()`;
}

/** Notes what is wrong with streams, and since when: a problem with the same code keeps its time. */
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

/** The end of the problems that a part of a stream had: another part of it was read. */
export async function endPartialProblems(db: Queries, names: readonly string[]): Promise<void> {
  await query(db)`
    UPDATE slotsync.streams SET problem = NULL
    WHERE stream = ${anyOf(names)} AND NOT coalesce((problem->>'isWhole')::boolean, true)`;
}

/** Notes the end of whole syncs: of streams without a failed record, and those of them that sent everything. */
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

/** When all of these streams were last synced whole; null: one of them never was. */
export async function readWholeSuccess(db: Queries, names: readonly string[]): Promise<Date | null> {
  const [row] = await query<{ at: Date | null }>(db)`
    SELECT CASE WHEN count(s.synced_at) = count(*) THEN min(s.synced_at) END AS at
    FROM unnest(${arrayLiteral(names)}::text[]) AS name LEFT JOIN slotsync.streams AS s ON s.stream = name`;
  return row?.at ?? null;
}

/** The refusals of a stream's records since its last whole plan. */
export interface Refusals {
  answered: number;
  refused: number;
  code: string;
  message: string;
  /** Refusals that an approval allows. */
  allowed: number;
}

/** The statement that counts answers without a refusal. The last of its transaction: all batches of a stream lock this row. */
export const countingAnswered = (stream: string, answered: number): SQL => sql`
  UPDATE slotsync.streams SET answered = answered + ${answered}::int WHERE stream = ${stream}`;

/** Counts an answer with refusals in it, and returns what there was in all since the last whole plan. */
export async function noteRefusals(
  db: Queries,
  stream: string,
  answer: { answered: number; refused: number; code: string; message: string },
): Promise<Refusals> {
  const [counted] = await query<Refusals>(db)`
    INSERT INTO slotsync.streams AS s (stream, answered, refused, refused_code, refused_message)
    VALUES (${stream}, ${answer.answered}::int, ${answer.refused}::int, ${answer.code}, ${answer.message})
    ON CONFLICT (stream) DO UPDATE SET answered = s.answered + excluded.answered, refused = s.refused + excluded.refused,
      refused_code = excluded.refused_code, refused_message = excluded.refused_message
    RETURNING answered, refused, refused_code AS code, refused_message AS message, refusals_allowed AS allowed`;
  if (!counted) throw new Error('a statement of the state answered no row');
  return counted;
}
