// Guarantee 6
// Creates whose objects exist at the service: values that people keep there are not overwritten without approval. Checked as
// an operator sees it: objects at the service, rows of the state, runs and gates.
import { expect, it } from 'vitest';
import { forgetKey } from '../../src/state/records/forget-key.js';
import { linkRecords, unlinkRecords } from '../../src/state/records/links.js';
import { retryRecords } from '../../src/state/records/retry-records.js';
import { readGates } from '../../src/state/gates/gates.js';
import { readRun } from '../../src/state/runs/read-runs.js';
import { startRun } from '../../src/state/runs/start-run.js';
import { previewStream } from '../../src/sync/plan/preview.js';
import type { SlotsyncConfig } from '../../src/streams/config-schema.js';
import { COURSES, ROOMS, type Declaration } from '../support/campus.js';
import type { World } from '../support/world.js';
import { keepWorlds } from '../support/worlds.js';
import { reasonHeld } from '../support/held-reason.js';

const rooms = (changes: Partial<Declaration> = {}): SlotsyncConfig => ({
  streams: { rooms: { ...ROOMS, ...changes } },
});
const openWorld = keepWorlds();

const codes = (count: number, from = 0) =>
  Array.from({ length: count }, (_, at) => `r${String(from + at).padStart(3, '0')}`);
const nameThere = (world: World, code: string) => world.fieldsOf(`room_${code}`)?.['room.name'];
const put = (world: World, extId: string, typeId: string, fields: Record<string, string>) =>
  world.sandbox.putObject({
    extId,
    typeId,
    active: true,
    fields: Object.entries(fields).map(([fieldId, value]) => ({ fieldId, values: [value] })),
  });

/** Opens rooms in the mirror, some of which exist at the service with names entered by hand. */
async function open(config: SlotsyncConfig, count: number, byHand: number, equal = 0): Promise<World> {
  const world = await openWorld(config);
  await world.sql`CREATE TABLE rooms (code text PRIMARY KEY, name text)`;
  await world.sql`INSERT INTO rooms SELECT c, 'Room ' || c FROM unnest(${codes(count)}::text[]) AS c`;
  for (const code of codes(byHand)) put(world, `room_${code}`, 'room', { 'room.name': `By hand ${code}` });
  for (const code of codes(equal, byHand))
    put(world, `room_${code}`, 'room', { 'room.name': `Room ${code}` });
  world.sandbox.clearArrivals();
  return world;
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
  expect(nameThere(world, 'r039')).toBe('By hand r039');
  expect(nameThere(world, 'r049')).toBe('Room r049');

  // The rest of the stream is accepted now: what is held does not become a plain create by that.
  const { run: next } = await world.sync();
  expect(next).toMatchObject({ status: 'held', holds: { rooms: { overwrite: { count: 40 } } } });
  expect(nameThere(world, 'r000')).toBe('By hand r000');
  expect(await readGates(world.state.db)).toMatchObject([{ runId: next.id, operation: 'overwrite' }]);

  expect((await world.approve(next.id)).run).toMatchObject({
    status: 'succeeded',
    counts: { rooms: { synced: 40 } },
  });
  expect(nameThere(world, 'r000')).toBe('Room r000');
  expect((await world.sync()).run.plan['rooms']).toMatchObject({ create: 0, unchanged: 50 });
});

it('overwriting of single keys from the inbox counts together within a day', async () => {
  const world = await open(rooms({ limits: { overwrite: { count: 2, percent: 10 } } }), 40, 40);
  for (const code of codes(3, 10)) {
    const { runId, queue } = await world.planChanges('rooms', code);
    await world.finish(runId, queue);
  }
  expect(await readGates(world.state.db)).toMatchObject([{ operation: 'overwrite', count: 1 }]);
  const held = await world.planChanges('rooms', ...codes(3));
  expect(held.queue).toEqual([]);
  expect(nameThere(world, 'r000')).toBe('By hand r000');
  expect(codes(3, 10).map((code) => nameThere(world, code))).toEqual([
    'Room r010',
    'Room r011',
    'By hand r012',
  ]);
});

it('overwriting counts a record that was never accepted when it is tried again', async () => {
  const world = await open(rooms(), 20, 20);
  await world.sql`
    INSERT INTO slotsync.records (stream, local_key, status) SELECT 'rooms', c, 'failed' FROM unnest(${codes(20)}::text[]) AS c`;
  const { run } = await world.sync();
  expect(run).toMatchObject({ status: 'held', plan: { rooms: { retry: 20, overwrite: 20 } } });
  expect(nameThere(world, 'r000')).toBe('By hand r000');
});

it('overwriting counts the object of a record whose parent got another external id', async () => {
  const world = await open({ streams: { rooms: ROOMS, courses: COURSES } }, 1, 0);
  await world.sql`CREATE TABLE courses (code text PRIMARY KEY, name text, room text)`;
  await world.sync();
  world.configure({ streams: { rooms: { ...ROOMS, externalId: 'new_{code}' }, courses: COURSES } });
  await world.sync();
  await world.sql`INSERT INTO courses SELECT 'c' || i, 'Course ' || i, 'r000' FROM generate_series(1, 20) AS i`;
  await world.sql`INSERT INTO slotsync.records (stream, local_key, status)
    SELECT 'courses', 'c' || i, 'deferred' FROM generate_series(1, 20) AS i`;
  for (let i = 1; i <= 20; i++) put(world, `course_c${i}`, 'course', { 'course.name': 'By hand' });
  await retryRecords(world.state.db, { stream: 'rooms', keys: [] });
  expect((await world.sync()).run.holds).toMatchObject({ courses: { overwrite: { count: 20 } } });
  expect(await world.recordsOf('rooms')).toMatchObject({ r000: { external_id: 'new_r000' } });
  expect((await world.sync()).run.holds).toMatchObject({ courses: { overwrite: { count: 20 } } });
  expect(world.fieldsOf('course_c1')).toEqual({ 'course.name': 'By hand' });
});

it('overwriting counts the object of a record that let go of its former object', async () => {
  const world = await open(rooms({ limits: { overwrite: { count: 0, percent: 0 } } }), 1, 1);
  const { id } = world.sandbox.addObject({
    extId: 'hand',
    typeId: 'room',
    fields: [{ fieldId: 'room.name', values: ['Room r000'] }],
  });
  const link = {
    stream: 'rooms',
    localKey: 'r000',
    externalId: 'hand',
    destinationId: String(id),
    assignsId: false,
  };
  await linkRecords(world.state, [{ ...link, linkedBy: 'match', fields: null }]);
  expect((await world.sync()).run.status).toBe('succeeded');
  await unlinkRecords(world.state.db, 'rooms', ['r000']);
  await world.sync();
  await retryRecords(world.state.db, { stream: 'rooms', keys: [] });
  expect((await world.sync()).run.status).toBe('held');
  expect(nameThere(world, 'r000')).toBe('By hand r000');
});

it('overwriting is held although PostgreSQL cannot store the text of an object in a sample', async () => {
  const world = await open(rooms(), 20, 0);
  for (const code of codes(20)) put(world, `room_${code}`, 'room', { 'room.name': 'By\0hand\uD800' });
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
    put(world, `room_${code}`, 'room', { 'room.name': `By hand ${code}` });
  const { run } = await world.sync();
  expect(run).toMatchObject({ status: 'held', holds: { rooms: { overwrite: { count: 16 } } } });
  expect(nameThere(world, all.at(-1) ?? '')).toBe(`By hand ${all.at(-1)}`);
});

it('overwriting compares courses with their rooms before any room is accepted', async () => {
  const world = await openWorld({ streams: { rooms: ROOMS, courses: COURSES } });
  await world.sql`CREATE TABLE rooms (code text PRIMARY KEY, name text)`;
  await world.sql`CREATE TABLE courses (code text PRIMARY KEY, name text, room text)`;
  await world.sql`INSERT INTO rooms SELECT c, 'Room ' || c FROM unnest(${codes(20)}::text[]) AS c`;
  await world.sql`INSERT INTO courses SELECT c, 'Course', c FROM unnest(${codes(20)}::text[]) AS c`;
  for (const code of codes(20)) {
    put(world, `room_${code}`, 'room', { 'room.name': `Room ${code}` });
    put(world, `course_${code}`, 'course', { 'course.name': 'Course', 'course.room': `room_${code}` });
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
  for (const code of codes(20, 100)) put(world, `room_${code}`, 'lab', {});
  const { run } = await world.sync();
  expect(run.holds).toEqual({});
  expect(run.plan['rooms']?.overwrite ?? 0).toBe(0);
});

it('forgetting a key deletes its samples of overwriting', async () => {
  const world = await open(rooms(), 20, 20);
  const { run } = await world.sync();
  expect(await forgetKey(world.state.db, { stream: 'rooms', localKey: 'r001' })).toMatchObject({
    deleted: { held: 1, gates: 1, runs: 1 },
  });
  const [gate] = await readGates(world.state.db);
  expect(gate?.samples.map(({ key }) => key)).toEqual(['r000', 'r002']);
  const { holds } = (await readRun(world.state.db, run.id)) ?? {};
  expect(holds?.['rooms']?.overwrite?.samples?.map(({ key }) => key)).toEqual(['r000', 'r002']);
});

it('samples of overwriting do not name a forgotten parent', async () => {
  const world = await open({ streams: { rooms: ROOMS, courses: COURSES } }, 2, 0);
  await world.sql`CREATE TABLE courses (code text PRIMARY KEY, name text, room text)`;
  await world.sql`INSERT INTO courses SELECT 'c' || i, 'Course', CASE WHEN i = 1 THEN 'r000' ELSE 'r001' END
    FROM generate_series(1, 20) AS i`;
  for (let i = 1; i <= 20; i++) put(world, `course_c${i}`, 'course', { 'course.name': 'By hand' });
  const { run } = await world.sync();
  const before = run.holds['courses']?.overwrite;
  expect(before?.samples).toHaveLength(3);
  const fields = { 'course.room': { here: ['room_r000'], there: ['room_r001'] } };
  await world.sql`INSERT INTO slotsync.drift (stream, local_key, kind, fields, seen_at)
    VALUES ('courses', 'c1', 'changed', ${world.sql.json(fields)}, now())`;
  await world.sql`INSERT INTO slotsync.drift_events (stream, local_key, to_kind, fields)
    VALUES ('courses', 'c1', 'changed', ${world.sql.json(fields)})`;
  await forgetKey(world.state.db, { stream: 'rooms', localKey: 'r000' });
  const after = (await readRun(world.state.db, run.id))?.holds['courses']?.overwrite;
  expect(after).toMatchObject({ count: 20, facts: before?.facts });
  expect(after?.samples?.map(({ key }) => key)).toEqual(['c10', 'c11']);
  expect(await readGates(world.state.db)).toMatchObject([{ count: 20, samples: after?.samples }]);
  expect(
    await world.sql`SELECT fields FROM slotsync.drift UNION ALL SELECT fields FROM slotsync.drift_events`,
  ).toEqual([{ fields: null }, { fields: null }]);
});

it('overwriting finds a linked object without an external id by its number', async () => {
  const world = await open(rooms(), 20, 0);
  for (const code of codes(20)) {
    const { id } = world.sandbox.addObject({
      typeId: 'room',
      fields: [{ fieldId: 'room.name', values: ['By hand'] }],
    });
    await world.sql`
      INSERT INTO slotsync.links (stream, local_key, external_id, destination_id, assigns_id, linked_by)
      VALUES ('rooms', ${code}, ${`room_${code}`}, ${id}, true, 'match')`;
  }
  const { counts, samples } = await previewStream(world.deps(), world.stream('rooms'));
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
    await world.sql`INSERT INTO rooms SELECT c, 'Room ' || c FROM unnest(${keys}::text[]) AS c`;
    if (kind) {
      const request = {
        kind,
        lane: kind,
        startedBy: 'command',
        streams: ['rooms'],
        range: { keys },
      } as const;
      const { run } = await startRun(world.state.db, request);
      await world.finish(run.id, (await world.planRun(run.id)).queue);
    } else await world.sync();
  }
  expect(codes(6).filter((code) => nameThere(world, code) === `Room ${code}`)).toEqual(codes(most));
});
