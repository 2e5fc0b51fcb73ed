// Results of verifying one object: drift, and differences that are no drift.
import { describe, expect, it } from 'vitest';
import type { FoundObject } from '../../src/destination/destination.js';
import type { SlotsyncError } from '../../src/errors/errors.js';
import { createObject, hashObject } from '../../src/streams/destination-object.js';
import { judgeObject, type Compared, type Judgement } from '../../src/sync/verify/judge-object.js';
import { resolve, rooms, type Declaration } from './declare.js';

type Record = Compared['record'];

interface Case {
  /** Changes to the declaration of the stream. By default it keeps the objects of rows that are gone. */
  declared?: Partial<Declaration>;
  record?: Partial<Record>;
  /** The hash of the row. Null: the row is gone. By default the row is as it was accepted. */
  row?: string | null;
  /** The name of the object that the row becomes. */
  name?: string;
  more?: Partial<Compared>;
  /** Null: the object is not at the service. By default it is as it was accepted. */
  object?: Partial<FoundObject> | null;
}

const named = (name: string) => ({ fieldId: 'room.name', values: [name] });
const NOTE = { fieldId: 'room.note', values: ['projector'] };
const ACCEPTED = createObject('room_A', 'room', true, [['room.name', ['Aula']]]);

function judge({ declared, record, row = '1', name = 'Aula', more, object = {} }: Case, isOutdated = false) {
  const mapped = createObject('room_A', 'room', true, [['room.name', [name]]]);
  const compared = {
    stream: resolve({ rooms: rooms(declared) }),
    record: {
      isSettled: true,
      status: 'synced',
      sourceHash: '1',
      objectHash: hashObject(ACCEPTED),
      ...record,
    } as Record,
    row: row === null ? undefined : { row: {}, hash: row },
    rendered: row === null ? undefined : { extId: 'room_A', object: mapped },
    unreadable: undefined,
    ...more,
  };
  const found = object && ({ ...ACCEPTED, id: '7', ...object } as FoundObject);
  return judgeObject(compared, found ?? undefined, isOutdated);
}

const RETIRING = { retire: 'deactivate' } as const;
const RETIRED = { declared: RETIRING, record: { status: 'retired' }, row: null } satisfies Case;
const MISSING = { fieldId: 'room.course', stream: 'courses', localKey: 'C' };
const INACTIVE = { active: false };
const activity = (here: string, there: string) => ({ active: { here: [here], there: [there] } });

describe('the verification of an object', () => {
  it.each<[string, Case, Judgement]>([
    ['as it was accepted', {}, 'fine'],
    ['with a field that the mapping does not own', { object: { fields: [named('Aula'), NOTE] } }, 'fine'],
    ['with unknown properties', { object: { carried: { members: [1] } } }, 'fine'],
    ['of a subtype', { declared: { subtypes: ['lab'] }, object: { typeId: 'lab' } }, 'fine'],
    [
      'with another value',
      { object: { fields: [named('Hall'), NOTE] } },
      { kind: 'changed', fields: { 'room.name': { here: ['Aula'], there: ['Hall'] } } },
    ],
    [
      'owned whole, with a field that the mapping does not fill',
      { declared: { owns: 'object' }, object: { fields: [named('Aula'), NOTE] } },
      { kind: 'changed', fields: { 'room.note': { here: [], there: ['projector'] } } },
    ],
    ['that is inactive', { object: INACTIVE }, { kind: 'inactive', fields: activity('true', 'false') }],
    ['that is missing', { object: null }, { kind: 'missing', fields: undefined }],
    ['of another type', { object: { typeId: 'course' } }, { kind: 'wrong_type', fields: undefined }],
    ['retired and inactive', { ...RETIRED, object: INACTIVE }, 'fine'],
    [
      'retired and inactive, without the values that its retirement sets',
      {
        ...RETIRED,
        declared: { retire: { deactivate: true, fields: { 'room.name': 'x' } } },
        object: INACTIVE,
      },
      'fine',
    ],
    ['retired and missing', { ...RETIRED, object: null }, 'fine'],
    ['retired and of another type', { ...RETIRED, object: { typeId: 'course' } }, 'fine'],
    ['retired and active again', RETIRED, { kind: 'changed', fields: activity('false', 'true') }],
    [
      'retired and active again, in a stream that retires nothing any more',
      { ...RETIRED, declared: {} },
      'fine',
    ],
  ])('judges an object %s', (_, given, judgement) => {
    expect(judge(given)).toEqual(judgement);
  });
});

describe('the verification of an object that differs', () => {
  const object = { fields: [named('Hall')] };
  it.each<[string, Case, Judgement]>([
    ['its row has changed', { row: '2' }, 'waiting'],
    ['its row is gone, and is to be retired', { declared: RETIRING, row: null }, 'waiting'],
    ['its row is gone, and nothing is retired', { row: null }, 'abandoned'],
    ['its row is gone, and it was given up', { row: null, record: { status: 'dead' } }, 'abandoned'],
    ['its row cannot be read', { row: null, more: { unreadable: {} as SlotsyncError } }, 'waiting'],
    ['it refers to no object yet', { more: { rendered: { extId: 'A', missing: MISSING } } }, 'waiting'],
    ['it was given up', { record: { status: 'dead' } }, 'waiting'],
    ['it is in doubt, or a batch writes it', { record: { isSettled: false } }, 'waiting'],
    ['it was retired, and its row is back', { ...RETIRED, row: '1' }, 'waiting'],
    ['its row is unchanged, but becomes another object', { name: 'Hall' }, 'doubtful'],
  ])('reports no drift if %s', (_, given, judgement) => {
    expect(judge({ object, ...given })).toBe(judgement);
  });
});

describe('the verification with an answer that may be older than the record', () => {
  it('reports no drift, but confirms an object that agrees', () => {
    expect(judge({ object: null }, true)).toBe('unsure');
    expect(judge({}, true)).toBe('fine');
  });
});
