// Schedules and their due times. A due time is started only once. Timers may fire in many processes, several times or
// never. The process that moves `last_due` past the due time starts the run.
import { eq, ne, sql } from 'drizzle-orm';
import { arrayLiteral } from '../text/sql-text.js';
import { NIGHTLY, type Schedule } from '../time/schedule.js';
import { query, queryCount, type Queries } from './database.js';
import { schedules } from './schema.js';

export const VERIFY = 'verify';

export type RegisteredSchedule = typeof schedules.$inferSelect;

interface NewSchedule extends Schedule {
  streams?: readonly string[];
  waitMinutes?: number;
}

/** Inserts or replaces a schedule. Missed due times remain due if the pattern and time zone are unchanged. */
export async function registerSchedule(
  db: Queries,
  name: string,
  { pattern, timezone, streams = [], waitMinutes = 0 }: NewSchedule,
): Promise<void> {
  await query(db)`
    INSERT INTO slotsync.schedules AS s (name, pattern, timezone, streams, wait_minutes)
    VALUES (${name}, ${pattern}, ${timezone}, ${arrayLiteral(streams)}::text[], ${waitMinutes}::int)
    ON CONFLICT (name) DO UPDATE SET pattern = excluded.pattern, timezone = excluded.timezone,
      streams = excluded.streams, wait_minutes = excluded.wait_minutes,
      registered_at = CASE WHEN (s.pattern, s.timezone) = (excluded.pattern, excluded.timezone)
        THEN s.registered_at ELSE now() END`;
}

export async function removeSchedule(db: Queries, name: string): Promise<void> {
  await query(db)`DELETE FROM slotsync.schedules WHERE name = ${name}`;
}

export async function keepSyncSchedules(db: Queries, names: readonly string[]): Promise<void> {
  await query(db)`
    DELETE FROM slotsync.schedules
    WHERE name <> ${VERIFY} AND NOT name = ANY (${arrayLiteral(names)}::text[])`;
}

export async function readSchedule(db: Queries, name: string): Promise<RegisteredSchedule | undefined> {
  const [schedule] = await db.select().from(schedules).where(eq(schedules.name, name));
  return schedule;
}

export async function listSyncSchedules(db: Queries): Promise<RegisteredSchedule[]> {
  return db
    .select()
    .from(schedules)
    .where(ne(schedules.name, VERIFY))
    .orderBy(sql`name <> ${NIGHTLY}`, schedules.name);
}

/** Returns those of the known streams that belong to a schedule. A schedule without names covers all streams. */
export const streamsOf = ({ streams }: Pick<RegisteredSchedule, 'streams'>, known: readonly string[]) =>
  known.filter((name) => streams.length === 0 || streams.includes(name));

/**
 * Resets stored times that are in the future because of a wrong clock. Nothing would be due before them. Returns the
 * names of the corrected schedules.
 */
export async function correctSchedules(db: Queries): Promise<string[]> {
  const corrected = await query<{ name: string }>(db)`
    UPDATE slotsync.schedules SET last_due = least(last_due, now()), registered_at = least(registered_at, now()),
      last_reconciled = least(last_reconciled, now())
    WHERE greatest(last_due, registered_at, last_reconciled) > now() + interval '1 minute' RETURNING name`;
  return corrected.map(({ name }) => name);
}

/** Claims a past due time of a schedule and all earlier ones. Returns false if another process has claimed it. */
export async function claimOccurrence(
  db: Queries,
  { name, pattern, timezone }: RegisteredSchedule,
  occurrence: Date,
): Promise<boolean> {
  const due = sql`${occurrence.toISOString()}::text::timestamptz`;
  const claimed = await queryCount(db)`
    UPDATE slotsync.schedules SET last_due = ${due}
    WHERE name = ${name} AND pattern = ${pattern} AND timezone = ${timezone}
      AND registered_at < ${due} AND coalesce(last_due, '-infinity') < ${due} AND ${due} <= now()`;
  return claimed > 0;
}

/**
 * Returns the latest due time after which the bookings were not reconciled yet, as text at full precision. Undefined if
 * there is no such time, or while its run is unfinished and not paused.
 */
export async function readUnreconciledOccurrence(db: Queries, name: string): Promise<string | undefined> {
  const [row] = await query<{ due: string }>(db)`
    SELECT last_due::text AS due FROM slotsync.schedules
    WHERE name = ${name} AND coalesce(last_reconciled, '-infinity') < last_due AND ${HAS_ENDED}`;
  return row?.due;
}

/** SQL: no sync of the schedule's streams is unfinished, except paused ones. */
const HAS_ENDED = sql`NOT EXISTS (
  SELECT FROM slotsync.runs AS r WHERE r.kind = 'sync' AND r.finished_at IS NULL AND r.paused_at IS NULL
    AND (schedules.streams = '{}' OR r.streams && schedules.streams))`;

/**
 * Returns the latest due time of the nightly schedule if its run has ended. With `isReconciled`, the bookings must also
 * have been reconciled since. Otherwise undefined.
 */
export async function readEndedNightly(
  db: Queries,
  { isReconciled }: { isReconciled: boolean },
): Promise<Date | undefined> {
  const [row] = await query<{ due: Date }>(db)`
    SELECT last_due AS due FROM slotsync.schedules
    WHERE name = ${NIGHTLY} AND last_due IS NOT NULL AND ${HAS_ENDED}
      AND (NOT ${isReconciled} OR last_reconciled >= last_due)`;
  return row?.due;
}

export async function noteReconciledOccurrence(db: Queries, name: string, due: string): Promise<void> {
  await query(db)`
    UPDATE slotsync.schedules SET last_reconciled = ${due}::text::timestamptz WHERE name = ${name}`;
}
