// The sample university as a mirror: tables as an organization has them, good and bad rows, and the changes of a day.
import type postgres from 'postgres';
import { generateUniversity, MISSING_ROOM, type University } from './university-rows.js';

export interface LoadedUniversity {
  counts: Record<keyof University, number>;
  university: University;
}

/** A change of the mirror, and the operation that the plan proposes for it. */
export interface MirrorChange {
  stream: string;
  operation: 'create' | 'update' | 'retire';
  count: number;
  what: string;
}

// No foreign keys: a mirror stores what its source systems deliver.
const SCHEMA = `
CREATE SCHEMA campus;

CREATE TABLE campus.buildings (
  building_code text PRIMARY KEY,
  name text NOT NULL,
  "nameEn" text,
  street text,
  campus text,
  floors integer,
  opened_on date,
  has_lift boolean NOT NULL,
  updated_at timestamptz NOT NULL
);

CREATE TABLE campus.rooms (
  room_code text PRIMARY KEY,
  building_code text NOT NULL,
  name text NOT NULL,
  floor integer NOT NULL,
  seats integer,
  equipment text[] NOT NULL,
  "wheelchairAccess" boolean,
  note text,
  updated_at timestamptz NOT NULL
);

CREATE TABLE campus.staff (
  id integer PRIMARY KEY,
  staff_number text NOT NULL,
  given_name text,
  family_name text,
  title text,
  email text,
  department text NOT NULL,
  is_teaching boolean NOT NULL,
  hired_on date NOT NULL,
  left_on date,
  updated_at timestamptz NOT NULL
);

CREATE TABLE campus.courses (
  course_code text PRIMARY KEY,
  name text NOT NULL,
  "nameEn" text,
  credits text,
  level text,
  language text,
  starts_on date,
  ends_on date,
  responsible integer,
  home_room text,
  is_open boolean NOT NULL,
  updated_at timestamptz NOT NULL
);

CREATE TABLE campus.student_groups (
  programme_code text,
  year_group integer,
  programme_name text NOT NULL,
  size integer,
  is_distance boolean NOT NULL,
  course_codes text[] NOT NULL,
  updated_at timestamptz NOT NULL,
  PRIMARY KEY (programme_code, year_group)
);

CREATE TABLE campus.bookings (
  id integer PRIMARY KEY,
  room_code text NOT NULL,
  course_code text NOT NULL,
  starts_at timestamptz NOT NULL,
  ends_at timestamptz NOT NULL,
  is_cancelled boolean NOT NULL,
  updated_at timestamptz NOT NULL
);
`;

const INDEXES = `
CREATE INDEX ON campus.rooms (updated_at);
CREATE INDEX ON campus.staff (updated_at);
CREATE INDEX ON campus.courses (updated_at);
CREATE INDEX ON campus.student_groups (updated_at);
CREATE INDEX ON campus.bookings (starts_at);
`;

/**
 * Creates the schema `campus` and fills it, in one transaction. Fails when the schema exists: its data may be needed.
 * Returns the rows, and how many of each.
 */
export async function loadUniversity(
  sql: postgres.Sql,
  { seed, now = new Date() }: { seed: number; now?: Date },
): Promise<LoadedUniversity> {
  const university = generateUniversity({ seed, now });
  await sql.begin(async (transaction) => {
    await transaction.unsafe(SCHEMA);
    for (const [table, rows] of Object.entries(university)) {
      await transaction`
        INSERT INTO campus.${transaction(table)}
        SELECT * FROM jsonb_populate_recordset(NULL::campus.${transaction(table)}, ${JSON.stringify(rows)}::text::jsonb)`;
    }
    await transaction.unsafe(INDEXES);
  });
  await sql.unsafe(
    'ANALYZE campus.buildings, campus.rooms, campus.staff, campus.courses, campus.student_groups',
  );

  const counts = Object.fromEntries(Object.entries(university).map(([table, rows]) => [table, rows.length]));
  return { counts: counts as LoadedUniversity['counts'], university };
}

/** The changes of an ordinary day: updates, new rows, one row less, and two bad rows corrected. Once for each load. */
export async function changeUniversity(sql: postgres.Sql): Promise<MirrorChange[]> {
  return sql.begin(async (transaction) => {
    const changes: MirrorChange[] = [];
    const record = (stream: string, operation: MirrorChange['operation'], count: number, what: string) =>
      changes.push({ stream, operation, count, what });

    const larger = await transaction`
      UPDATE campus.rooms SET seats = coalesce(seats, 0) + 2, updated_at = now()
      WHERE room_code IN (SELECT room_code FROM campus.rooms ORDER BY room_code COLLATE "C" LIMIT 5)`;
    record('rooms', 'update', larger.count, 'rooms got two more seats');

    const promoted = await transaction`
      UPDATE campus.staff SET title = 'överlärare', updated_at = now()
      WHERE id IN (SELECT id FROM campus.staff WHERE left_on IS NULL AND id < 9000 ORDER BY id LIMIT 3)`;
    record('staff', 'update', promoted.count, 'people got a new title');

    const moved = await transaction`
      UPDATE campus.courses SET home_room = 'A101', updated_at = now()
      WHERE course_code IN (
        SELECT course_code FROM campus.courses WHERE home_room <> 'A101' AND course_code LIKE 'FYS%'
        ORDER BY course_code COLLATE "C" LIMIT 2)`;
    record('courses', 'update', moved.count, 'courses moved to room A101');

    const built = await transaction`
      INSERT INTO campus.rooms (room_code, building_code, name, floor, seats, equipment, "wheelchairAccess", updated_at)
      VALUES (${MISSING_ROOM}, 'Ö', 'Vindsateljén', 4, 24, '{whiteboard}', false, now())`;
    record('rooms', 'create', built.count, `room ${MISSING_ROOM} was built`);
    record('courses', 'create', 1, `course GEO404 waited for room ${MISSING_ROOM} and is sent now`);

    const named = await transaction`
      UPDATE campus.staff SET given_name = 'Åke', family_name = 'Namn', updated_at = now()
      WHERE id = 9001 AND family_name IS NULL`;
    record('staff', 'create', named.count, 'the person without a name got one');

    const opened = await transaction`
      INSERT INTO campus.courses (course_code, name, "nameEn", credits, level, language, home_room, is_open, updated_at)
      VALUES ('AST900', 'Norrsken – en introduktion', 'Northern Lights', '7.5', 'G1', 'sv', ${MISSING_ROOM}, true, now())`;
    record('courses', 'create', opened.count, 'course was opened, in the new room');

    // A person whom no course names as responsible: that would be another change.
    const left = await transaction`
      UPDATE campus.staff SET left_on = current_date, updated_at = now()
      WHERE id = (
        SELECT id FROM campus.staff s WHERE left_on IS NULL AND id < 9000
          AND NOT EXISTS (SELECT FROM campus.courses c WHERE c.responsible = s.id)
        ORDER BY id DESC LIMIT 1)`;
    record('staff', 'retire', left.count, 'person left');
    return changes;
  });
}
