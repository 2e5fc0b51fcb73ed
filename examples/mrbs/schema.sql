-- The part of MRBS (Meeting Room Booking System) that matters here, with the columns of its PostgreSQL schema that are
-- read, and a few rows. Load it into an empty database:
--   createdb mrbs && psql -d mrbs -f examples/mrbs/schema.sql
CREATE TABLE mrbs_area (
  id serial PRIMARY KEY,
  disabled smallint NOT NULL DEFAULT 0,
  area_name varchar(30) NOT NULL,
  timezone varchar(50)
);
INSERT INTO mrbs_area (disabled, area_name, timezone) VALUES
  (0, 'Main building', 'Europe/London'), (0, 'Annexe', 'Europe/London'), (1, 'Closed wing', 'Europe/London');

CREATE TABLE mrbs_room (
  id serial PRIMARY KEY,
  disabled smallint NOT NULL DEFAULT 0,
  area_id integer NOT NULL REFERENCES mrbs_area (id),
  room_name varchar(25) NOT NULL,
  description varchar(60),
  capacity integer NOT NULL DEFAULT 0
);
INSERT INTO mrbs_room (disabled, area_id, room_name, description, capacity) VALUES
  (0, 1, 'Board room', 'First floor, screen', 16), (0, 1, 'Room 12', '', 6), (0, 1, 'Room 14', 'No window', 0),
  (0, 2, 'Workshop', 'Ground floor', 20), (1, 2, 'Store', NULL, 0), (0, 3, 'Room 90', NULL, 8);

-- Times are Unix seconds. `status` is a set of bits: 1 private, 2 awaiting approval, 4 tentative. A deleted booking leaves
-- no row.
CREATE TABLE mrbs_entry (
  id serial PRIMARY KEY,
  start_time integer NOT NULL,
  end_time integer NOT NULL,
  repeat_id integer,
  room_id integer NOT NULL REFERENCES mrbs_room (id),
  create_by varchar(80) NOT NULL,
  name varchar(80) NOT NULL,
  type char NOT NULL DEFAULT 'I',
  status smallint NOT NULL DEFAULT 0
);
CREATE INDEX ON mrbs_entry (start_time);
INSERT INTO mrbs_entry (start_time, end_time, room_id, create_by, name, status)
SELECT
  begins, begins + 3600 * (1 + n % 2), 1 + n % 3, 'user' || n % 3,
  (ARRAY['Team meeting', 'Interview', 'Réunion', 'Staff appraisal'])[1 + n % 4],
  CASE n WHEN 4 THEN 2 WHEN 7 THEN 1 WHEN 9 THEN 4 ELSE 0 END
FROM generate_series(1, 18) AS n
CROSS JOIN LATERAL (SELECT extract(epoch FROM date_trunc('day', now()))::integer + n * 86400 + 9 * 3600) AS day (begins);
