-- A small university, as its systems deliver it to the mirror. Load it into an empty database:
--   createdb university && psql -d university -f examples/university/schema.sql
CREATE SCHEMA campus;

CREATE TABLE campus.room_kinds (code text PRIMARY KEY, label text NOT NULL);
INSERT INTO campus.room_kinds VALUES
  ('LH', 'Lecture hall'), ('SR', 'Seminar room'), ('LAB', 'Laboratory'), ('PC', 'Computer room');

CREATE TABLE campus.rooms (
  room_code text PRIMARY KEY,
  name text NOT NULL,
  building text NOT NULL,
  seats integer,
  kind text NOT NULL,
  updated_at timestamptz NOT NULL DEFAULT now()
);
INSERT INTO campus.rooms (room_code, name, building, seats, kind) VALUES
  ('A1', 'Great Hall', 'Old Building', 240, 'LH'),
  ('A2', 'Small Hall', 'Old Building', 80, 'LH'),
  ('A301', 'Seminar Room 301', 'Old Building', 24, 'SR'),
  ('A302', 'Seminar Room 302', 'Old Building', 24, 'SR'),
  ('C110', 'Wet Laboratory', 'Chemistry', 18, 'LAB'),
  ('C111', 'Dry Laboratory', 'Chemistry', NULL, 'LAB'),
  ('L01', 'Computer Room East', 'Library', 32, 'PC'),
  ('L02', 'Computer Room West', 'Library', 28, 'PC');

CREATE TABLE campus.teachers (
  staff_no integer PRIMARY KEY,
  given_name text NOT NULL,
  family_name text NOT NULL,
  email text,
  left_on date,
  updated_at timestamptz NOT NULL DEFAULT now()
);
INSERT INTO campus.teachers (staff_no, given_name, family_name, email, left_on) VALUES
  (2001, 'Åsa', 'Öberg', 'aob@university.example', NULL),
  (2002, 'Mikołaj', 'Zięba', 'mzi@university.example', NULL),
  (2003, 'Ελένη', 'Παππά', NULL, NULL),
  (2004, 'Hugo', 'Marchetti', 'hma@university.example', NULL),
  (2005, '明', '林', 'lin@university.example', NULL),
  (2006, 'Ingrid', 'Falk', 'ifa@university.example', date '2019-06-30');

CREATE TABLE campus.courses (
  course_code text PRIMARY KEY,
  title text NOT NULL,
  credits numeric(4, 1) NOT NULL,
  language text NOT NULL,
  updated_at timestamptz NOT NULL DEFAULT now()
);
INSERT INTO campus.courses (course_code, title, credits, language) VALUES
  ('MA101', 'Linear Algebra', 7.5, 'en'),
  ('MA205', 'Probability', 7.5, 'en'),
  ('CH110', 'Allmän kemi', 15, 'sv'),
  ('CH240', 'Analytische Chemie', 10, 'de'),
  ('CS100', 'Programming', 7.5, 'en'),
  ('CS310', 'Databases', 7.5, 'xx');

-- A course in one term. What the timetable is about, and what a lesson books.
CREATE TABLE campus.offerings (
  course_code text NOT NULL,
  term text NOT NULL,
  students integer,
  teachers integer[] NOT NULL,
  updated_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (course_code, term)
);
INSERT INTO campus.offerings (course_code, term, students, teachers) VALUES
  ('MA101', 'autumn', 180, '{2001,2003}'),
  ('MA101', 'spring', 60, '{2003}'),
  ('MA205', 'spring', 45, '{2001}'),
  ('CH110', 'autumn', 36, '{2002,2004}'),
  ('CH240', 'spring', NULL, '{2004}'),
  ('CS100', 'autumn', 120, '{2005}'),
  ('CS310', 'spring', 50, '{}');

-- Times without a zone: the wall clock of the university. `cancelled_at`: null while the lesson takes place.
CREATE TABLE campus.lessons (
  id integer PRIMARY KEY,
  course_code text NOT NULL,
  term text NOT NULL,
  room_code text NOT NULL,
  starts_at timestamp NOT NULL,
  ends_at timestamp NOT NULL,
  cancelled_at timestamptz
);
CREATE INDEX ON campus.lessons (starts_at);
INSERT INTO campus.lessons (id, course_code, term, room_code, starts_at, ends_at, cancelled_at)
SELECT
  n, course_code, term, room_code,
  current_date + n + time '09:15',
  current_date + n + time '11:00',
  CASE WHEN n = 12 THEN now() END
FROM generate_series(1, 24) AS n
JOIN (VALUES
  (0, 'MA101', 'autumn', 'A1'), (1, 'CS100', 'autumn', 'L01'), (2, 'CH110', 'autumn', 'C110'),
  (3, 'MA101', 'autumn', 'A301'), (4, 'CS100', 'autumn', 'L02'), (5, 'CH110', 'autumn', 'A2')
) AS timetable (at, course_code, term, room_code) ON at = n % 6;
