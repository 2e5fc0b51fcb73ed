// Guarantee 7
// Parents before children: a record whose reference is not at the service waits, and is sent when the parent has arrived.
import { describe, expect, it } from 'vitest';
import { readBatch } from '../../src/state/runs/batches.js';
import { codes, keepRooms, roomsAndCourses } from '../support/steps.js';

const open = keepRooms();

// Guarantee 7
describe('references between streams', () => {
  it('have parents sent first, whatever the order of the configuration', async () => {
    const world = await open(roomsAndCourses({ batchSize: 10 }), {
      sandbox: { references: 'call', schema: referring },
    });
    await world.addRooms(...codes(25));
    await world.sql`INSERT INTO courses SELECT 'c' || code, name, code FROM rooms`;
    const { runId, queue } = await world.plan();
    const first = await Promise.all(queue.map((id) => readBatch(world.state.db, id)));
    expect(first.map((batch) => batch?.stream)).toEqual(['rooms']);
    const { run, errors } = await world.finish(runId, queue);
    expect(errors).toEqual([]);
    expect(run).toMatchObject({ status: 'succeeded', counts: { courses: { synced: 25 } } });
    expect(world.fieldsOf('course_cr007')).toEqual({
      'course.name': 'Room r007',
      'course.room': 'room_r007',
    });
  });

  it('hold a child back until the run that sends its parent', async () => {
    const world = await open(roomsAndCourses(), { sandbox: { schema: referring } });
    await world.sql`INSERT INTO courses VALUES ('c1', 'One', 'A'), ('c2', 'Two', NULL)`;
    const { run } = await world.sync();
    expect(run.counts['courses']).toMatchObject({ synced: 1, deferred: 1, dead: 0 });
    expect(await world.recordsOf('courses')).toMatchObject({
      c1: {
        status: 'deferred',
        error_code: 'reference_missing',
        waits_for: '["rooms","A"]',
        object_hash: null,
      },
    });
    expect(world.sandbox.object('course_c1')).toBeUndefined();

    await world.addRooms('A');
    await world.sync();
    expect(world.fieldsOf('course_c1')).toEqual({ 'course.name': 'One', 'course.room': 'room_A' });
    expect(await world.recordsOf('courses')).toMatchObject({
      c1: { status: 'synced', waits_for: null, error_code: null },
    });
  });

  it('hold back only the child of a parent that is refused', async () => {
    const world = await open(roomsAndCourses(), { sandbox: { schema: referring } });
    await world.addRooms('A', 'B');
    await world.sql`INSERT INTO courses VALUES ('c1', 'One', 'A'), ('c2', 'Two', 'B')`;
    world.refuse('room_A');
    await world.sync();
    expect(await world.statusesOf('courses')).toEqual({ c1: 'deferred', c2: 'synced' });
    world.sandbox.allowObject('room_A');
    await world.retry('A');
    await world.sync();
    expect(await world.statusesOf('courses')).toEqual({ c1: 'synced', c2: 'synced' });
  });

  it('have a child given up after waitDays, and sent when its parent arrives', async () => {
    const world = await open(roomsAndCourses({ waitDays: 3 }), { sandbox: { schema: referring } });
    await world.sql`INSERT INTO courses VALUES ('c1', 'One', 'A')`;
    await world.sync();
    world.passDays(2.9);
    await world.sync();
    expect(await world.statusesOf('courses')).toEqual({ c1: 'deferred' });
    world.passDays(0.2);
    await world.sync();
    expect(await world.recordsOf('courses')).toMatchObject({
      c1: { status: 'dead', error_code: 'reference_never_came' },
    });
    await world.expectNothingToSend();

    await world.addRooms('A');
    await world.sync();
    await world.sync();
    expect(await world.statusesOf('courses')).toEqual({ c1: 'synced' });
    expect(world.fieldsOf('course_c1')).toMatchObject({ 'course.room': 'room_A' });
  });

  it('count the waiting of a child from its first try on', async () => {
    const world = await open(roomsAndCourses({ waitDays: 3 }), { sandbox: { schema: referring } });
    await world.sql`INSERT INTO courses VALUES ('c1', 'One', 'A')`;
    await world.sync();
    await world.sql`UPDATE slotsync.records SET waits_since = now() - interval '70 hours'`;
    await world.sync();
    expect(await world.statusesOf('courses')).toEqual({ c1: 'deferred' });
    world.passDays(0.2);
    await world.sync();
    expect(await world.recordsOf('courses')).toMatchObject({
      c1: { status: 'dead', error_code: 'reference_never_came' },
    });
  });

  it('have a child sent that was given up when its parent is found at the service', async () => {
    const world = await open(roomsAndCourses({ waitDays: 3 }), { sandbox: { schema: referring } });
    await world.sql`INSERT INTO courses VALUES ('c1', 'One', 'A')`;
    await world.sync();
    world.passDays(4);
    await world.sync();
    expect(await world.statusesOf('courses')).toEqual({ c1: 'dead' });
    world.addObject('room_A', { 'room.name': 'Room A' });
    await world.addRooms('A');
    await world.sync();
    await world.sync();
    expect(await world.statusesOf('courses')).toEqual({ c1: 'synced' });
  });

  const referring = {
    types: [{ extId: 'room' }, { extId: 'course' }],
    fields: [
      { extId: 'room.name', type: 'room' },
      { extId: 'room.seats', type: 'room' },
      { extId: 'course.name', type: 'course' },
      { extId: 'course.room', type: 'course', reference: 'room' },
    ],
  };
});
