// The sample university: its mirror database, and the reservations that the service has for its bookings.
import type postgres from 'postgres';
import type { ReservationInput } from '../sandbox/reservations.js';

/**
 * Creates and fills the schema `campus` in one transaction. The same seed makes the same rows on the same day. Fails if
 * the schema exists, because its data may be needed.
 */
export async function loadUniversity(
  sql: postgres.Sql,
  { seed, now = new Date() }: { seed: number; now?: Date },
): Promise<void> {
  const today = now.toISOString().slice(0, 10);
  await sql.begin(async (transaction) => {
    await transaction`SELECT setseed(${1 / (seed + 1)}), set_config('campus.today', ${today}, true)`;
    await transaction.file(new URL('./university.sql', import.meta.url));
  });
}

/** Ids of the bookings that differ from the service's reservations, by kind of difference. */
export const DIFFERING_BOOKINGS = {
  movedThere: [5, 6, 7],
  otherRoomThere: [8],
  missingThere: [12, 13],
  cancelledThere: [20, 21],
  cancelledHere: [30],
} as const;

/**
 * Returns the service's reservations for the loaded bookings, with the differences of DIFFERING_BOOKINGS and one extra.
 * Add all in `add` first, then cancel those in `cancel`.
 */
export async function generateReservations(sql: postgres.Sql) {
  const { movedThere, otherRoomThere, missingThere, cancelledThere } = DIFFERING_BOOKINGS;
  const add = await sql<ReservationInput[]>`
    SELECT 'res_' || id AS "extId",
      extract(epoch FROM starts_at + delay)::float AS begin, extract(epoch FROM ends_at + delay)::float AS end,
      jsonb_build_array(
        jsonb_build_object('typeId', 'room', 'objectId', 'room_' || room),
        jsonb_build_object('typeId', 'course', 'objectId', 'course_' || course_code)) AS objects
    FROM campus.bookings CROSS JOIN LATERAL (SELECT
      CASE WHEN id IN ${sql(movedThere)} THEN interval '1 hour' ELSE '0' END,
      CASE WHEN id NOT IN ${sql(otherRoomThere)} THEN room_code WHEN room_code = 'A101' THEN 'A102' ELSE 'A101' END
    ) AS service (delay, room)
    WHERE id NOT IN ${sql(missingThere)} ORDER BY id`;
  for (const reservation of add.slice(0, 1)) add.push({ ...reservation, extId: 'made_by_hand_1' });
  return { add, cancel: cancelledThere.map((id) => `res_${id}`) };
}
