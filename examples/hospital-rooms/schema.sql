-- Rooms, equipment and staff of a hospital, and what is booked. Load it into an empty database:
--   createdb hospital && psql -d hospital -f examples/hospital-rooms/schema.sql
CREATE SCHEMA hospital;

CREATE TABLE hospital.wards (
  ward_code text PRIMARY KEY,
  name text NOT NULL,
  floor integer NOT NULL,
  part_of text REFERENCES hospital.wards
);
INSERT INTO hospital.wards VALUES
  ('CARD', 'Cardiology', 3, NULL), ('ORTH', 'Orthopaedics', 2, 'SURG'), ('RAD', 'Radiology', 0, NULL), ('SURG', 'Surgery', 1, NULL);

-- Numbers repeat: there is a room 1 on every ward.
CREATE TABLE hospital.rooms (
  ward_code text NOT NULL,
  room_no integer NOT NULL,
  name text NOT NULL,
  purpose text NOT NULL,
  places integer,
  changed_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (ward_code, room_no)
);
INSERT INTO hospital.rooms (ward_code, room_no, name, purpose, places) VALUES
  ('CARD', 1, 'Examination 1', 'examination', 1), ('CARD', 2, 'Examination 2', 'examination', 1),
  ('CARD', 3, 'Conference', 'meeting', 14),
  ('ORTH', 1, 'Plaster room', 'treatment', 1), ('ORTH', 2, 'Consultation', 'examination', 2),
  ('RAD', 1, 'X-ray', 'imaging', 1), ('RAD', 2, 'Ultrasound', 'imaging', 1),
  ('SURG', 1, 'Theatre 1', 'theatre', 1), ('SURG', 2, 'Theatre 2', 'theatre', 1), ('SURG', 3, 'Recovery', 'treatment', 6);

CREATE TABLE hospital.staff (
  employee_no text PRIMARY KEY,
  given_name text NOT NULL,
  family_name text NOT NULL,
  role_code text NOT NULL,
  ward_code text,
  is_employed boolean NOT NULL
);
INSERT INTO hospital.staff VALUES
  ('E-0101', 'Nadia', 'Rahimi', 'CON', 'CARD', true),
  ('E-0102', 'Tomás', 'Herrera', 'CON', 'ORTH', true),
  ('E-0103', 'Siobhán', 'Ní Bhriain', 'SUR', 'SURG', true),
  ('E-0104', 'Jonas', 'Lindqvist', 'NUR', 'SURG', true),
  ('E-0105', 'Wei', 'Zhang', 'RGR', 'RAD', true),
  ('E-0106', 'Amara', 'Okafor', 'NUR', NULL, true),
  ('E-0107', 'Otto', 'Brandt', 'CON', 'CARD', false);

-- `ward_code` and `room_no` are null for what is carried from room to room.
CREATE TABLE hospital.equipment (
  serial uuid PRIMARY KEY,
  label text NOT NULL,
  kind text NOT NULL,
  ward_code text,
  room_no integer,
  changed_at timestamptz NOT NULL DEFAULT now()
);
INSERT INTO hospital.equipment (serial, label, kind, ward_code, room_no) VALUES
  ('6f1f2a60-31a6-4c36-9c0e-5c7d0a1f0001', 'Ultrasound A', 'ultrasound', 'RAD', 2),
  ('6f1f2a60-31a6-4c36-9c0e-5c7d0a1f0002', 'Ultrasound B', 'ultrasound', NULL, NULL),
  ('6f1f2a60-31a6-4c36-9c0e-5c7d0a1f0003', 'ECG 1', 'ecg', 'CARD', 1),
  ('6f1f2a60-31a6-4c36-9c0e-5c7d0a1f0004', 'C-arm', 'x-ray', NULL, NULL),
  ('6f1f2a60-31a6-4c36-9c0e-5c7d0a1f0005', 'Projector', 'projector', 'CARD', 3);

-- The patient is known to the booking system alone: see the query in sync.config.ts.
CREATE TABLE hospital.room_bookings (
  id uuid PRIMARY KEY,
  ward_code text NOT NULL,
  room_no integer NOT NULL,
  staff text[] NOT NULL,
  equipment uuid[] NOT NULL,
  starts_at timestamptz NOT NULL,
  ends_at timestamptz NOT NULL,
  state text NOT NULL CHECK (state IN ('requested', 'confirmed', 'cancelled')),
  patient text
);
CREATE INDEX ON hospital.room_bookings (starts_at);
INSERT INTO hospital.room_bookings
SELECT
  ('00000000-0000-4000-8000-' || to_char(n, 'FM000000000000'))::uuid, ward_code, room_no, staff, equipment,
  date_trunc('hour', now()) + n * interval '5 hours', date_trunc('hour', now()) + n * interval '5 hours' + interval '45 minutes',
  CASE n % 7 WHEN 5 THEN 'cancelled' WHEN 6 THEN 'requested' ELSE 'confirmed' END,
  'patient ' || n
FROM generate_series(1, 21) AS n
JOIN (VALUES
  (0, 'SURG', 1, '{E-0103,E-0104}'::text[], '{6f1f2a60-31a6-4c36-9c0e-5c7d0a1f0004}'::uuid[]),
  (1, 'CARD', 1, '{E-0101}', '{}'),
  (2, 'RAD', 2, '{E-0105}', '{6f1f2a60-31a6-4c36-9c0e-5c7d0a1f0001}'),
  (3, 'CARD', 3, '{E-0101,E-0102,E-0103}', '{6f1f2a60-31a6-4c36-9c0e-5c7d0a1f0005}')
) AS plan (at, ward_code, room_no, staff, equipment) ON at = n % 4;

-- A rule, and not a row for each time: the query in sync.config.ts makes the bookings of it.
CREATE TABLE hospital.weekly_meetings (
  id integer PRIMARY KEY,
  ward_code text NOT NULL,
  room_no integer NOT NULL,
  first_date date NOT NULL,
  last_date date NOT NULL,
  begins_at time NOT NULL,
  ends_at time NOT NULL
);
INSERT INTO hospital.weekly_meetings
VALUES (1, 'CARD', 3, current_date + 1, current_date + 22, '13:15', '14:00');
