// Discovery: types and fields of the service, before anything is configured.
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { rehearse, type Rehearsal } from '../support/rehearsal.js';

const SCHEMA = {
  types: [
    { extId: 'room', name: "Sal 'A' */ \n och B" },
    { extId: 'person.staff', name: 'Personal' },
    { extId: `O'Brien \\ "quoted" ${'x'.repeat(60)}` },
    { extId: null, name: 'Made by hand' },
  ],
  fields: [
    { extId: 'room.name', name: 'Name' },
    { extId: 'room.seats' },
    { extId: 'comment', name: 'Comment' },
    { extId: null },
  ],
};

let world: Rehearsal;
beforeAll(async () => {
  world = await rehearse({ rows: 0, sandbox: { rate: 0, schema: SCHEMA, maxPage: 2 } });
  await rm(path.join(world.folder, 'sync.config.ts'));
  const named = (name: string) => [{ fieldId: 'room.name', values: [name] }];
  for (const name of ['A', 'B', 'C'])
    world.sandbox.putObject({ extId: `room_${name}`, typeId: 'room', fields: named(name) });
  world.sandbox.addObject({ typeId: 'room', active: false, fields: named('D') });
  world.sandbox.addObject({
    typeId: 'person.staff',
    fields: [{ fieldId: 'comment', values: ['x'] }],
  });
});
afterAll(() => world.close());

describe('discover', () => {
  it('counts the objects of every type, and those without an external id', async () => {
    const { code, stdout } = await world.run(['discover', '--json']);
    expect(code).toBe(0);
    const { types, fields } = JSON.parse(stdout) as { types: object[]; fields: object[] };
    expect(types).toMatchObject([
      { extId: 'room', objects: 4, withoutExtId: 1 },
      { extId: 'person.staff', name: 'Personal', objects: 1, withoutExtId: 1 },
      { objects: 0, withoutExtId: 0 },
      { name: 'Made by hand' },
    ]);
    expect(types[3]).not.toHaveProperty('objects');
    expect(fields).toMatchObject([
      { extId: 'room.name', types: ['room'], filled: 4 },
      { extId: 'room.seats', types: [], filled: 0 },
      { extId: 'comment', types: ['person.staff'], filled: 1 },
      {},
    ]);
    expect(world.sandbox.arrivals().filter(({ method }) => method === 'PUT')).toEqual([]);
  });

  it('writes the names as TypeScript, sorted and quoted, and overwrites only a file of its own', async () => {
    const file = path.join(world.folder, 'service.d.ts');
    for (const time of ['first', 'second']) {
      const { code } = await world.run(['discover', '--types', 'service.d.ts']);
      expect(code, time).toBe(0);
    }
    const text = await readFile(file, 'utf8');
    expect(text).toContain(
      "\n    | 'person.staff' // Personal\n    | 'room'; // Sal 'A' */ \\n och B\n  field:",
    );
    expect(text).toContain(`| 'O\\'Brien \\\\ "quoted" x`);
    expect(text.split('\n')[1]).toBe(`// organization demo at ${world.sandbox.url}`);

    await writeFile(file, 'export interface Service {}\n');
    const refused = await world.run(['discover', '--types', 'service.d.ts']);
    expect([refused.code, refused.stderr]).toEqual([2, expect.stringContaining('is not overwritten')]);
    expect(await readFile(file, 'utf8')).toBe('export interface Service {}\n');
  });

  it.each([
    [
      'a folder that does not exist',
      'nowhere/service.d.ts',
      /nowhere\/service.d.ts cannot be written \(ENOENT\)/,
    ],
    ['a file of another kind', 'service.json', /'service\.json' does not end in \.ts/],
    [
      'an empty name',
      '',
      /--types writes TypeScript, and no file is named[^]*Name a file such as service\.d\.ts/,
    ],
    ['a folder in its place', 'folder.d.ts', /folder.d.ts is a folder/],
  ])('refuses to write names into %s', async (_, file, message) => {
    await mkdir(path.join(world.folder, 'folder.d.ts'), { recursive: true });
    const { code, stderr } = await world.run(['discover', '--types', file]);
    expect([code, stderr]).toEqual([2, expect.stringMatching(message)]);
  });

  it('writes no names when the service knows none, and says so', async () => {
    world.sandbox.defineSchema({ types: [], fields: [] });
    const { code, stdout } = await world.run(['discover', '--types', 'none.d.ts']);
    expect([code, stdout]).toEqual([0, expect.stringContaining('knows no types and no fields')]);
    await expect(readFile(path.join(world.folder, 'none.d.ts'))).rejects.toThrow('ENOENT');
    world.sandbox.defineSchema(SCHEMA);
  });

  it('uses the section `service` of a configuration', async () => {
    await world.configure(
      `export default { service: { prefix: '/elsewhere' }, streams: { rooms: { from: 'rooms', key: 'code',
        type: 'room', externalId: '{code}', fields: {} } } };`,
    );
    const { code, stderr } = await world.run(['discover']);
    expect([code, stderr]).toEqual([1, expect.stringContaining('/elsewhere')]);
    await rm(path.join(world.folder, 'sync.config.ts'));
  });
});
