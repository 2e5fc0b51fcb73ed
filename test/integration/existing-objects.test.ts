// Guarantee 6
// Creates whose objects exist at the service: values that people keep there are not overwritten without approval. Checked as
// an operator sees it: objects at the service, rows of the state, runs and gates.
import { expect, it } from 'vitest';
import { forgetKey } from '../../src/state/records/forget-key.js';
import { linkRecords, unlinkRecords } from '../../src/state/records/links.js';
import { readGates } from '../../src/state/gates/gates.js';
import { readRun } from '../../src/state/runs/read-runs.js';
import type { SlotsyncConfig } from '../../src/streams/config-schema.js';
import { codes, COURSES, keepRooms, reasonHeld, ROOMS, rooms, type RoomWorld } from '../support/steps.js';

const BOTH: SlotsyncConfig = { streams: { rooms: ROOMS, courses: COURSES } };
const openWorld = keepRooms();

/** Opens rooms in the mirror, some of which exist at the service with names entered by hand. */
async function open(config: SlotsyncConfig, count: number, byHand: number, equal = 0): Promise<RoomWorld> {
  const world = await openWorld(config);
  await world.addRooms(...codes(count));
  for (const code of codes(byHand)) world.addObject(`room_${code}`, { 'room.name': `By hand ${code}` });
  for (const code of codes(equal, byHand)) world.addObject(`room_${code}`, { 'room.name': `Room ${code}` });
  return world;
}
/** Adds the objects of twenty courses, whose names were entered by hand. */
function addCourseObjects(world: RoomWorld): void {
  for (let i = 1; i <= 20; i++) world.addObject(`course_c${i}`, { 'course.name': 'By hand' }, 'course');
}

it('overwriting beyond the limit is held with samples, every night until it is approved', async () => {
  const world = await open(rooms(), 50, 40, 5);
  const { run } = await world.sync();
  expect(run).toMatchObject({
    status: 'held',
    plan: { rooms: { create: 50, new: 5, equal: 5, overwrite: 40 } },
    counts: { rooms: { synced: 5, unchanged: 5 } },
  });
  const hold = run.holds['rooms']?.overwrite;
  expect(hold).toMatchObject({ count: 40, reason: 'limit' });
  expect(reasonHeld(run, 'rooms', 'overwrite')).toContain(
    '40 of 50 records that were never accepted would overwrite objects',
  );
  expect(reasonHeld(run, 'rooms', 'overwrite')).toContain(
    `slotsync approve ${run.id} --stream rooms --operation overwrite`,
  );
  expect(hold?.samples).toHaveLength(3);
  expect(hold?.samples?.[0]).toEqual({
    key: 'r000',
    externalId: 'room_r000',
    changes: [{ field: 'room.name', old: ['By hand r000'], new: ['Room r000'] }],
  });
  expect(world.nameOf('r039')).toBe('By hand r039');
  expect(world.nameOf('r049')).toBe('Room r049');

  // The rest of the stream is accepted now: what is held does not become a plain create by that.
  const { run: next } = await world.sync();
  expect(next).toMatchObject({ status: 'held', holds: { rooms: { overwrite: { count: 40 } } } });
  expect(world.nameOf('r000')).toBe('By hand r000');
  expect(await readGates(world.state.db)).toMatchObject([{ runId: next.id, operation: 'overwrite' }]);

  expect((await world.approve(next.id)).run).toMatchObject({
    status: 'succeeded',
    counts: { rooms: { synced: 40 } },
  });
  expect(world.nameOf('r000')).toBe('Room r000');
  expect((await world.sync()).run.plan['rooms']).toMatchObject({ create: 0, unchanged: 50 });
});

it('overwriting of single keys from the inbox counts together within a day', async () => {
  const world = await open(rooms({ limits: { overwrite: { count: 2, percent: 10 } } }), 40, 40);
  for (const code of codes(3, 10)) await world.send('rooms', code);
  expect(await readGates(world.state.db)).toMatchObject([{ operation: 'overwrite', count: 1 }]);
  const held = await world.planChanges('rooms', ...codes(3));
  expect(held.queue).toEqual([]);
  expect(world.nameOf('r000')).toBe('By hand r000');
  expect(codes(3, 10).map((code) => world.nameOf(code))).toEqual(['Room r010', 'Room r011', 'By hand r012']);
});

it('overwriting counts a record that was never accepted when it is tried again', async () => {
  const world = await open(rooms(), 20, 20);
  await world.sql`
    INSERT INTO slotsync.records (stream, local_key, status) SELECT 'rooms', c, 'failed' FROM unnest(${codes(20)}::text[]) AS c`;
  const { run } = await world.sync();
  expect(run).toMatchObject({ status: 'held', plan: { rooms: { retry: 20, overwrite: 20 } } });
  expect(world.nameOf('r000')).toBe('By hand r000');
});

it('overwriting counts the object of a record whose parent got another external id', async () => {
  const world = await open(BOTH, 1, 0);
  await world.sync();
  world.configure({ streams: { rooms: { ...ROOMS, externalId: 'new_{code}' }, courses: COURSES } });
  await world.sync();
  await world.sql`INSERT INTO courses SELECT 'c' || i, 'Course ' || i, 'r000' FROM generate_series(1, 20) AS i`;
  await world.sql`INSERT INTO slotsync.records (stream, local_key, status)
    SELECT 'courses', 'c' || i, 'deferred' FROM generate_series(1, 20) AS i`;
  addCourseObjects(world);
  await world.retry();
  expect((await world.sync()).run.holds).toMatchObject({ courses: { overwrite: { count: 20 } } });
  expect(await world.recordsOf('rooms')).toMatchObject({ r000: { external_id: 'new_r000' } });
  expect((await world.sync()).run.holds).toMatchObject({ courses: { overwrite: { count: 20 } } });
  expect(world.fieldsOf('course_c1')).toEqual({ 'course.name': 'By hand' });
});

it('overwriting counts the object of a record that let go of its former object', async () => {
  const world = await open(rooms({ limits: { overwrite: { count: 0, percent: 0 } } }), 1, 1);
  const { id } = world.addObject('hand', { 'room.name': 'Room r000' });
  const link = { stream: 'rooms', localKey: 'r000', externalId: 'hand', assignsId: false };
  await linkRecords(world.state, [{ ...link, destinationId: String(id), linkedBy: 'match', fields: null }]);
  expect((await world.sync()).run.status).toBe('succeeded');
  await unlinkRecords(world.state.db, 'rooms', ['r000']);
  await world.sync();
  await world.retry();
  expect((await world.sync()).run.status).toBe('held');
  expect(world.nameOf('r000')).toBe('By hand r000');
});

it('overwriting is held although PostgreSQL cannot store the text of an object in a sample', async () => {
  const world = await open(rooms(), 20, 0);
  for (const code of codes(20)) world.addObject(`room_${code}`, { 'room.name': 'By\0hand\uD800' });
  const { run, errors } = await world.sync();
  expect(errors).toEqual([]);
  expect(run.holds['rooms']?.overwrite?.samples?.[0]?.changes).toEqual([
    { field: 'room.name', old: ['Byhand\uFFFD'], new: ['Room r000'] },
  ]);
});

it('overwriting counts together over several lists of creates', async () => {
  const world = await open(rooms({ limits: { overwrite: { count: 10, percent: 0 } } }), 1008, 0);
  const all = codes(1008).toSorted();
  for (const code of [...all.slice(0, 8), ...all.slice(-8)])
    world.addObject(`room_${code}`, { 'room.name': `By hand ${code}` });
  const { run } = await world.sync();
  expect(run).toMatchObject({ status: 'held', holds: { rooms: { overwrite: { count: 16 } } } });
  expect(world.nameOf(all.at(-1) ?? '')).toBe(`By hand ${all.at(-1)}`);
});

it('overwriting compares courses with their rooms before any room is accepted', async () => {
  const world = await openWorld(BOTH);
  await world.addRooms(...codes(20));
  await world.sql`INSERT INTO courses SELECT c, 'Course', c FROM unnest(${codes(20)}::text[]) AS c`;
  for (const code of codes(20)) {
    world.addObject(`room_${code}`, { 'room.name': `Room ${code}` });
    const course = { 'course.name': 'Course', 'course.room': `room_${code}` };
    world.addObject(`course_${code}`, course, 'course');
  }
  expect((await world.sync()).run).toMatchObject({
    status: 'succeeded',
    plan: { rooms: { equal: 20, overwrite: 0 }, courses: { equal: 20, overwrite: 0 } },
  });
  expect(world.writes()).toEqual([]);
});

it('overwriting counts no objects of another type and no objects of our own records', async () => {
  const world = await open(rooms({ externalId: 'room_{name}', retire: 'deactivate' }), 20, 0);
  await world.sync();
  // The same rooms under other keys, and rooms whose objects are of another type.
  await world.sql`UPDATE slotsync.records SET status = 'retired'`;
  for (const { extId, typeId, fields } of world.sandbox.objects())
    world.sandbox.putObject({ extId, typeId, fields, active: false });
  await world.sql`UPDATE rooms SET code = 'new ' || code`;
  await world.sql`INSERT INTO rooms SELECT c, c FROM unnest(${codes(20, 100)}::text[]) AS c`;
  for (const code of codes(20, 100)) world.addObject(`room_${code}`, {}, 'lab');
  const { run } = await world.sync();
  expect(run.holds).toEqual({});
  expect(run.plan['rooms']?.overwrite ?? 0).toBe(0);
});

it('samples of overwriting name neither a forgotten parent nor a forgotten key', async () => {
  const world = await open(BOTH, 2, 0);
  await world.sql`INSERT INTO courses SELECT 'c' || i, 'Course', CASE WHEN i = 1 THEN 'r000' ELSE 'r001' END
    FROM generate_series(1, 20) AS i`;
  addCourseObjects(world);
  const { run } = await world.sync();
  const holdOf = async () => (await readRun(world.state.db, run.id))?.holds['courses']?.overwrite;
  const before = run.holds['courses']?.overwrite;
  expect(before?.samples).toHaveLength(3);
  const fields = { 'course.room': { here: ['room_r000'], there: ['room_r001'] } };
  await world.sql`INSERT INTO slotsync.drift (stream, local_key, kind, fields, seen_at)
    VALUES ('courses', 'c1', 'changed', ${world.sql.json(fields)}, now())`;
  await world.sql`INSERT INTO slotsync.drift_events (stream, local_key, to_kind, fields)
    VALUES ('courses', 'c1', 'changed', ${world.sql.json(fields)})`;
  await forgetKey(world.state.db, { stream: 'rooms', localKey: 'r000' });
  const after = await holdOf();
  expect(after).toMatchObject({ count: 20, facts: before?.facts });
  expect(after?.samples?.map(({ key }) => key)).toEqual(['c10', 'c11']);
  expect(await readGates(world.state.db)).toMatchObject([{ count: 20, samples: after?.samples }]);
  expect(
    await world.sql`SELECT fields FROM slotsync.drift UNION ALL SELECT fields FROM slotsync.drift_events`,
  ).toEqual([{ fields: null }, { fields: null }]);
  // A key's own sample goes with its hold.
  expect(await forgetKey(world.state.db, { stream: 'courses', localKey: 'c10' })).toMatchObject({
    deleted: { held: 1, gates: 1, runs: 1 },
  });
  const [gate] = await readGates(world.state.db);
  for (const left of [gate, await holdOf()]) expect(left?.samples?.map(({ key }) => key)).toEqual(['c11']);
});

it('overwriting finds a linked object without an external id by its number', async () => {
  const world = await open(rooms(), 20, 0);
  for (const code of codes(20)) {
    const { id } = world.addObject(null, { 'room.name': 'By hand' });
    await world.sql`
      INSERT INTO slotsync.links (stream, local_key, external_id, destination_id, assigns_id, linked_by)
      VALUES ('rooms', ${code}, ${`room_${code}`}, ${id}, true, 'match')`;
  }
  const { counts, samples } = await world.preview();
  expect(counts).toMatchObject({ create: 0, update: 20, overwrite: 20 });
  expect(samples[0]).toMatchObject({
    operation: 'overwrite',
    externalId: 'room_r000',
    changes: [{ field: 'room.name', old: ['By hand'], new: ['Room r000'] }],
  });
});

it('a plan that fails in the middle of its readings returns their connections', async () => {
  const world = await open(rooms(), 2100, 0);
  const runId = await world.startRun('rooms');
  world.sandbox.failNext({ path: '/objects/find', fault: 'status', status: 500, times: 24 });
  for (let attempt = 0; attempt < 3; attempt++)
    await expect(world.planRun(runId)).rejects.toMatchObject({ code: 'service_failed' });
  await world.planRun(runId);
  expect(await readRun(world.state.db, runId)).toMatchObject({ status: 'running' });
});

it.each([
  // A plan with few creates asks for none when it is the first of the day.
  ['syncs', undefined, 4],
  ['backfills of parts', 'backfill', 2],
] as const)('overwriting by several %s counts together within a day', async (_, kind, most) => {
  const world = await open(rooms({ limits: { overwrite: { count: 2, percent: 10 } } }), 0, 20);
  for (const from of [0, 2, 4]) {
    const keys = codes(2, from);
    await world.addRooms(...keys);
    await (kind ? world.backfill({ keys }) : world.sync());
  }
  expect(codes(6).filter((code) => world.nameOf(code) === `Room ${code}`)).toEqual(codes(most));
});
