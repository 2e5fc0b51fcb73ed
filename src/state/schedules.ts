// The table of schedules. An occurrence of a schedule starts once: the timer may fire in many processes, more than once or not at
// all, and the occurrence belongs to the process that moves `last_due` past it. The nightly runs that were started: nightly-runs.ts.
import { eq, ne, sql } from 'drizzle-orm';
import { arrayLiteral } from '../text/sql-text.js';
import { NIGHTLY, type Schedule } from '../time/schedule.js';
import { query, type Queries } from './database.js';
import { schedules } from './schema.js';

/** The name of the schedule by which workers verify, in the state. */
export const VERIFY = 'verify';

export type RegisteredSchedule = typeof schedules.$inferSelect;

interface NewSchedule extends Schedule {
  streams?: readonly string[];
  waitMinutes?: number;
}

/** Registers a schedule, or replaces it; one of the same times keeps what it has missed. */
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

/** Removes the schedules of syncs but those of these names. */
export async function keepSyncSchedules(db: Queries, names: readonly string[]): Promise<void> {
  await query(db)`
    DELETE FROM slotsync.schedules
    WHERE name <> ${VERIFY} AND NOT name = ANY (${arrayLiteral(names)}::text[])`;
}

export async function readSchedule(db: Queries, name: string): Promise<RegisteredSchedule | undefined> {
  const [schedule] = await db.select().from(schedules).where(eq(schedules.name, name));
  return schedule;
}

/** The schedules of syncs, the nightly one first. */
export async function listSyncSchedules(db: Queries): Promise<RegisteredSchedule[]> {
  return db
    .select()
    .from(schedules)
    .where(ne(schedules.name, VERIFY))
    .orderBy(sql`name <> ${NIGHTLY}`, schedules.name);
}

/** The streams of a schedule, of those that a process has. One that names none is of all of them. */
export const streamsOf = ({ streams }: Pick<RegisteredSchedule, 'streams'>, known: readonly string[]) =>
  known.filter((name) => streams.length === 0 || streams.includes(name));

/**
 * Takes back to now what a wrong clock has noted of schedules for a time that is still to come: nothing would be due before
 * it, although nothing of it was started. Returns the names of these schedules.
 */
export async function correctSchedules(db: Queries): Promise<string[]> {
  const corrected = await query<{ name: string }>(db)`
    UPDATE slotsync.schedules SET last_due = least(last_due, now()), registered_at = least(registered_at, now()),
      last_reconciled = least(last_reconciled, now())
    WHERE greatest(last_due, registered_at, last_reconciled) > now() + interval '1 minute' RETURNING name`;
  return corrected.map(({ name }) => name);
}

/** Claims an occurrence of a schedule that is over, and all before it. False: another process has claimed it already. */
export async function claimOccurrence(
  db: Queries,
  { name, pattern, timezone }: RegisteredSchedule,
  occurrence: Date,
): Promise<boolean> {
  const due = sql`${occurrence.toISOString()}::text::timestamptz`;
  const claimed = await query(db)`
    UPDATE slotsync.schedules SET last_due = ${due}
    WHERE name = ${name} AND pattern = ${pattern} AND timezone = ${timezone}
      AND registered_at < ${due} AND coalesce(last_due, '-infinity') < ${due} AND ${due} <= now()`;
  return claimed.count > 0;
}

/**
 * The latest occurrence, as text at full precision, after which the bookings were not reconciled yet; undefined while its
 * run is under way, or when there is no such occurrence. A paused run is not waited for.
 */
export async function readUnreconciledOccurrence(db: Queries, name: string): Promise<string | undefined> {
  const [row] = await query<{ due: string }>(db)`
    SELECT last_due::text AS due FROM slotsync.schedules
    WHERE name = ${name} AND coalesce(last_reconciled, '-infinity') < last_due AND ${HAS_ENDED}`;
  return row?.due;
}

/** No sync of the schedule's streams is under way, except paused ones. */
const HAS_ENDED = sql`NOT EXISTS (
  SELECT FROM slotsync.runs AS r WHERE r.kind = 'sync' AND r.finished_at IS NULL AND r.paused_at IS NULL
    AND (schedules.streams = '{}' OR r.streams && schedules.streams))`;

/**
 * The latest occurrence of the nightly schedule, when its run has ended, and the bookings were reconciled after it where that
 * is waited for. Undefined: it has not, or none was started yet.
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

/** Notes that the bookings were reconciled after this occurrence. */
export async function noteReconciledOccurrence(db: Queries, name: string, due: string): Promise<void> {
  await query(db)`
    UPDATE slotsync.schedules SET last_reconciled = ${due}::text::timestamptz WHERE name = ${name}`;
}
