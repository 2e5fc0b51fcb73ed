// MRBS (Meeting Room Booking System): areas and rooms go to the service, and bookings are compared with its reservations.
// Its tables are read as they are; MRBS itself needs no change.
import { defineConfig } from 'slotsync';

export default defineConfig({
  schedule: { nightly: '30 3 * * *', timezone: 'Europe/London' },

  streams: {
    areas: {
      from: { query: 'SELECT id, area_name FROM mrbs_area WHERE disabled = 0' },
      key: 'id',
      type: 'area',
      externalId: 'mrbs_area_{id}', // names change, numbers do not
      fields: { 'area.name': 'area_name' },
      retire: 'deactivate', // an area that is disabled leaves the query
    },

    rooms: {
      // A room of a disabled area cannot be booked either.
      from: {
        query: `SELECT r.id, r.area_id, r.room_name, r.description, r.capacity
                FROM mrbs_room AS r JOIN mrbs_area AS a ON a.id = r.area_id
                WHERE r.disabled = 0 AND a.disabled = 0`,
      },
      key: 'id',
      type: 'room',
      externalId: 'mrbs_room_{id}',
      fields: {
        'room.name': 'room_name',
        'room.note': (row) => row.description || null, // an empty text would be sent as an empty value
        'room.capacity': (row) => (row.capacity > 0 ? row.capacity : null), // 0: not known
      },
      references: { 'room.area': { stream: 'areas', key: 'area_id' } },
      retire: 'deactivate',
      // No `cursor`: MRBS does not keep when a room was changed. Changes go with the nightly run, or by `slotsync triggers`
      // where the mirror is MRBS's own database.
    },
  },

  reservations: {
    // Unix seconds become times here. A booking that awaits approval (bit 2) is left out; a private one (bit 1) keeps its
    // name to itself.
    from: {
      query: `SELECT id, room_id, to_timestamp(start_time) AS starts_at, to_timestamp(end_time) AS ends_at,
                CASE WHEN status & 1 = 0 THEN name END AS title
              FROM mrbs_entry WHERE status & 2 = 0`,
    },
    key: 'id',
    externalId: 'mrbs_entry_{id}',
    begin: 'starts_at',
    end: 'ends_at',
    timezone: 'Europe/London', // in which commands print
    objects: [{ stream: 'rooms', key: 'room_id' }],
    fields: { 'res.title': 'title' },
    // A tentative booking (bit 4) is one at the service, too.
    status: ['B_COMPLETE', 'C_CONFIRMED', 'C_PLANNED'],
    // MRBS deletes what is cancelled, so there is no `cancelled`: its reservation is found as `unknown_here`.
  },
});
