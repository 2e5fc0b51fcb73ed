// The sample university as a mirror, the changes of a day, and the service's reservations for its bookings.
import type postgres from 'postgres';
import type { ReservationInput } from '../sandbox/reservation-store.js';

/** A change of the mirror, and the operation that the plan proposes for it. */
export interface MirrorChange {
  stream: string;
  operation: 'create' | 'update' | 'retire';
  count: number;
  what: string;
}

/**
 * Creates the schema `campus` and fills it, in one transaction. The same seed gives the same rows on the same day.
 * Fails when the schema exists: its data may be needed. Returns how many rows each table has.
 */
export async function loadUniversity(
  sql: postgres.Sql,
  { seed, now = new Date() }: { seed: number; now?: Date },
): Promise<Record<string, number>> {
  const today = now.toISOString().slice(0, 10);
  return sql.begin(async (transaction) => {
    await transaction`SELECT setseed(${1 / (seed + 1)}), set_config('campus.today', ${today}, true)`;
    await transaction.file(new URL('./university.sql', import.meta.url));
    const counts: Record<string, number> = {};
    for (const table of ['buildings', 'rooms', 'staff', 'courses', 'student_groups', 'bookings']) {
      const rows = await transaction`SELECT count(*)::int AS count FROM campus.${transaction(table)}`;
      counts[table] = rows[0]?.['count'];
    }
    return counts;
  });
}

/** The changes of an ordinary day: updates, new rows, one row less, and two bad rows corrected. Once for each load. */
export async function changeUniversity(sql: postgres.Sql): Promise<MirrorChange[]> {
  return sql<MirrorChange[]>`
    WITH larger AS (
      UPDATE campus.rooms SET seats = coalesce(seats, 0) + 2, updated_at = now()
      WHERE room_code IN (SELECT room_code FROM campus.rooms ORDER BY room_code COLLATE "C" LIMIT 5) RETURNING 1
    ), promoted AS (
      UPDATE campus.staff SET title = 'överlärare', updated_at = now()
      WHERE id IN (SELECT id FROM campus.staff WHERE left_on IS NULL ORDER BY id LIMIT 3) RETURNING 1
    ), moved AS (
      UPDATE campus.courses SET home_room = 'A101', updated_at = now()
      WHERE course_code IN (
        SELECT course_code FROM campus.courses WHERE home_room <> 'A101' AND course_code LIKE 'FYS%'
        ORDER BY course_code COLLATE "C" LIMIT 2) RETURNING 1
    ), built AS (
      INSERT INTO campus.rooms (room_code, building_code, name, floor, seats, equipment, "wheelchairAccess", updated_at)
      VALUES ('Ö404', 'Ö', 'Vindsateljén', 4, 24, '{whiteboard}', false, now()) RETURNING 1
    ), named AS (
      UPDATE campus.staff SET given_name = 'Åke', family_name = 'Namn', updated_at = now()
      WHERE id = 9001 AND family_name IS NULL RETURNING 1
    ), opened AS (
      INSERT INTO campus.courses (course_code, name, "nameEn", credits, home_room, is_open, updated_at)
      VALUES ('AST900', 'Norrsken – en introduktion', 'Northern Lights', '7.5', 'Ö404', true, now()) RETURNING 1
    ), gone AS (
      UPDATE campus.staff SET left_on = current_date, updated_at = now()
      WHERE id = ( -- without courses: those would change too
        SELECT id FROM campus.staff s WHERE left_on IS NULL AND id < 9000
          AND NOT EXISTS (SELECT FROM campus.courses c WHERE c.responsible = s.id)
        ORDER BY id DESC LIMIT 1) RETURNING 1
    )
    SELECT stream, operation, count::int, what FROM (VALUES
      ('rooms', 'update', (SELECT count(*) FROM larger), 'rooms got two more seats'),
      ('staff', 'update', (SELECT count(*) FROM promoted), 'people got a new title'),
      ('courses', 'update', (SELECT count(*) FROM moved), 'courses moved to room A101'),
      ('rooms', 'create', (SELECT count(*) FROM built), 'room Ö404 was built'),
      ('courses', 'create', 1, 'course GEO404 waited for room Ö404 and is sent now'),
      ('staff', 'create', (SELECT count(*) FROM named), 'the person without a name got one'),
      ('courses', 'create', (SELECT count(*) FROM opened), 'course was opened, in the new room'),
      ('staff', 'retire', (SELECT count(*) FROM gone), 'person left')
    ) AS changes (stream, operation, count, what)`;
}

/** Bookings, by id, that differ from the service's reservations. */
export const DIFFERING_BOOKINGS = {
  movedThere: [5, 6, 7],
  otherRoomThere: [8],
  missingThere: [12, 13],
  cancelledThere: [20, 21],
  cancelledHere: [30],
} as const;

/**
 * The loaded bookings as the service holds them: some were moved, cancelled or left out, and one was added. Those in
 * `cancel` are added first and then cancelled.
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
  add.push(...add.slice(0, 1).map((reservation) => ({ ...reservation, extId: 'made_by_hand_1' })));
  return { add, cancel: cancelledThere.map((id) => `res_${id}`) };
}
