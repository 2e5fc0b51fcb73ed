// Which occurrences of a schedule were started. The timer may fire in many processes, more than once or not at all: an
// occurrence belongs to the process that moves `last_due` past it.
import { and, eq, isNull, lt, notExists, or, sql } from 'drizzle-orm';
import { alias } from 'drizzle-orm/pg-core';
import type { Schedule } from '../../cron-schedule.js';
import type { Queries } from '../database.js';
import { runs, schedules } from '../schema.js';

export type RegisteredSchedule = typeof schedules.$inferSelect;

/** Registers a schedule, or replaces it; one that is the same already keeps what it has missed. */
export async function registerSchedule(
  db: Queries,
  name: string,
  { pattern, timezone }: Schedule,
): Promise<void> {
  await db
    .insert(schedules)
    .values({ name, pattern, timezone })
    .onConflictDoUpdate({
      target: schedules.name,
      set: { pattern, timezone, registeredAt: sql`now()` },
      setWhere: sql`(${schedules.pattern}, ${schedules.timezone}) IS DISTINCT FROM (${pattern}, ${timezone})`,
    });
}

export async function removeSchedule(db: Queries, name: string): Promise<void> {
  await db.delete(schedules).where(eq(schedules.name, name));
}

export async function readSchedule(db: Queries, name: string): Promise<RegisteredSchedule | undefined> {
  const [schedule] = await db.select().from(schedules).where(eq(schedules.name, name));
  return schedule;
}

/** Claims an occurrence of a schedule, and all before it. False: another process has claimed it already. */
export async function claimOccurrence(
  db: Queries,
  { name, pattern, timezone }: RegisteredSchedule,
  due: Date,
): Promise<boolean> {
  const claimed = await db
    .update(schedules)
    .set({ lastDue: due })
    .where(
      and(
        eq(schedules.name, name),
        eq(schedules.pattern, pattern),
        eq(schedules.timezone, timezone),
        lt(schedules.registeredAt, due),
        or(isNull(schedules.lastDue), lt(schedules.lastDue, due)),
      ),
    )
    .returning({ name: schedules.name });
  return claimed.length > 0;
}

/** The reconcile after each nightly run has a row of its own, beside the nightly schedule's. */
const RECONCILE = 'reconcile';
const reconciled = alias(schedules, 'reconciled');

/**
 * The latest nightly occurrence, as text at full precision, whose bookings were not reconciled yet; undefined while its
 * run is under way, or when there is none. A paused run is not waited for.
 */
export async function readUnreconciledOccurrence(db: Queries, nightly: string): Promise<string | undefined> {
  const isUnderWay = and(eq(runs.kind, 'sync'), isNull(runs.finishedAt), isNull(runs.pausedAt));
  const [row] = await db
    .select({ due: sql<string>`${schedules.lastDue}::text` })
    .from(schedules)
    .leftJoin(reconciled, eq(reconciled.name, RECONCILE))
    .where(
      and(
        eq(schedules.name, nightly),
        sql`coalesce(${reconciled.lastDue}, '-infinity') < ${schedules.lastDue}`,
        notExists(db.select({ id: runs.id }).from(runs).where(isUnderWay)),
      ),
    );
  return row?.due;
}

/** Notes that the bookings were reconciled for this nightly occurrence. */
export async function noteReconciledOccurrence(db: Queries, nightly: string, due: string): Promise<void> {
  const schedule = await readSchedule(db, nightly);
  if (!schedule) return;
  const { pattern, timezone } = schedule;
  const row = { pattern, timezone, lastDue: sql`${due}::text::timestamptz` };
  await db
    .insert(schedules)
    .values({ name: RECONCILE, ...row })
    .onConflictDoUpdate({ target: schedules.name, set: row });
}
