import { describe, expect, it } from 'vitest';
import type { Row } from '../../src/streams/config-schema.js';
import { MappingError, mapRow, toObject, type NeededReference } from '../../src/streams/map-row.js';
import { resolve, rooms, type Declaration } from './declare.js';

const BUILDINGS = rooms({
  from: 'campus.buildings',
  key: 'code',
  type: 'building',
  externalId: 'building_{code}',
});
const GROUPS = rooms({ key: ['programme', 'year'], externalId: 'group_{programme}_{year}' });

const streamOf = (changes: Partial<Declaration> = {}) =>
  resolve({ rooms: rooms(changes), buildings: BUILDINGS, groups: GROUPS });

const row: Row = {
  room_code: 'N201',
  name: 'Newton',
  seats: 48,
  building: 'N',
  programme: 'TEK',
  year: 2025,
  tags: ['a', 'b'],
};

describe('a row', () => {
  it('becomes an object with its external id, type and fields', () => {
    const stream = streamOf({
      fields: { 'room.name': 'name', 'room.seats': (r) => r.seats * 2, 'room.tags': 'tags' },
    });
    expect(toObject(stream, mapRow(stream, row), () => undefined)).toEqual({
      object: {
        extId: 'room_N201',
        typeId: 'room',
        active: true,
        fields: [
          { fieldId: 'room.name', values: ['Newton'] },
          { fieldId: 'room.seats', values: ['96'] },
          { fieldId: 'room.tags', values: ['a', 'b'] },
        ],
      },
    });
  });

  it('sends no value for a null column, by name or through a function', () => {
    const stream = streamOf({ fields: { 'room.name': 'name', 'room.note': (r) => r.note ?? null } });
    const mapped = mapRow(stream, { ...row, name: null, note: undefined });
    expect([...mapped.values.values()]).toEqual([[], []]);
    const linked = toObject(stream, mapped, () => undefined);
    expect('object' in linked && linked.object.fields).toEqual([]);
  });
});

describe('a row that cannot become an object', () => {
  const failure = (changes: Partial<Declaration>, of: Row = row) => {
    try {
      mapRow(streamOf(changes), of);
    } catch (error) {
      expect(error).toBeInstanceOf(MappingError);
      return (error as MappingError).message;
    }
    throw new Error('the row was mapped');
  };

  const thrown = (error: unknown) => () => {
    throw error;
  };
  const TEXT = "rooms.fields['f']: a text with a NUL character or half a character cannot be sent";
  it.each<[string, Partial<Declaration>, string]>([
    ['a missing column', { fields: { f: 'nmae' } }, "rooms.fields['f']: there is no column nmae"],
    ['a missing column in a function', { fields: { f: (r) => r.nmae } }, "['f']: there is no column nmae"],
    [
      'a function that throws',
      { fields: { f: thrown(new Error('no number')) } },
      "rooms.fields['f']: no number",
    ],
    ['a function that throws something else', { fields: { f: thrown('no') } }, "rooms.fields['f']: no"],
    ['a value that cannot be sent', { fields: { f: () => NaN } }, "rooms.fields['f']: NaN is not a number"],
    [
      'a function that changes the row',
      { fields: { f: (r) => ((r as { name: string }).name = 'Curie') } },
      "rooms.fields['f']: a function must not change the row",
    ],
    ['a function that makes a NUL character', { fields: { f: (r) => `${r.name}\0` } }, TEXT],
    ['a function that cuts a character in two', { fields: { f: () => '😀'.slice(0, 1) } }, TEXT],
    [
      'an unknown column in its id',
      { externalId: 'room_{cdoe}' },
      'rooms.externalId: there is no column cdoe',
    ],
    [
      'a reference without a column',
      { references: { f: { stream: 'buildings', key: 'biulding' } } },
      "rooms.references['f']: there is no column biulding",
    ],
    [
      'a list within a composite reference',
      { references: { f: { stream: 'groups', key: ['tags', 'year'] } } },
      "rooms.references['f']: a part of a composite key holds several values",
    ],
  ])('is refused with place and reason: %s', (_, changes, message) => {
    expect(failure(changes)).toContain(message);
  });

  it('is refused when its external id is empty', () => {
    expect(failure({}, { ...row, room_code: null })).toBe(
      'rooms.externalId: column room_code of the external id is empty',
    );
  });

  it('keeps its values out of the message', () => {
    expect(failure({ fields: { f: 'person' } }, { ...row, person: { name: 'Ada Lovelace' } })).not.toContain(
      'Ada',
    );
  });
});

describe('a reference of a row', () => {
  const referring = (reference: { stream: string; key: string | string[] }) =>
    streamOf({ references: { 'room.parent': reference } });
  const needed = (stream: ReturnType<typeof streamOf>, of: Row = row) =>
    mapRow(stream, of).references.map(({ localKey }) => localKey);

  const GROUP = { stream: 'groups', key: ['programme', 'year'] };
  const BUILDING = { stream: 'buildings', key: 'building' };
  it.each<[string, { stream: string; key: string | string[] }, Row, string[]]>([
    ['is the local key its column holds', BUILDING, {}, ['N']],
    ['is empty when the column is null', BUILDING, { building: null }, []],
    ['is several when the column holds a list', { stream: 'buildings', key: 'tags' }, {}, ['a', 'b']],
    ['is joined of several columns', GROUP, {}, ['TEK|2025']],
    ['is escaped as the key is', GROUP, { programme: 'a|b' }, [String.raw`a\|b|2025`]],
    ['is empty when any of its columns is null', GROUP, { year: null }, []],
  ])('%s', (_, reference, changes, keys) => {
    expect(needed(referring(reference), { ...row, ...changes })).toEqual(keys);
  });

  it('becomes the external id of the record that it refers to', () => {
    const stream = referring({ stream: 'buildings', key: 'tags' });
    const externalIdOf = ({ stream: parent, localKey }: NeededReference) => `${parent}:${localKey}`;
    const linked = toObject(stream, mapRow(stream, row), externalIdOf);
    expect('object' in linked && linked.object.fields).toContainEqual({
      fieldId: 'room.parent',
      values: ['buildings:a', 'buildings:b'],
    });
  });

  it('is named instead of an object when its record is not at the service yet', () => {
    const stream = referring({ stream: 'buildings', key: 'tags' });
    const linked = toObject(stream, mapRow(stream, row), ({ localKey }) =>
      localKey === 'a' ? 'x' : undefined,
    );
    expect(linked).toEqual({ missing: { fieldId: 'room.parent', stream: 'buildings', localKey: 'b' } });
  });

  it('is owned by the mapping even while it is null, so that a merge empties it', () => {
    expect(referring({ stream: 'buildings', key: 'building' }).owned).toEqual(
      new Set(['room.name', 'room.parent']),
    );
  });
});
