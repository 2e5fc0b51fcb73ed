import { describe, expect, it } from 'vitest';
import { checkConfiguration } from '../../src/config/config-file.js';
import { refusalOf, resolve, rooms, type Declaration } from './declare.js';

/** Returns the faults of a configuration with these streams. */
const faultsOf = (streams: Record<string, Declaration>) =>
  refusalOf(() => checkConfiguration({ streams })).faults;

describe('the name of a table', () => {
  it.each([
    ['rooms', ['rooms']],
    ['campus.rooms', ['campus', 'rooms']],
    ['university.campus.rooms', ['university', 'campus', 'rooms']],
    ['Campus.Rooms', ['Campus', 'Rooms']],
    ['campus."my rooms"', ['campus', 'my rooms']],
    ['"a.b"."c.d"', ['a.b', 'c.d']],
    ['"say ""hi"""', ['say "hi"']],
    [' campus . rooms ', ['campus', 'rooms']],
    ['räume.sälar', ['räume', 'sälar']],
    ['rooms; DROP', undefined],
    ['my rooms', undefined],
    ['campus.', undefined],
    ['.rooms', undefined],
    ['campus..rooms', undefined],
    ['""', undefined],
    ['"rooms', undefined],
    ['campus."rooms"x', undefined],
    ['a.b.c.d', undefined],
  ])('is parsed or refused: %s', (from, table) => {
    if (table) expect(resolve({ rooms: rooms({ from }) }).source).toEqual({ table });
    else {
      expect(faultsOf({ rooms: rooms({ from }) })).toEqual([
        expect.stringMatching(/^streams\.rooms\.from: .* is not a table name; write schema\.table/),
      ]);
    }
  });

  it('is not searched in a query', () => {
    const query = 'SELECT * FROM campus.rooms WHERE open';
    expect(resolve({ rooms: rooms({ from: { query } }) }).source).toEqual({ query });
  });
});

describe('the fingerprint of a stream', () => {
  const fingerprint = (changes: Partial<Declaration> = {}) =>
    resolve({ rooms: rooms(changes), buildings: rooms() }).fingerprint;

  it('is the same for the same declaration, written again', () => {
    expect(fingerprint({ fields: { f: (row) => row.name } })).toBe(
      fingerprint({ fields: { f: (row) => row.name } }),
    );
  });

  it.each<[string, Partial<Declaration>]>([
    ['the key', { key: ['room_code', 'name'] }],
    ['the type', { type: 'hall' }],
    ['the external id', { externalId: 'hall_{room_code}' }],
    ['a field', { fields: { 'room.name': 'name', 'room.seats': 'seats' } }],
    ['a function', { fields: { 'room.name': (row) => row.name } }],
    ["a function's source", { fields: { 'room.name': (row) => row.name.trim() } }],
    ['a reference', { references: { 'room.building': { stream: 'buildings', key: 'building' } } }],
    ['the column of the end, which the state stores', { graceDays: { column: 'ends_on', days: 3 } }],
  ])('changes with %s, so that every row is checked again', (_, changes) => {
    expect(fingerprint(changes)).not.toBe(fingerprint());
  });

  it.each<[string, Partial<Declaration>]>([
    ['the size of batches', { batchSize: 7 }],
    ['the retirement', { retire: 'deactivate' }],
    [
      'the fields that a retirement sets',
      { retire: { deactivate: true, fields: { 'room.name': 'closed' } } },
    ],
    ['days of grace', { graceDays: 3 }],
    ['the limits', { limits: { retire: { count: 1 } } }],
    ['the days that a record waits for a reference', { waitDays: 1 }],
    ['the cursor', { cursor: 'updated_at' }],
  ])('does not change with %s, which no object shows', (_, changes) => {
    expect(fingerprint(changes)).toBe(fingerprint());
  });

  it('fits into a PostgreSQL bigint', () => {
    expect(BigInt.asIntN(64, fingerprint())).toBe(fingerprint());
  });
});

describe('a reference to another stream', () => {
  const streamsOf = (stream: string, key: string | string[], fieldId = 'room.parent') => ({
    rooms: rooms({ references: { [fieldId]: { stream, key } } }),
    buildings: rooms(),
    groups: rooms({ key: ['programme', 'year'] }),
  });
  const refer = (...given: Parameters<typeof streamsOf>) => faultsOf(streamsOf(...given));

  it('is accepted if the stream exists and the number of columns matches', () => {
    expect(resolve(streamsOf('buildings', 'building')).level).toBe(1);
    expect(resolve(streamsOf('groups', ['programme', 'year'])).level).toBe(1);
  });

  it('is refused with the known streams if its stream does not exist', () => {
    expect(refer('building', 'code')).toEqual([
      "streams.rooms.references.room.parent.stream: no stream 'building'; there are: rooms, buildings, groups",
    ]);
    expect(refer('constructor', 'code')).toEqual([expect.stringContaining("no stream 'constructor'")]);
  });

  it('is refused with the key of its stream if the number of columns differs', () => {
    expect(refer('groups', 'programme')).toEqual([
      'streams.rooms.references.room.parent.key: name one column for each key column of groups (programme, year)',
    ]);
  });

  it('may not fill a field that a column fills already', () => {
    expect(refer('buildings', 'building', 'room.name')).toEqual([
      "streams.rooms.references.room.name: 'room.name' is also among the fields; keep one of the two",
    ]);
  });
});

describe('the match of a stream', () => {
  it('must name fields and references of the stream, and is refused at the place of the fault', () => {
    const match = ['room.name', 'room.campus', 'room.parent'];
    expect(faultsOf({ rooms: rooms({ match }) })).toEqual([
      "streams.rooms.match[1]: 'room.campus' is not among the stream's fields and references: room.name",
      "streams.rooms.match[2]: 'room.parent' is not among the stream's fields and references: room.name",
    ]);
    const references = { 'room.parent': { stream: 'buildings', key: 'parent' } };
    const matched = rooms({ references, match: ['room.name', 'room.parent'] });
    expect(resolve({ buildings: rooms(), rooms: matched }).match).toHaveLength(2);
    expect(faultsOf({ rooms: rooms({ match: [] }) })).toEqual([
      expect.stringContaining('at least one field id'),
    ]);
  });
});

describe('the streams of a configuration', () => {
  it('are ordered with parents first, whatever their order in the file', () => {
    const referTo = (stream: string) => ({ references: { f: { stream, key: 'k' } } });
    const { streams } = checkConfiguration({
      streams: { courses: rooms(referTo('rooms')), rooms: rooms(referTo('buildings')), buildings: rooms() },
    });
    expect(streams.map(({ name, level }) => [name, level])).toEqual([
      ['buildings', 0],
      ['rooms', 1],
      ['courses', 2],
    ]);
  });

  it('have cautious defaults', () => {
    expect(resolve({ rooms: rooms() })).toMatchObject({
      retire: 'keep',
      owns: 'fields',
      batchSize: 'auto',
      waitDays: 14,
      limits: { retire: { count: 10, percent: 10 } },
    });
  });
});
