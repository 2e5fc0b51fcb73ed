// How far changes of reservations at the service were read.
import { query, type Queries } from '../database.js';

export interface ReservationsWatermark {
  /** Unix seconds. */
  readUpTo: number;
  /** Since it was noted. */
  ageSeconds: number;
}

/** Up to when changes at the service were read completely, if ever. */
export async function readReservationsWatermark(db: Queries): Promise<ReservationsWatermark | undefined> {
  const [row] = await query<ReservationsWatermark>(db)`
    SELECT extract(epoch FROM read_up_to)::float8 AS "readUpTo",
      extract(epoch FROM now() - moved_at)::float8 AS "ageSeconds"
    FROM slotsync.reservations_watermark`;
  return row;
}

/** Notes that changes at the service were read completely up to this second. */
export async function moveReservationsWatermark(db: Queries, readUpTo: number): Promise<void> {
  await query(db)`
    INSERT INTO slotsync.reservations_watermark (read_up_to) VALUES (to_timestamp(${readUpTo}::float8))
    ON CONFLICT (single_row) DO UPDATE SET read_up_to = excluded.read_up_to, moved_at = now()`;
}
