// Guarantee 3
// Columns that change their names or types under unchanged values: every reading notices the change, even in a process
// that has read the source for a long time.
import { describe, expect, it } from 'vitest';
import { createMirror } from '../../src/mirror/mirror.js';
import { collect } from '../../src/mirror/source-reader.js';
import { createPoll } from '../../src/sync/detect/poll-cursor.js';
import { COURSES, keepRooms, ROOMS, rooms, type RoomWorld } from '../support/steps.js';

const open = keepRooms();
const SWAP = `ALTER TABLE rooms RENAME name TO former; ALTER TABLE rooms RENAME number TO name;
  ALTER TABLE rooms RENAME former TO number`;
const fields = { 'room.name': 'name', 'room.seats': 'number' };
const addRoom = (world: RoomWorld) =>
  world.sql`INSERT INTO rooms (code, name, number) VALUES ('A', 'Aula', '7'), ('B', 'Barn', '8')`;

describe('a sync', () => {
  it('sends rows again when two columns of a table swap their names, or two aliases of a query or view', async () => {
    const query = (columns: string) => `SELECT code, ${columns} FROM source`;
    const config = (columns: string) => {
      const declared = { ...ROOMS, fields };
      return {
        streams: {
          rooms: declared,
          asked: { ...declared, from: { query: query(columns) }, externalId: 'asked_{code}' },
          viewed: { ...declared, from: 'rooms_view', externalId: 'viewed_{code}' },
        },
      };
    };
    const world = await open(config('name, number'));
    await addRoom(world);
    await world.sql.unsafe(
      `CREATE TABLE source AS SELECT * FROM rooms; CREATE VIEW rooms_view AS ${query('name, number')}`,
    );
    await world.sync();
    await world.sql.unsafe(`${SWAP}; DROP VIEW rooms_view;
      CREATE VIEW rooms_view AS ${query('name AS number, number AS name')}`);
    await world.sync();
    const swapped = { 'room.name': '7', 'room.seats': 'Aula' };
    for (const extId of ['room_A', 'viewed_A'])
      expect([extId, world.fieldsOf(extId)]).toEqual([extId, swapped]);
    world.configure(config('name AS number, number AS name'));
    await world.sync();
    expect(world.fieldsOf('asked_A')).toEqual(swapped);
    await world.expectNothingToSend();
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
    await world.expectNothingToSend();
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
    await world.sql.unsafe(SWAP);
    const rows = (await world.mirror.readRows(stream, ['A', 'B'])).rows;
    const anew = await readAnew();
    expect(rows).toEqual(anew.rows);
    expect(rows.get('A')?.hash).not.toBe(before.rows.get('A')?.hash);
    expect(await read()).toEqual(anew);

    await world.sync();
    const poll = createPoll({ ...world.deps(), polling: { overlapSeconds: 0, lagSeconds: 0 } }, stream);
    expect(await poll()).toMatchObject({ put: 0 });
    const verified = await world.verify();
    expect(verified).toMatchObject({ drifting: 0, streams: [{ compared: 2, waiting: 0 }] });
  });

  it('finds rows by a key, an external id and a reference whose type has changed', async () => {
    const world = await open({
      streams: {
        rooms: { ...ROOMS, externalId: 'room_{seats}' },
        courses: { ...COURSES, fields: {} },
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
