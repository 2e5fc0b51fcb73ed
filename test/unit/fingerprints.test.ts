import { describe, expect, it } from 'vitest';
import { checkConfiguration } from '../../src/config/config-file.js';
import type { SlotsyncConfig } from '../../src/streams/config-schema.js';
import { differingStreams } from '../../src/streams/fingerprints.js';
import { rooms as plainRooms } from './declare.js';

type Streams = SlotsyncConfig['streams'];
type Declaration = Streams[string];

const ROOMS: Declaration = {
  from: 'campus.rooms',
  key: 'code',
  type: 'room',
  externalId: 'room_{code}',
  fields: { 'room.name': 'name', 'room.kind': { column: 'kind', lookup: 'kinds' } },
};
const COURSES: Declaration = {
  from: 'campus.courses',
  key: 'id',
  type: 'course',
  externalId: 'course_{id}',
  fields: { 'course.name': 'name' },
  references: { 'course.room': { stream: 'rooms', key: 'room' } },
};
const STAFF: Declaration = { ...COURSES, from: 'campus.staff', externalId: 'staff_{id}', references: {} };

const fingerprints = (streams: Streams = {}, kinds: Record<string, string> = { L: 'lecture' }) =>
  checkConfiguration({
    streams: { rooms: ROOMS, courses: COURSES, staff: STAFF, ...streams },
    lookups: { kinds },
  }).fingerprints;
/** Returns the streams that differ from the declarations above. */
const changed = (...to: Parameters<typeof fingerprints>) =>
  differingStreams(fingerprints().streams, fingerprints(...to));

describe('the fingerprint of a declaration', () => {
  it.each<[option: string, change: Partial<Declaration>]>([
    ['from', { from: 'campus.other' }],
    ['columns', { from: { table: 'campus.courses', columns: ['id', 'name'] } }],
    ['a query', { from: { query: 'SELECT 1' } }],
    ['type', { type: 'person' }],
    ['fields', { fields: { 'course.name': 'title' } }],
    ['a function', { fields: { 'course.name': (row) => String(row['name']) } }],
    ['cursor', { cursor: 'updated_at' }],
    ['retire', { retire: 'deactivate' }],
    ['owns', { owns: 'object' }],
    ['batchSize', { batchSize: 7 }],
    ['rowLimitMegabytes', { rowLimitMegabytes: 32 }],
    ['graceDays', { graceDays: 3 }],
    ['graceDays from a column', { graceDays: { column: 'ends_on', days: 3 } }],
    ['fields that a retirement sets', { retire: { deactivate: true, fields: { 'course.name': 'over' } } }],
    ['unlessReserved', { unlessReserved: false }],
    ['rowSecurity', { rowSecurity: 'filtered' }],
    ['limits', { limits: { update: { count: 3 } } }],
    ['match', { match: ['course.name'] }],
    ['waitDays', { waitDays: 3 }],
    ['freshness', { freshness: { column: 'loaded_at' } }],
    ['schedule', { schedule: '0 * * * *' }],
    ['operations', { operations: ['create', 'update'] }],
  ])('changes with %s, in this stream only', (_, change) => {
    expect(changed({ staff: { ...STAFF, ...change } })).toEqual(['staff']);
    expect(fingerprints({ staff: { ...STAFF, ...change } }).configuration).not.toBe(
      fingerprints().configuration,
    );
  });

  it('equals the fingerprint of former versions if only their options are declared', () => {
    const declared = plainRooms({ retire: 'deactivate', references: {} });
    const [rooms] = checkConfiguration({ streams: { rooms: declared } }).streams;
    expect([rooms?.declaration, String(rooms?.fingerprint)]).toEqual([
      'f93f1824e2fc7f67',
      '9000942583011149883',
    ]);
  });

  it('leaves the fingerprint of rows unchanged with `operations`', () => {
    const [all, some] = [{}, { operations: ['update' as const] }].map(
      (more) => checkConfiguration({ streams: { staff: { ...STAFF, ...more } } }).streams[0]?.fingerprint,
    );
    expect(some).toBe(all);
  });

  it('equals the fingerprint from before `retire` and `graceDays` had longer forms', () => {
    const rooms = plainRooms({ retire: 'deactivate', graceDays: 3 });
    const checked = checkConfiguration({ streams: { rooms } });
    expect(checked.streams[0]).toMatchObject({
      fingerprint: 9000942583011149883n,
      declaration: 'aa819bc714847bf2',
    });
    expect(checked.fingerprints.configuration).toBe('0d2d5afcc0995b0c');
    const other = { streams: { rooms }, history: 'values', historyDays: 9 } as const;
    expect(checkConfiguration(other).fingerprints).toEqual(checked.fingerprints);
  });

  it('changes with the content of a lookup that its fields use', () => {
    expect(changed({}, { L: 'lecture hall' })).toEqual(['rooms']);
  });

  it('changes with the external ids of referenced streams, but not with their other options', () => {
    expect(changed({ rooms: { ...ROOMS, externalId: 'r_{code}' } })).toEqual(['rooms', 'courses'].toSorted());
    expect(changed({ rooms: { ...ROOMS, retire: 'deactivate' } })).toEqual(['rooms']);
  });

  it('changes with a stream that may make the same external ids', () => {
    expect(changed({ guests: { ...STAFF, from: 'campus.guests', externalId: 'staff_{number}' } })).toEqual([
      'staff',
    ]);
    expect(changed({ guests: { ...STAFF, externalId: 'guest_{id}' } })).toEqual([]);
  });

  it('does not depend on the order of the streams, and differs for an unknown stream', () => {
    const { configuration } = fingerprints();
    const reversed = { streams: { staff: STAFF, courses: COURSES, rooms: ROOMS } };
    const checked = checkConfiguration({ ...reversed, lookups: { kinds: { L: 'lecture' } } });
    expect(checked.fingerprints).toMatchObject({ configuration });
    expect(differingStreams({ halls: 'a' }, fingerprints())).toEqual(['halls']);
    expect(differingStreams(null, fingerprints())).toEqual([]);
  });
});
