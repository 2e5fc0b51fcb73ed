// Which occurrences of a schedule were started. The timer may fire in many processes, more than once or not at all: an
// occurrence belongs to the process that moves `last_due` past it.
import { and, eq, isNotNull, isNull, lt, or, sql } from 'drizzle-orm';
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

/**
 * The latest occurrence, as text at full precision, after which the bookings were not reconciled yet; undefined while its
 * run is under way, or when there is none. A paused run is not waited for.
 */
export async function readUnreconciledOccurrence(db: Queries, name: string): Promise<string | undefined> {
  const isUnderWay = and(eq(runs.kind, 'sync'), isNull(runs.finishedAt), isNull(runs.pausedAt));
  if ((await db.$count(runs, isUnderWay)) > 0) return undefined;
  const { lastDue, lastReconciled } = schedules;
  const isNotReconciled = or(isNull(lastReconciled), lt(lastReconciled, lastDue));
  const [row] = await db
    .select({ due: sql<string>`${lastDue}::text` })
    .from(schedules)
    .where(and(eq(schedules.name, name), isNotNull(lastDue), isNotReconciled));
  return row?.due;
}

/** Notes that the bookings were reconciled after this occurrence. */
export async function noteReconciledOccurrence(db: Queries, name: string, due: string): Promise<void> {
  const lastReconciled = sql`${due}::text::timestamptz`;
  await db.update(schedules).set({ lastReconciled }).where(eq(schedules.name, name));
}
