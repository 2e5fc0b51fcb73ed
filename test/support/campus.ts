// Streams as most tests have them: rooms, and courses that take place in one.
import type { SlotsyncConfig } from '../../src/streams/config-schema.js';

export type Declaration = SlotsyncConfig['streams'][string];

export const ROOMS: Declaration = {
  from: 'rooms',
  key: 'code',
  type: 'room',
  externalId: 'room_{code}',
  fields: { 'room.name': 'name' },
};

export const COURSES: Declaration = {
  from: 'courses',
  key: 'code',
  type: 'course',
  externalId: 'course_{code}',
  fields: { 'course.name': 'name' },
  references: { 'course.room': { stream: 'rooms', key: 'room' } },
};
