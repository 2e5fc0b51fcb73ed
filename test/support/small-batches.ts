// A configuration of many small requests, so that whatever happens in the middle of a run finds work in every state.

/** Two objects in a batch, of the tables of a rehearsal. */
export const SMALL_BATCHES = `
import { defineConfig } from 'slotsync';
export default defineConfig({
  streams: {
    courses: {
      from: 'courses', key: 'id', type: 'course', externalId: 'course_{id}', batchSize: 2,
      fields: { 'course.name': 'name' },
    },
    rooms: {
      from: 'rooms', key: 'code', type: 'room', externalId: 'room_{code}', batchSize: 2,
      fields: { 'room.name': 'name', 'room.seats': (row) => row.seats },
    },
  },
});
`;
