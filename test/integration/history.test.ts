// The history of accepted writes: one short row for each write, for as long as the configuration says.
import { expect, it, vi } from 'vitest';
import { createAppBase, type App } from '../../src/app/app.js';
import { history } from '../../src/commands/explain.js';
import { checkConfiguration } from '../../src/config/config-file.js';
import { loadSettings } from '../../src/config/settings.js';
import { recordDocument } from '../../src/documents/record.js';
import { listWrites, pruneHistory } from '../../src/state/history.js';
import { forgetKey } from '../../src/state/records/forget-key.js';
import { checkHistory } from '../../src/sync/operator/check.js';
import { explainRecord } from '../../src/sync/operator/explain.js';
import { renameKey } from '../../src/sync/operator/rename-key.js';
import type { SlotsyncConfig } from '../../src/streams/config-schema.js';
import type { Declaration } from '../support/campus.js';
import { addRooms, codes, keepRoomWorlds, rename, rooms, roomsAndCourses } from '../support/room-worlds.js';
import type { World } from '../support/world.js';

const open = keepRoomWorlds();

const keeping = (
  history: 'names' | 'values' | 'none',
  changes: Partial<Declaration> = {},
): SlotsyncConfig => ({
  ...rooms({ retire: 'deactivate', ...changes }),
  history,
});
const writesOf = (world: World, localKey: string, stream = 'rooms') =>
  listWrites(world.state.db, { stream, localKey }, 10);
/** Returns operation and fields of each write, oldest first. */
const shortWrites = async (world: World, key: string) =>
  (await writesOf(world, key)).map(({ operation, fields }) => [operation, ...fields]).toReversed();
const rowsOf = async ({ sql }: World) => (await sql`SELECT FROM slotsync.history`).length;

it('the history notes a write with its changed fields, its author and its time', async () => {
  const world = await open(rooms({ retire: 'deactivate' }), { synced: ['A', 'B'] });
  await world.sql`UPDATE rooms SET seats = 4 WHERE code = 'A'`;
  const { run } = await world.sync();
  await world.sync();
  await world.sql`DELETE FROM rooms WHERE code = 'A'`;
  await world.sync();
  await addRooms(world, 'A');
  await world.planChanges('rooms', 'A').then(({ runId, queue }) => world.finish(runId, queue));
  expect(await shortWrites(world, 'A')).toEqual([
    ['create', 'room.name'],
    ['update', 'room.seats'],
    ['retire', 'active'],
    ['update', 'active', 'room.seats'],
  ]);
  expect(await shortWrites(world, 'B')).toEqual([['create', 'room.name']]);
  const [latest, , update] = await writesOf(world, 'A');
  expect(latest).toMatchObject({ startedBy: 'change', fieldValues: null });
  expect(update).toMatchObject({ startedBy: 'command', runId: run.id, at: expect.any(Date) });
  const [record] = await world.sql<{ at: Date }[]>`
    SELECT synced_at AS at FROM slotsync.records WHERE local_key = 'A'`;
  expect(latest?.at).toEqual(record?.at);
});

it('the history notes all sent fields of a write without a reading', async () => {
  const world = await open(rooms({ owns: 'object' }), { synced: ['A'] });
  await rename(world, 'A', 'Aula');
  await world.sync();
  expect(await shortWrites(world, 'A')).toEqual([
    ['create', 'room.name'],
    ['update', 'room.name', 'room.seats'],
  ]);
});

it('the history notes neither an equal object nor a refused write', async () => {
  const world = await open(rooms());
  await addRooms(world, 'A', 'B');
  const fields = [{ fieldId: 'room.name', values: ['Room A'] }];
  world.sandbox.putObject({ extId: 'room_A', typeId: 'room', active: true, fields });
  world.sandbox.refuseObject('room_B', { status: 400, message: 'no' });
  await world.sync();
  expect(await world.statusesOf('rooms')).toMatchObject({ A: 'synced' });
  expect(await rowsOf(world)).toBe(0);
});

it('the history keeps values where configured, old values only of objects that were read', async () => {
  const world = await open(keeping('values'), { synced: ['A'] });
  world.sandbox.changeObject('room_A', {
    fields: [{ fieldId: 'room.name', values: ['Old\0', 'x'.repeat(3000)] }],
  });
  await rename(world, 'A', 'Aula');
  await world.sync();
  const [update, create] = await writesOf(world, 'A');
  expect(create?.fieldValues).toEqual([{ field: 'room.name', new: ['Room A'] }]);
  expect(update?.fieldValues).toEqual([
    { field: 'room.name', old: ['Old', 'x'.repeat(2000)], new: ['Aula'] },
  ]);
});

it('the history settles a record although PostgreSQL cannot store the name of a field', async () => {
  const retire = { deactivate: true, fields: { 'room.name': 'closed' } } as const;
  const world = await open(rooms({ owns: 'object', retire }), { synced: ['A', 'B'] });
  await world.sql`DELETE FROM rooms WHERE code = 'A'`;
  await world.sync();
  const foreign = ['room.\0', 'room.\ud800'].map((fieldId) => ({ fieldId, values: ['by hand'] }));
  world.sandbox.changeObject('room_A', { fields: foreign });
  await addRooms(world, 'A');
  expect((await world.sync()).errors).toEqual([]);
  expect(await world.statusesOf('rooms')).toMatchObject({ A: 'synced' });
});

it('the history stays empty with `none`', async () => {
  const world = await open(keeping('none'), { synced: ['A'] });
  expect(await rowsOf(world)).toBe(0);
});

it('the history notes a write after a lost claim only with the batch that settles the record', async () => {
  const world = await open(rooms());
  await addRooms(world, 'A', 'B');
  const { runId, queue } = await world.plan();
  const { ended } = await world.applyHeld(queue[0] ?? 0, { method: 'PUT', hold: 'answer' });
  await world.sql`UPDATE slotsync.records SET claimed_by = 'another' WHERE local_key = 'A'`;
  world.sandbox.openGate();
  await expect(ended).rejects.toMatchObject({ code: 'claimed' });
  expect([await shortWrites(world, 'A'), await shortWrites(world, 'B')]).toEqual([
    [],
    [['create', 'room.name']],
  ]);
  await world.sql`UPDATE slotsync.records SET claimed_until = now() - interval '1 hour' WHERE local_key = 'A'`;
  await rename(world, 'A', 'Aula');
  await world.finish(runId, queue);
  expect(await shortWrites(world, 'A')).toEqual([['create', 'room.name']]);
  expect(await rowsOf(world)).toBe(2);
});

it('the history stores each kind of write once', async () => {
  const world = await open(rooms({ batchSize: 5 }), { synced: codes(20) });
  await world.sql`UPDATE rooms SET seats = 1`;
  await world.sync();
  expect(await rowsOf(world)).toBe(40);
  expect(await world.sql`SELECT operation, fields FROM slotsync.history_kinds ORDER BY 1`).toEqual([
    { operation: 'create', fields: ['room.name'] },
    { operation: 'update', fields: ['room.seats'] },
  ]);
});

it('the history follows a renamed key', async () => {
  const world = await open(rooms(), { synced: ['A', 'C'] });
  await world.sql`UPDATE rooms SET code = 'B' WHERE code = 'A'`;
  await renameKey(world.deps(), world.stream('rooms'), { from: 'A', to: 'B' });
  expect([await shortWrites(world, 'A'), await shortWrites(world, 'B')]).toEqual([
    [],
    [['create', 'room.name']],
  ]);
  expect(await shortWrites(world, 'C')).toHaveLength(1);
});

it('the history loses the writes of a forgotten key, and its values in writes of other records', async () => {
  const world = await open({ ...roomsAndCourses(), history: 'values' });
  await addRooms(world, 'A');
  await world.sql`INSERT INTO courses VALUES ('A', 'One', 'A'), ('c2', 'Two', NULL)`;
  await world.sync();
  await forgetKey(world.state.db, { stream: 'rooms', localKey: 'A' });
  expect(await writesOf(world, 'A')).toEqual([]);
  expect(await writesOf(world, 'A', 'courses')).toMatchObject([
    { fields: ['course.name', 'course.room'], fieldValues: null },
  ]);
  expect(await writesOf(world, 'c2', 'courses')).toMatchObject([{ fieldValues: [{ new: ['Two'] }] }]);
});

it('the history deletes rows after `historyDays`', async () => {
  const world = await open({ ...rooms(), historyDays: 30 }, { synced: ['A', 'B'] });
  const age = (days: number, key: string) =>
    world.sql`UPDATE slotsync.history SET at = now() - make_interval(days => ${days}) WHERE local_key = ${key}`;
  await age(31, 'A');
  await age(29, 'B');
  await world.sync();
  expect([await shortWrites(world, 'A'), await shortWrites(world, 'B')]).toEqual([
    [],
    [['create', 'room.name']],
  ]);
});

it('the history deletes more rows than one statement deletes', async () => {
  const world = await open(rooms());
  await world.sql`INSERT INTO slotsync.history (at, run_id, kind_id, local_key)
    SELECT now() - interval '91 days', 1, 1, n::text FROM generate_series(1, 45000) AS n`;
  await pruneHistory(world.state.db, {});
  expect(await rowsOf(world)).toBe(0);
});

it('the history deletes values that are kept no longer at the next sync, as check announces', async () => {
  const world = await open(keeping('values'), { synced: ['A', 'B'] });
  const finding = async (history: 'names' | 'values') => {
    const found: unknown[] = [];
    for await (const one of checkHistory(world.state.db, { history })) found.push(one);
    return found;
  };
  expect(await finding('values')).toEqual([]);
  expect(await finding('names')).toMatchObject([
    {
      result: 'warning',
      text: "the history still has values of fields, and the configuration has history: 'names'",
      remedy: 'The next sync deletes them.',
    },
  ]);
  world.configure(keeping('names'));
  await world.sync();
  expect(await finding('names')).toEqual([]);
  expect(await writesOf(world, 'A')).toMatchObject([{ fields: ['room.name'], fieldValues: null }]);
  world.configure(keeping('none'));
  await world.sync();
  expect(await rowsOf(world)).toBe(0);
});

it('the history is shown by its command, and the latest writes by explain', async () => {
  const world = await open(keeping('values'), { synced: ['A'] });
  for (let at = 1; at <= 6; at++) {
    await rename(world, 'A', `Aula ${at}`);
    await world.sync();
  }
  const explained = await explainRecord(world.deps(), world.stream('rooms'), 'A');
  expect(explained.writes).toHaveLength(5);
  const { points = [] } =
    recordDocument(explained, explained).sections.find(({ id }) => id === 'writes') ?? {};
  expect(points.map(({ details }) => details)[0]).toEqual(['room.name: "Aula 5" → "Aula 6"']);
  expect(points).toHaveLength(5);
  const output = vi.spyOn(process.stdout, 'write').mockReturnValue(true);
  const settings = loadSettings(['state'], { STATE_DATABASE_URL: world.url });
  const parts = { configuration: checkConfiguration(keeping('values')), state: world.state };
  const app = createAppBase(settings, world.log, { command: 'history', parts });
  const printed = async (key: string, options: { limit: number; json?: boolean }) => {
    output.mockClear();
    await history(app as unknown as App, 'rooms', [key], options);
    return output.mock.calls.map(([text]) => String(text)).join('');
  };
  try {
    const shown = await printed('A', { limit: 2 });
    expect(shown).toMatch(/: update, run 7, started by a command\n +room\.name: "Aula 5" → "Aula 6"\n/);
    expect(shown).not.toContain('Aula 4" → "Aula 3');
    expect(JSON.parse(await printed('A', { limit: 20, json: true }))).toMatchObject({
      stream: 'rooms',
      key: 'A',
      writes: [
        { runId: 7, operation: 'update', fields: ['room.name'] },
        {},
        {},
        {},
        {},
        {},
        { operation: 'create' },
      ],
    });
    expect(await printed('X', { limit: 1 })).toContain('No write is kept for this record');
    await expect(history(app as unknown as App, 'halls', ['A'], { limit: 1 })).rejects.toMatchObject({
      message: expect.stringContaining("no stream 'halls'"),
    });
  } finally {
    await app.close();
    output.mockRestore();
  }
});
