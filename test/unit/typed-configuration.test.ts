// The compiler is the test: each name that a service does not know must be an error of `tsc`, which `npm run check` runs
// over the tests.
import { describe, expect, it } from 'vitest';
import { defineConfig } from '../../src/index.js';

interface Service {
  type: 'course' | 'room';
  field: 'course.name' | 'course.room' | 'room.name';
}

const rooms = { from: 'campus.rooms', key: 'code', type: 'room', externalId: 'room_{code}' } as const;

describe('defineConfig', () => {
  it('accepts the names of a service', () => {
    const config = defineConfig<Service>({
      streams: {
        rooms: { ...rooms, fields: { 'room.name': 'name' }, match: ['room.name'] },
        courses: {
          from: 'campus.courses',
          key: 'code',
          type: 'course',
          externalId: 'course_{code}',
          fields: { 'course.name': (row) => String(row['name']) },
          references: { 'course.room': { stream: 'rooms', key: 'room' } },
        },
      },
      reservations: { fields: { 'room.name': 'title' } },
    });
    expect(Object.keys(config.streams)).toEqual(['rooms', 'courses']);
  });

  it('refuses names that the service does not know', () => {
    defineConfig<Service>({
      streams: {
        // @ts-expect-error -- no type 'rom'
        type: { ...rooms, type: 'rom', fields: {} },
        // @ts-expect-error -- no field 'room.nmae'
        fields: { ...rooms, fields: { 'room.nmae': 'name' } },
        references: {
          ...rooms,
          fields: {},
          // @ts-expect-error -- no field 'course.rom'
          references: { 'course.rom': { stream: 'rooms', key: 'room' } },
        },
        // @ts-expect-error -- no field 'room.nmae'
        match: { ...rooms, fields: {}, match: ['room.nmae'] },
      },
      // @ts-expect-error -- no field 'res.title'
      reservations: { fields: { 'res.title': 'title' } },
    });
  });

  it('accepts any name if the names of a service are not given', () => {
    const config = defineConfig({
      streams: { rooms: { ...rooms, type: 'anything', fields: { any: 'name' } } },
    });
    const fields: Record<string, unknown> = config.streams['rooms']?.fields ?? {};
    expect(fields).toEqual({ any: 'name' });
  });
});
