// Guarantee 3
// Columns that change their names or types under unchanged values: every reading notices the change, even in a process
// that has read the source for a long time.
import { describe, expect, it } from 'vitest';
import { createMirror } from '../../src/mirror/mirror.js';
import { collect } from '../../src/mirror/source-reader.js';
import { createPoll } from '../../src/sync/detect/poll-cursor.js';
import { verify } from '../../src/sync/verify/verify.js';
import { expectNothingToSend, keepRoomWorlds, ROOMS, rooms } from '../support/room-worlds.js';
import type { World } from '../support/world.js';

const open = keepRoomWorlds();
const fields = { 'room.name': 'name', 'room.seats': 'number' };
const addRoom = (world: World) =>
  world.sql`INSERT INTO rooms (code, name, number) VALUES ('A', 'Aula', '7'), ('B', 'Barn', '8')`;
const expectSwapped = async (world: World) => {
  await world.sync();
  expect(world.fieldsOf('room_A')).toEqual({ 'room.name': '7', 'room.seats': 'Aula' });
  await expectNothingToSend(world);
};

describe('a sync', () => {
  it('sends rows again when two columns of a table swap their names', async () => {
    const world = await open(rooms({ fields }));
    await addRoom(world);
    await world.sync();
    await world.sql.unsafe(`ALTER TABLE rooms RENAME name TO former; ALTER TABLE rooms RENAME number TO name;
      ALTER TABLE rooms RENAME former TO number`);
    await expectSwapped(world);
  });

  it('sends rows again when two aliases of a query are swapped', async () => {
    const from = { query: 'SELECT code, name, number FROM rooms' };
    const world = await open(rooms({ from, fields }));
    await addRoom(world);
    await world.sync();
    const swapped = { query: 'SELECT code, name AS number, number AS name FROM rooms' };
    world.configure(rooms({ from: swapped, fields }));
    await expectSwapped(world);
  });

  it('sends rows again when a view is created anew with swapped names', async () => {
    const world = await open(rooms({ from: 'rooms_view', fields }));
    await addRoom(world);
    await world.sql`CREATE VIEW rooms_view AS SELECT code, name, number FROM rooms`;
    await world.sync();
    await world.sql.unsafe(`DROP VIEW rooms_view;
      CREATE VIEW rooms_view AS SELECT code, name AS number, number AS name FROM rooms`);
    await expectSwapped(world);
  });

  it('sends rows again when a new column type changes the sent value of the same text', async () => {
    const world = await open(rooms({ fields: { 'room.name': 'open' } }));
    await world.sql`ALTER TABLE rooms ADD open boolean DEFAULT true`;
    await addRoom(world);
    await world.sync();
    expect(world.fieldsOf('room_A')).toEqual({ 'room.name': 'true' });
    await world.sql.unsafe(`ALTER TABLE rooms ALTER open DROP DEFAULT,
      ALTER open TYPE text USING CASE WHEN open THEN 't' ELSE 'f' END`);
    await world.sync();
    expect(world.fieldsOf('room_A')).toEqual({ 'room.name': 't' });
    await expectNothingToSend(world);
  });
});

describe('a process that has read the columns before', () => {
  it('reads the same rows and hashes as a new process, by every way of reading', async () => {
    const world = await open(rooms({ cursor: 'changed', fields }));
    await world.sql`ALTER TABLE rooms ADD changed timestamptz DEFAULT '2026-01-15 08:00:00+00'`;
    await addRoom(world);
    await world.sync();
    const stream = world.stream('rooms');
    const read = async (mirror = world.mirror) => {
      const range = { watermark: undefined, overlapSeconds: 0, lagSeconds: 0 };
      return {
        all: await collect(mirror.readHashes(stream)),
        polled: await collect(mirror.readByCursor(stream, range)),
        rows: (await mirror.readRows(stream, ['A', 'B'])).rows,
      };
    };
    const readAnew = async () => {
      const mirror = createMirror({ url: world.url });
      const anew = await read(mirror);
      await mirror.close();
      return anew;
    };
    const before = await read();
    expect(before).toEqual(await readAnew());
    await world.sql.unsafe(`ALTER TABLE rooms RENAME name TO former; ALTER TABLE rooms RENAME number TO name;
      ALTER TABLE rooms RENAME former TO number`);
    const rows = (await world.mirror.readRows(stream, ['A', 'B'])).rows;
    const anew = await readAnew();
    expect(rows).toEqual(anew.rows);
    expect(rows.get('A')?.hash).not.toBe(before.rows.get('A')?.hash);
    expect(await read()).toEqual(anew);

    await world.sync();
    const poll = createPoll({ ...world.deps(), polling: { overlapSeconds: 0, lagSeconds: 0 } }, stream);
    expect(await poll()).toMatchObject({ put: 0 });
    const verified = await verify(world.verifying());
    expect(verified).toMatchObject({ drifting: 0, streams: [{ compared: 2, waiting: 0 }] });
  });

  it('finds rows by a key, an external id and a reference whose type has changed', async () => {
    const world = await open({
      streams: {
        rooms: { ...ROOMS, externalId: 'room_{seats}' },
        courses: {
          from: 'courses',
          key: 'code',
          type: 'course',
          externalId: 'course_{code}',
          fields: {},
          references: { 'course.room': { stream: 'rooms', key: 'room' } },
        },
      },
    });
    const [parents, children] = [world.stream('rooms'), world.stream('courses')];
    await world.sql.unsafe(
      `INSERT INTO rooms VALUES ('1', 'A', 1); INSERT INTO courses VALUES ('10', 'X', '1')`,
    );
    const look = async () => [
      [...(await world.mirror.readRows(parents, ['1'])).rows.keys()],
      [...(await world.mirror.findKeysByExternalId(parents, ['room_1', 'room_0.0000001', 'room_1e-7']))],
      await world.mirror.findReferrers(children, 'rooms', ['1']),
    ];
    expect(await look()).toEqual([['1'], [['room_1', ['1']]], ['10']]);
    await world.sql.unsafe(`
      ALTER TABLE rooms ALTER code TYPE integer USING code::integer, ALTER seats TYPE double precision USING 1e-7;
      ALTER TABLE courses ALTER room TYPE integer[] USING ARRAY[room::integer]`);
    expect(await look()).toEqual([['1'], [['room_1e-7', ['1']]], ['10']]);
  });

  it('sees no change when a load recreates or renames the type of a column', async () => {
    const world = await open(rooms({ from: 'halls', fields: { 'room.name': 'kind' } }));
    const load = () =>
      world.sql.unsafe(`DROP TABLE IF EXISTS halls; DROP TYPE IF EXISTS kind, sort;
        CREATE TYPE kind AS ENUM ('lab', 'hall');
        CREATE TABLE halls AS SELECT code, kind FROM (VALUES ('A', 'lab'::kind), ('B', 'hall')) AS h (code, kind)`);
    await load();
    await world.sync();
    await load();
    expect((await world.sync()).run.plan).toMatchObject({ rooms: { unchanged: 2 } });
    await world.sql`ALTER TYPE kind RENAME TO sort`;
    expect((await world.sync()).run.plan).toMatchObject({ rooms: { unchanged: 2 } });
  });
});
