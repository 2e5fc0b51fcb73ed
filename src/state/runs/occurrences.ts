// What the clock starts. The alarm may ring in many processes and more than once, or not at all: a moment belongs to
// whoever moves `last_due` past it.
import { and, eq, isNull, lt, or, sql } from 'drizzle-orm';
import type { Schedule } from '../../cron-schedule.js';
import { queryState, type Queries } from '../database.js';
import { schedules } from '../schema.js';

export type RegisteredSchedule = typeof schedules.$inferSelect;

/** Registers a schedule, or replaces it; one that stands already is left as it is, with what it has missed. */
export async function registerSchedule(
  db: Queries,
  name: string,
  { pattern, timezone }: Schedule,
): Promise<void> {
  await queryState(() =>
    db
      .insert(schedules)
      .values({ name, pattern, timezone })
      .onConflictDoUpdate({
        target: schedules.name,
        set: { pattern, timezone, registeredAt: sql`now()` },
        setWhere: sql`(${schedules.pattern}, ${schedules.timezone}) IS DISTINCT FROM (${pattern}, ${timezone})`,
      }),
  );
}

export async function removeSchedule(db: Queries, name: string): Promise<void> {
  await queryState(() => db.delete(schedules).where(eq(schedules.name, name)));
}

export async function readSchedule(db: Queries, name: string): Promise<RegisteredSchedule | undefined> {
  const [schedule] = await queryState(() => db.select().from(schedules).where(eq(schedules.name, name)));
  return schedule;
}

/** Takes a moment of a schedule, and all before it. Returns whether it was still to be had: then it is the caller's. */
export async function claimOccurrence(
  db: Queries,
  { name, pattern, timezone }: RegisteredSchedule,
  due: Date,
): Promise<boolean> {
  const claimed = await queryState(() =>
    db
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
      .returning({ name: schedules.name }),
  );
  return claimed.length > 0;
}

/** The reconcile that belongs to a night, beside the night itself. */
const RECONCILE = 'reconcile';

/**
 * The latest night, as text at full precision, whose bookings were not reconciled yet; undefined while its run is under way, or when there is none.
 * A paused run is not waited for.
 */
export async function readUnreconciledOccurrence(db: Queries, nightly: string): Promise<string | undefined> {
  const [row] = await queryState(() =>
    db.execute<{ due: string }>(sql`
      SELECT n.last_due::text AS due FROM slotsync.schedules AS n
      LEFT JOIN slotsync.schedules AS r ON r.name = ${RECONCILE}
      WHERE n.name = ${nightly} AND n.last_due IS NOT NULL AND (r.last_due IS NULL OR r.last_due < n.last_due)
        AND NOT EXISTS (
          SELECT FROM slotsync.runs WHERE kind = 'sync' AND finished_at IS NULL AND paused_at IS NULL)`),
  );
  return row?.due;
}

/** Notes that the bookings were reconciled for this night. */
export async function noteReconciledOccurrence(db: Queries, nightly: string, due: string): Promise<void> {
  await queryState(() =>
    db.execute(sql`
      INSERT INTO slotsync.schedules (name, pattern, timezone, last_due)
      SELECT ${RECONCILE}, pattern, timezone, ${due}::text::timestamptz
      FROM slotsync.schedules WHERE name = ${nightly}
      ON CONFLICT (name) DO UPDATE SET
        pattern = excluded.pattern, timezone = excluded.timezone, last_due = excluded.last_due`),
  );
}
