// Discovery: types and fields of the service, before anything is configured.
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { rehearseOnce } from '../support/rehearsals.js';

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

const world = rehearseOnce({ rows: 0, sandbox: { rate: 0, schema: SCHEMA, maxPage: 2 } });
beforeAll(async () => {
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

describe('discover', () => {
  it('counts the objects of every type, and those without an external id', async () => {
    const { types, fields } = await world.json<{ types: object[]; fields: object[] }>('discover --json');
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
    expect(world.puts()).toEqual([]);
  });

  it('writes the names as TypeScript, sorted and quoted, and overwrites only a file of its own', async () => {
    const file = path.join(world.folder, 'service.d.ts');
    for (const _ of ['first', 'second']) await world.read('discover --types service.d.ts');
    const text = await readFile(file, 'utf8');
    expect(text).toContain(
      "\n    | 'person.staff' // Personal\n    | 'room'; // Sal 'A' */ \\n och B\n  field:",
    );
    expect(text).toContain(`| 'O\\'Brien \\\\ "quoted" x`);
    expect(text.split('\n')[1]).toBe(`// organization demo at ${world.sandbox.url}`);

    await writeFile(file, 'export interface Service {}\n');
    await world.refuses('discover --types service.d.ts', 'is not overwritten');
    expect(await readFile(file, 'utf8')).toBe('export interface Service {}\n');
  });

  it('refuses to write names over a folder', async () => {
    await mkdir(path.join(world.folder, 'folder.d.ts'));
    await world.refuses('discover --types folder.d.ts', 'folder.d.ts is a folder');
  });

  it('writes no names when the service knows none, and says so', async () => {
    world.sandbox.defineSchema({ types: [], fields: [] });
    await world.ends('discover --types none.d.ts', 0, 'knows no types and no fields');
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
