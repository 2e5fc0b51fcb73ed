// Rooms of a hospital: what is booked is a room, staff and equipment together, and a wrong change costs more than a question
// in the morning. So limits are narrow, and no name or number of a patient is read at all.
import { defineConfig } from 'slotsync';

export default defineConfig({
  schedule: { nightly: '15 1 * * *', timezone: 'Europe/Oslo' },
  verify: { after: 'sync' }, // every night; repairs wait for an operator
  polling: { everySeconds: 15 }, // a broken device must not be bookable for long

  lookups: { role: { file: 'roles.csv', key: 'code', value: 'name' } },

  streams: {
    wards: {
      from: 'hospital.wards',
      key: 'ward_code',
      type: 'ward',
      externalId: 'ward_{ward_code}',
      fields: { 'ward.name': 'name', 'ward.floor': 'floor' },
      references: { 'ward.partOf': { stream: 'wards', key: 'part_of' } }, // another ward, which is sent first
    },

    rooms: {
      from: 'hospital.rooms',
      key: ['ward_code', 'room_no'], // a number alone repeats on every ward
      type: 'room',
      externalId: 'room_{ward_code}_{room_no}',
      fields: { 'room.name': 'name', 'room.purpose': 'purpose', 'room.places': 'places' },
      references: { 'room.ward': { stream: 'wards', key: 'ward_code' } },
      cursor: 'changed_at',
      retire: 'deactivate',
      // More than one room retired in a run waits for approval, and so does every object that is there already and would
      // be changed.
      limits: { retire: { count: 1, percent: 0 }, overwrite: { count: 0, percent: 0 } },
    },

    staff: {
      from: { query: 'SELECT * FROM hospital.staff WHERE is_employed' },
      key: 'employee_no',
      type: 'staff',
      externalId: 'staff_{employee_no}',
      fields: {
        'staff.name': (row) => `${row.family_name}, ${row.given_name}`,
        'staff.role': { column: 'role_code', lookup: 'role' }, // a role without a line in roles.csv is refused
      },
      references: { 'staff.ward': { stream: 'wards', key: 'ward_code' } },
      retire: 'deactivate',
    },

    equipment: {
      from: 'hospital.equipment',
      key: 'serial',
      type: 'equipment',
      externalId: 'equipment_{serial}',
      fields: { 'equipment.label': 'label', 'equipment.kind': 'kind' },
      references: { 'equipment.room': { stream: 'rooms', key: ['ward_code', 'room_no'] } }, // null: in no fixed room
      cursor: 'changed_at',
      owns: 'object', // nobody edits equipment at the service, so it is written without being read first
      retire: 'deactivate',
    },
  },

  reservations: {
    // The columns that are compared, and no other: `patient` never leaves the booking system's table. A request that is
    // not confirmed yet is no booking. A weekly meeting is one row there, and one booking for each week here; each keeps its
    // hour when the clocks change.
    from: {
      query: `SELECT id::text, ward_code, room_no, staff, equipment, starts_at, ends_at, state = 'cancelled' AS is_cancelled
              FROM hospital.room_bookings WHERE state <> 'requested'
              UNION ALL
              SELECT m.id || '-' || d::date, ward_code, room_no, '{}', '{}',
                (d::date + begins_at) AT TIME ZONE 'Europe/Oslo', (d::date + ends_at) AT TIME ZONE 'Europe/Oslo', false
              FROM hospital.weekly_meetings AS m
                CROSS JOIN LATERAL generate_series(first_date::timestamp, last_date, interval '7 days') AS d`,
    },
    key: 'id',
    externalId: 'booking_{id}',
    begin: 'starts_at',
    end: 'ends_at',
    objects: [
      { stream: 'rooms', key: ['ward_code', 'room_no'] },
      { stream: 'staff', key: 'staff' },
      { stream: 'equipment', key: 'equipment' },
    ],
    cancelled: 'is_cancelled',
    timezone: 'Europe/Oslo',
    window: { pastDays: 1, futureDays: 60 },
    everyMinutes: 5,
  },
});
