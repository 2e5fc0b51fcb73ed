// Time up to which changes of reservations at the service were read.
import { query, type Queries } from '../database.js';

export interface ReservationsWatermark {
  /** Time in Unix seconds. */
  readUpTo: number;
  /** Seconds since this watermark was stored. */
  ageSeconds: number;
}

/** Returns the time up to which all changes at the service were read. Undefined if they were never read. */
export async function readReservationsWatermark(db: Queries): Promise<ReservationsWatermark | undefined> {
  const [row] = await query<ReservationsWatermark>(db)`
    SELECT extract(epoch FROM read_up_to)::float8 AS "readUpTo",
      extract(epoch FROM now() - moved_at)::float8 AS "ageSeconds"
    FROM slotsync.reservations_watermark`;
  return row;
}

export async function moveReservationsWatermark(db: Queries, readUpTo: number): Promise<void> {
  await query(db)`
    INSERT INTO slotsync.reservations_watermark (read_up_to) VALUES (to_timestamp(${readUpTo}::float8))
    ON CONFLICT (single_row) DO UPDATE SET read_up_to = excluded.read_up_to, moved_at = now()`;
}
