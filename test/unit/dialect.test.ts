// Dialects of a configuration: their replacements, their faults, and errors of their functions.
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { importFile } from '../../src/config/load-file.js';
import { completeDialect } from '../../src/dialect/complete-dialect.js';
import { defineDialect, type Json, type PutObject, type Question } from '../../src/dialect/dialect.js';
import { understand } from '../../src/destination/http-errors.js';
import { createFolder } from '../support/folders.js';

const file = path.join(createFolder('dialect'), 'service-dialect.ts');
const FILE = '/etc/slotsync/service-dialect.ts';
const CALL = { method: 'PUT', path: '/v1/objects' } as const;
const QUESTION: Question = { kind: 'objects', filter: { by: 'none' }, page: 1, limit: 10 };
const OBJECT: PutObject = { extId: 'room_1', typeId: 'room', active: false, fields: [] };

const faultsOf = (given: unknown) => {
  const faults: { path: string; message: string }[] = [];
  completeDialect(given, FILE, faults);
  return faults.map(({ path, message }) => `${path}: ${message}`);
};

/** Returns the error that the destination throws when a function of a dialect fails. */
function errorOf(call: () => unknown): unknown {
  try {
    return understand(CALL, undefined, call);
  } catch (error) {
    return error;
  }
}

it('the example dialect of docs/service-contract.md reads and writes other names', async () => {
  const page = readFileSync(new URL('../../docs/service-contract.md', import.meta.url), 'utf8');
  const [code = ''] = /\/\/ service-dialect\.ts\n[\s\S]*?(?=```)/.exec(page) ?? [];
  writeFileSync(file, code);
  const faults: { path: string; message: string }[] = [];
  const dialect = completeDialect((await importFile(file)).exported, file, faults);
  expect(faults).toEqual([]);
  const found = { id: 7, externalRef: 'room_1', category: 'room', active: false, fields: [], members: [1] };
  const read = dialect.object.read(found, true);
  expect(read).toMatchObject({ extId: 'room_1', typeId: 'room', carried: { members: [1] } });
  const written = { ...read, id: undefined } as PutObject;
  expect(dialect.write.body([written])).toMatchObject({
    objects: [{ externalRef: 'room_1', category: 'room', active: false, members: [1], fields: [] }],
  });
  const answer = { results: [{ externalRef: 'room_1', status: 200, id: 7 }] };
  expect(dialect.write.read(answer, [], 200)).toMatchObject([{ extId: 'room_1', id: '7', status: 200 }]);
  const filter = { by: 'extIds', extIds: ['room_1'] } as const;
  expect(dialect.find.ask({ ...QUESTION, filter }).body).toMatchObject({ externalRefs: ['room_1'] });
});

describe('a dialect of a configuration', () => {
  it('replaces the functions that it names, also where default functions use them', () => {
    const dialect = completeDialect(
      defineDialect((base) => ({
        active: {
          read: ({ status }) => status === 'on',
          write: (active) => ({ status: active ? 'on' : 'off' }),
        },
        find: {
          ask: (question) => ({ ...base.find.ask(question), method: 'GET', path: '/search' }),
        },
      })),
      FILE,
    );
    expect(dialect.object.read({ id: 1, status: 'off', fields: [], seats: 4 }, true)).toEqual({
      id: '1',
      active: false,
      fields: [],
      carried: { seats: 4 },
    });
    expect(dialect.write.body([OBJECT])).toEqual({
      idFormat: 'EXTERNAL',
      objects: [{ extId: 'room_1', typeId: 'room', status: 'off', fields: [] }],
    });
    expect(dialect.find.ask(QUESTION)).toMatchObject({ method: 'GET', path: '/search' });
    expect(dialect.find.read({ results: [], totalPages: 1 }, QUESTION).results).toEqual([]);
  });

  it.each<[unknown, string]>([
    [undefined, 'service-dialect.ts: it exports no dialect'],
    [[], 'service-dialect.ts: it exports no dialect'],
    [Promise.resolve({}), 'service-dialect.ts: it exports no dialect'],
    [() => undefined, 'service-dialect.ts: it exports no dialect'],
    [{ finds: {} }, 'service-dialect.ts finds: unknown; there are authenticate, find, type'],
    [{ find: { aks: () => ({}) } }, 'service-dialect.ts find.aks: unknown; there are ask, read'],
    [{ find: { ask: 'POST' } }, 'service-dialect.ts find.ask: a function expected'],
    [{ find: () => ({}) }, 'service-dialect.ts find: an object with functions expected'],
    [{ write: { patches: 'yes' } }, 'service-dialect.ts write.patches: a boolean expected'],
    [{ write: { method: 'DELETE' } }, 'service-dialect.ts write.method: Invalid option'],
    [{ times: 'minutes' }, 'service-dialect.ts times: Invalid option'],
    [{ maintained: [7] }, 'service-dialect.ts maintained: Invalid input'],
  ])('is refused when it is %o: %s', (given, fault) => {
    expect(faultsOf(given)).toEqual([expect.stringContaining(fault)]);
  });

  const broken: [string, (...given: never[]) => unknown, string][] = [
    [
      'throws',
      () => {
        throw new Error('Cannot read Room A');
      },
      'throws',
    ],
    ['returns nothing', () => undefined, 'returns nothing'],
    ['is async', async () => [], 'returns a promise'],
    ['returns something else', () => 7, 'returns something else than is expected'],
  ];

  it.each(broken)('is named with its file and function when write.read %s', (_, replacement, how) => {
    const dialect = completeDialect({ write: { read: replacement } }, FILE);
    const error = errorOf(() => dialect.write.read({ results: [] }, [], 200));
    expect(error).toMatchObject({
      code: 'answer_invalid',
      message: expect.stringContaining(`write.read of service-dialect.ts ${how}`),
      remedy: expect.stringContaining('Correct write.read in service-dialect.ts'),
    });
    expect((error as Error).message).not.toContain('Room A');
  });

  it.each(broken)(
    'is named with its file and function, and asks nothing, when find.ask %s',
    (_, replacement, how) => {
      const dialect = completeDialect({ find: { ask: replacement } }, FILE);
      expect(errorOf(() => dialect.find.ask(QUESTION))).toMatchObject({
        code: 'configuration',
        message: expect.stringContaining(`find.ask of service-dialect.ts ${how}`),
      });
    },
  );

  it.each<[string, string, () => unknown, string]>([
    ['find', 'read', () => (undefined as unknown as string).length, 'configuration'],
    ['write', 'read', () => 'x'.repeat(-1), 'answer_invalid'],
    ['reservation', 'read', () => (null as unknown as string).length, 'answer_invalid'],
    ['object', 'read', () => (undefined as unknown as string).length, 'answer_invalid'],
    ['find', 'read', () => JSON.parse('{') as unknown, 'answer_invalid'],
  ])(
    'is at fault for an error in %s.%s only if the answer cannot be the cause',
    (section, name, fails, code) => {
      const dialect = completeDialect({ [section]: { [name]: fails } }, import.meta.filename);
      const read = (dialect as unknown as Record<string, Record<string, (body: object) => unknown>>)[
        section
      ]?.[name];
      const how =
        code === 'configuration' ? /of dialect\.test\.ts throws in line \d+$/ : /dialect\.test\.ts throws/;
      expect(errorOf(() => read?.({}))).toMatchObject({ code, message: expect.stringMatching(how) });
    },
  );

  it('is at fault for an error only if the body is an object and no answer was read before', () => {
    const read = (body: unknown) => ({ results: (body as { items: object[] }).items.slice(), next: null });
    const { find } = completeDialect({ find: { read } }, FILE);
    expect(errorOf(() => find.read(null as never, QUESTION))).toMatchObject({ code: 'answer_invalid' });
    expect(errorOf(() => find.read({}, QUESTION))).toMatchObject({ code: 'configuration' });
    find.read({ items: [] }, QUESTION);
    expect(errorOf(() => find.read({}, QUESTION))).toMatchObject({ code: 'answer_invalid' });
  });

  it.each<[string, string, unknown]>([
    ['find', 'read', { results: [] }],
    ['find', 'read', { results: [], next: undefined }],
    ['find', 'read', { results: {}, next: null }],
    ['object', 'read', { id: '', fields: [] }],
    ['object', 'read', { id: 1, fields: [{ fieldId: 'f', values: [1] }] }],
    ['reservation', 'read', { id: 1, begin: Number.NaN, end: 2 }],
    ['cancellation', 'read', { id: 1, begin: 1, end: 1e15 }],
    ['write', 'read', [{ id: 1, status: 200 }]],
    ['authenticate', 'read', 'a token with blanks'],
    ['error', 'read', { message: 'no' }],
  ])('may not return from %s.%s: %o', (section, name, returned) => {
    const dialect = completeDialect({ [section]: { [name]: () => returned } }, FILE);
    const read = (dialect as unknown as Record<string, Record<string, (given: Json) => unknown>>)[section]?.[
      name
    ];
    expect(errorOf(() => read?.({}))).toMatchObject({
      code: 'answer_invalid',
      message: expect.stringContaining(`${section}.${name} of service-dialect.ts returns something else`),
    });
  });

  it.each([['a-17'], ['1001'], [1001]])('may name an object %j, which is stored as text', (id) => {
    const dialect = completeDialect({ object: { read: () => ({ id: id as string, fields: [] }) } }, FILE);
    expect(dialect.object.read({}, true).id).toBe(String(id));
  });

  it('throws with the name of its function when error.read returns something else', () => {
    const dialect = completeDialect({ error: { read: () => 7 } }, FILE);
    expect(() => dialect.error.read({})).toThrow('error.read of service-dialect.ts');
  });
});
