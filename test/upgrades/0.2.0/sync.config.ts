// The configuration of the states that are kept for upgrades.
import { defineConfig } from 'slotsync';

export default defineConfig({
  schedule: { nightly: '0 2 * * *', timezone: 'Europe/Stockholm' },
  freshness: { query: 'SELECT max(finished_at) FROM campus.loads', maxHours: 87_600 },
  streams: {
    rooms: {
      from: 'campus.rooms',
      key: 'code',
      type: 'room',
      externalId: 'room_{code}',
      fields: { 'room.name': 'name', 'room.seats': 'seats' },
      cursor: 'updated_at',
      retire: 'deactivate',
    },
    courses: {
      from: 'campus.courses',
      key: 'id',
      type: 'course',
      externalId: 'course_{id}',
      fields: { 'course.name': { from: 'name', write: 'changed' } },
      references: { 'course.room': { stream: 'rooms', key: 'room' } },
    },
    staff: {
      from: 'campus.staff',
      key: ['id', 'site'],
      type: 'person',
      externalId: 'person_{id}_{site}',
      fields: { 'person.name': 'name' },
      owns: 'object',
      retire: 'deactivate',
      limits: { retire: { count: 1, percent: 10 } },
    },
  },
  reservations: {
    from: 'campus.bookings',
    key: 'id',
    externalId: 'res_{id}',
    begin: 'starts_at',
    end: 'ends_at',
    objects: [{ stream: 'rooms', key: 'room' }],
  },
});
