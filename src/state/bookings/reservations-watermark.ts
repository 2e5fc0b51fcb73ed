// How far changes of reservations at the service were read.
import { sql } from 'drizzle-orm';
import type { Queries } from '../database.js';
import { reservationsWatermark } from '../schema.js';

export interface ReservationsWatermark {
  /** Unix seconds. */
  readUpTo: number;
  /** Since it was noted. */
  ageSeconds: number;
}

/** Up to when changes at the service were read completely, if ever. */
export async function readReservationsWatermark(db: Queries): Promise<ReservationsWatermark | undefined> {
  const { readUpTo, movedAt } = reservationsWatermark;
  const [row] = await db
    .select({
      readUpTo: sql<number>`extract(epoch FROM ${readUpTo})::float8`,
      ageSeconds: sql<number>`extract(epoch FROM now() - ${movedAt})::float8`,
    })
    .from(reservationsWatermark);
  return row;
}

/** Notes that changes at the service were read completely up to this second. */
export async function moveReservationsWatermark(db: Queries, readUpTo: number): Promise<void> {
  const moved = { readUpTo: new Date(readUpTo * 1000), movedAt: sql`now()` };
  await db
    .insert(reservationsWatermark)
    .values(moved)
    .onConflictDoUpdate({ target: reservationsWatermark.singleRow, set: moved });
}
