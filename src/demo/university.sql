-- The sample university as a mirror. It has no foreign keys, because a mirror takes what the source systems deliver.
-- Most rows are valid; each of the six rows at the end shows a typical fault of real data.
-- The caller seeds random() and sets campus.today. The same seed and day make the same rows.
CREATE SCHEMA campus;
SET LOCAL search_path TO campus;

CREATE FUNCTION today() RETURNS date RETURN current_setting('campus.today')::date;
CREATE FUNCTION number(low integer, high integer) RETURNS integer RETURN low + floor(random() * (high - low + 1));
CREATE FUNCTION pick(list text[]) RETURNS text RETURN list[number(1, cardinality(list))];
CREATE FUNCTION maybe(probability float, value anyelement) RETURNS anyelement LANGUAGE sql
  AS 'SELECT CASE WHEN random() < probability THEN value END';
-- Returns a time in the year before today, with microseconds, which a JavaScript Date cannot hold.
CREATE FUNCTION past_time() RETURNS timestamptz RETURN today() - random() * interval '365 days';

CREATE TEMP TABLE subjects (code, name, english) ON COMMIT DROP AS VALUES
  ('ALG', 'algebra', 'Algebra'), ('AST', 'astronomi', 'Astronomy'), ('BIO', 'biologi', 'Biology'),
  ('DAT', 'datavetenskap', 'Computer Science'), ('ENG', 'engelska', 'English'), ('FIL', 'filosofi', 'Philosophy'),
  ('FYS', 'fysik', 'Physics'), ('GEO', 'geodesi', 'Geodesy'), ('GRE', 'nygrekiska (νέα ελληνικά)', 'Modern Greek'),
  ('HIS', 'historia', 'History'), ('JAP', 'japanska (日本語)', 'Japanese'), ('JUR', 'rättsvetenskap', 'Law'),
  ('KEM', 'kemi', 'Chemistry'), ('LÄK', 'läkekonst', 'Medicine'), ('MAT', 'matematik', 'Mathematics'),
  ('MUS', 'musikvetenskap', 'Musicology'), ('PED', 'pedagogik', 'Education'), ('PSY', 'psykologi', 'Psychology'),
  ('RYS', 'ryska (русский язык)', 'Russian'), ('VÅR', 'vårdvetenskap', 'Nursing');

CREATE TEMP TABLE forms (nr, name, english, programme_code, programme) ON COMMIT DROP AS VALUES
  (0, 'Grundkurs i', 'Foundations of', 'K', 'Kandidatprogrammet i'),
  (1, 'Fortsättningskurs i', 'Further', 'M', 'Masterprogrammet i'),
  (2, 'Avancerad kurs i', 'Advanced', 'H', 'Högskoleprogrammet i'),
  (3, 'Projektkurs i', 'Project in', 'L', 'Lärarprogrammet i'),
  (4, 'Seminarium i', 'Seminar on', 'D', 'Distansprogrammet i');

CREATE TEMP TABLE names (nr, given, family) ON COMMIT DROP AS VALUES
  (0, '{Åsa,Björn,Ingegerd,Örjan,Märta}'::text[], '{Åkesson,Öberg,Sjöström,von Essen}'::text[]),
  (1, '{Ελένη,Γιώργος,Σοφία}', '{Παπαδοπούλου,Οικονόμου,Νικολάου}'),
  (2, '{Łukasz,Święta,Ngọc,Thị Hương}', '{Wiśniewski,Żółtowska,Nguyễn,Đặng}'),
  (3, '{Siân,Owen,D''Arcy}', '{O''Brien,ap Rhys,Smith-Jones}'),
  (4, '{Наталія,Олексій,Дмитрий}', '{Шевченко,Коваленко,Иванова}'),
  (5, '{伟,秀英,さくら}', '{王,欧阳,髙橋}'),
  (6, '{فاطمة,يوسف,ليلى}', '{حداد,الخوري,منصور}');

CREATE TABLE buildings AS
SELECT
  building_code, name, "nameEn",
  pick('{Centrum,Norr,Ön}') AS campus,
  past_time() AS updated_at
FROM (VALUES
  ('A', 'Ångströmhuset', 'The Ångström Building'), ('B', 'Biblioteket', 'The Library'),
  ('C', 'Celsiushallen', 'Celsius Hall'), ('E', 'Ekonomikum', NULL), ('F', 'Fysiken', 'Physics'),
  ('H', 'Höghuset', 'The Tower'), ('K', 'Kemihuset', 'Chemistry'), ('M', 'Λύκειον', 'The Lyceum'),
  ('N', 'Norra salarna', 'North Halls'), ('P', 'Pedagogen', NULL), ('V', 'Västra flygeln', 'West Wing'),
  ('Ö', 'Östra flygeln', 'East Wing')
) AS named (building_code, name, "nameEn");

CREATE TABLE rooms AS
SELECT
  room_code, building_code, floor,
  coalesce(maybe(0.2, pick('{Linné,Hypatia,Noether,Πλάτων,Ada,Ørsted}') || ' (' || room_code || ')'), room_code) AS name,
  maybe(0.95, number(8, 320)) AS seats,
  ('{projector,whiteboard,hörslinga,piano,fume cupboard,video link}'::text[])[number(1, 4):number(1, 6)] AS equipment,
  maybe(0.95, random() < 0.8) AS "wheelchairAccess",
  past_time() AS updated_at
FROM generate_series(0, 399) AS n
CROSS JOIN LATERAL (SELECT substr('ABCEFHKMNPVÖ', n % 12 + 1, 1), n / 144 + 1) AS place (building_code, floor)
CROSS JOIN LATERAL (SELECT building_code || floor || to_char(n / 12 % 12 + 1, 'FM00')) AS coded (room_code);

CREATE TABLE staff AS
SELECT
  id,
  'S' || id AS staff_number,
  pick(given) AS given_name,
  pick(family) AS family_name,
  pick('{adjunkt,lektor,docent,professor,forskare,NULL}') AS title,
  maybe(0.95, 's' || id || '@campus.example') AS email,
  pick((SELECT array_agg(name) FROM subjects)) AS department,
  date '1985-01-01' + number(0, 14000) AS hired_on,
  maybe(0.03, today() - number(1, 365)) AS left_on,
  past_time() AS updated_at
FROM generate_series(1001, 1800) AS id
JOIN names ON nr = id % 7;

CREATE TABLE courses AS
SELECT
  code || n AS course_code,
  forms.name || ' ' || subjects.name || ' ' || n AS name,
  maybe(0.9, forms.english || ' ' || subjects.english || ' ' || n) AS "nameEn",
  pick('{5,7.5,10,15,30}') AS credits,
  starts_on,
  starts_on + 140 AS ends_on,
  maybe(0.9, pick((SELECT array_agg(id::text) FROM staff WHERE left_on IS NULL))::integer) AS responsible,
  maybe(0.85, pick((SELECT array_agg(room_code) FROM rooms))) AS home_room,
  random() < 0.6 AS is_open,
  past_time() AS updated_at
FROM subjects
CROSS JOIN generate_series(101, 160) AS n
JOIN forms ON nr = n % 5
CROSS JOIN LATERAL (SELECT date_trunc('year', today())::date + 14 + n % 2 * 225) AS term (starts_on);

CREATE TABLE student_groups AS
SELECT
  programme_code || code AS programme_code,
  year_group,
  programme || ' ' || subjects.name AS programme_name,
  maybe(0.9, number(6, 180)) AS size,
  ARRAY(
    SELECT code || n FROM generate_series(100 + year_group * 9, 99 + year_group * 9 + number(0, 4)) AS n
  ) AS course_codes,
  past_time() AS updated_at
FROM subjects
CROSS JOIN forms
CROSS JOIN generate_series(1, 6) AS year_group;

-- Bookings from five days ago to ten weeks ahead, from 8 to 18 o'clock. Two bookings may overlap in one room.
CREATE TABLE bookings AS
SELECT
  id,
  pick((SELECT array_agg(room_code) FROM rooms)) AS room_code,
  pick((SELECT array_agg(course_code) FROM courses)) AS course_code,
  starts_at,
  starts_at + pick('{45,90,105}')::integer * interval '1 minute' AS ends_at,
  id = 30 AS is_cancelled,
  past_time() AS updated_at
FROM (
  SELECT id, (today() + number(-5, 70) + number(8, 16) * interval '1 hour') AT TIME ZONE 'Europe/Stockholm'
  FROM generate_series(1, 600) AS id
) AS begun (id, starts_at);

INSERT INTO staff (id, staff_number, given_name, family_name, updated_at) VALUES
  (9001, 'S9001', NULL, NULL, past_time()), -- given up: the service requires a name
  (9002, 'S9002', 'Per', repeat('Lång-', 30), past_time()), -- given up: the name is too long for the service
  (9003, 'S9003', 'Anna', 'Ek', past_time()), -- failed, like the next row: both have one staff number
  (9004, 'S9003', 'Anna', 'Ek', past_time());
INSERT INTO courses (course_code, name, credits, home_room, updated_at) VALUES
  ('GEO404', 'Fältkurs i geodesi', '15', 'Ö404', past_time()), -- deferred: there is no such room
  ('MAT888', 'Räkna rätt', 'sju och en halv', NULL, past_time()); -- given up: the credits are not a number

ALTER TABLE buildings ADD PRIMARY KEY (building_code);
ALTER TABLE rooms ADD PRIMARY KEY (room_code);
ALTER TABLE staff ADD PRIMARY KEY (id);
ALTER TABLE courses ADD PRIMARY KEY (course_code);
ALTER TABLE student_groups ADD PRIMARY KEY (programme_code, year_group);
ALTER TABLE bookings ADD PRIMARY KEY (id);
ANALYZE buildings, rooms, staff, courses, student_groups;
DROP FUNCTION past_time, maybe, pick, number, today;
