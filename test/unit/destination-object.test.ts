import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  createObject,
  diffObjects,
  hashObject,
  isSameObject,
  mergeObject,
} from '../../src/streams/destination-object.js';

type Fields = Record<string, readonly string[]>;

const room = (fields: Fields, active = true) =>
  createObject('room_1', 'room', active, Object.entries(fields));
const fieldsOf = ({ fields }: { fields: readonly { fieldId: string; values: readonly string[] }[] }) =>
  Object.fromEntries(fields.map(({ fieldId, values }) => [fieldId, values]));

const anyFields = fc.uniqueArray(
  fc.tuple(fc.constantFrom('a', 'b', 'c', 'd', 'room.name'), fc.array(fc.string(), { maxLength: 3 })),
  { selector: ([fieldId]) => fieldId },
);

describe('an object', () => {
  it('has its fields sorted, without fields that have no value', () => {
    const { fields } = room({ b: ['2'], c: [], a: ['1', '0'] });
    expect(fields).toEqual([
      { fieldId: 'a', values: ['1', '0'] },
      { fieldId: 'b', values: ['2'] },
    ]);
  });

  it('keeps an empty text as a value', () => {
    expect(fieldsOf(room({ a: [''] }))).toEqual({ a: [''] });
  });
});

describe('the hash of an object', () => {
  it('does not depend on the order in which its fields were named', () => {
    const shuffled = anyFields.chain((fields) =>
      fc.tuple(fc.constant(fields), fc.shuffledSubarray(fields, { minLength: fields.length })),
    );
    fc.assert(
      fc.property(shuffled, ([fields, others]) => {
        const hash = hashObject(createObject('x', 'room', true, fields));
        expect(hashObject(createObject('x', 'room', true, others))).toBe(hash);
      }),
    );
  });

  it.each([
    ['its external id', createObject('room_2', 'room', true, [['a', ['1']]])],
    ['its type', createObject('room_1', 'hall', true, [['a', ['1']]])],
    ['its activity', createObject('room_1', 'room', false, [['a', ['1']]])],
    ['a value', room({ a: ['2'] })],
    ['the order of values', room({ a: ['1', ''] })],
    ['the name of a field', room({ b: ['1'] })],
    ['an additional field', room({ a: ['1'], b: ['1'] })],
    ['a removed field', room({})],
  ])('changes with %s', (_, other) => {
    expect(hashObject(other)).not.toBe(hashObject(room({ a: ['1'] })));
    expect(isSameObject(other, room({ a: ['1'] }))).toBe(false);
  });

  it('has 22 characters that fit any column, URL and log line', () => {
    expect(hashObject(room({ a: ['Å'] }))).toMatch(/^[\w-]{22}$/);
  });
});

describe('merging a mapped object into the object at the service', () => {
  it.each([
    ['keeps fields that the mapping does not own', { name: ['new'] }, { name: ['new'], note: ['by hand'] }],
    ['empties an owned field when its column is null', {}, { note: ['by hand'] }],
  ])('%s', (_, mapped, expected) => {
    const there = room({ name: ['old'], note: ['by hand'] });
    expect(fieldsOf(mergeObject(room(mapped), there, new Set(['name'])))).toEqual(expected);
  });

  it('returns the mapped object when the service has no object yet', () => {
    const mapped = room({ name: ['new'] });
    expect(mergeObject(mapped, undefined, new Set(['name']))).toEqual(mapped);
  });

  it('carries unknown properties of the object and its fields, without comparing them', () => {
    const fields = [
      ['name', ['old'], { locale: 'sv' }],
      ['note', ['by hand'], { locked: true }],
    ] as const;
    const there = createObject('room_1', 'room', true, fields, { members: [7] });
    const merged = mergeObject(room({ name: ['new'] }), there, new Set(['name']));
    expect(merged).toEqual({
      ...room({}),
      fields: [
        { fieldId: 'name', values: ['new'], carried: { locale: 'sv' } },
        { fieldId: 'note', values: ['by hand'], carried: { locked: true } },
      ],
      carried: { members: [7] },
    });
    expect(hashObject(merged)).toBe(hashObject(room({ name: ['new'], note: ['by hand'] })));
  });

  it('takes type and activity from the mapping, which reactivates an object', () => {
    expect(mergeObject(room({}), room({}, false), new Set()).active).toBe(true);
  });

  it('takes every field from exactly one side, and is idempotent', () => {
    fc.assert(
      fc.property(
        anyFields,
        anyFields,
        fc.subarray(['a', 'b', 'c', 'd', 'room.name']),
        (mine, theirs, owned) => {
          const owns = new Set(owned);
          const mapped = room(Object.fromEntries(mine.filter(([fieldId]) => owns.has(fieldId))));
          const there = room(Object.fromEntries(theirs));
          const merged = mergeObject(mapped, there, owns);
          const expected = {
            ...fieldsOf(there),
            ...Object.fromEntries(owned.map((id) => [id, fieldsOf(mapped)[id]])),
          };
          expect(fieldsOf(merged)).toEqual(
            Object.fromEntries(Object.entries(expected).filter(([, values]) => values !== undefined)),
          );
          expect(isSameObject(mergeObject(mapped, merged, owns), merged)).toBe(true);
        },
      ),
    );
  });
});

describe('the difference of two objects', () => {
  it('names each field that a write would change, with both values', () => {
    const from = room({ name: ['old'], seats: ['48'], gone: ['x'] });
    const to = room({ name: ['new'], seats: ['48'], more: ['1', '2'] });
    expect(diffObjects(from, to)).toEqual([
      { field: 'gone', old: ['x'], new: [] },
      { field: 'name', old: ['old'], new: ['new'] },
      { field: 'more', old: [], new: ['1', '2'] },
    ]);
  });

  it('includes the activity', () => {
    expect(diffObjects(room({}), room({}, false))).toEqual([
      { field: 'active', old: ['true'], new: ['false'] },
    ]);
  });

  it('is the whole object when the service has none', () => {
    expect(diffObjects(undefined, room({ name: ['new'] }))).toEqual([
      { field: 'active', old: [], new: ['true'] },
      { field: 'name', old: [], new: ['new'] },
    ]);
  });

  it('is empty exactly for equal objects', () => {
    fc.assert(
      fc.property(anyFields, anyFields, (a, b) => {
        const [from, to] = [room(Object.fromEntries(a)), room(Object.fromEntries(b))];
        expect(diffObjects(from, to).length === 0).toBe(isSameObject(from, to));
        expect(diffObjects(from, from)).toEqual([]);
      }),
    );
  });
});
