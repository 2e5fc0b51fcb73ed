// The effect of a refusal: it depends on whether the object or the service is the cause. Status and explain name the objects that
// are checked again. A record that was given up is sent again after a change.
import { describe, expect, it } from 'vitest';
import { recordDocument } from '../../src/documents/record.js';
import { answerToText } from '../../src/render/text.js';
import { addDueChecks } from '../../src/state/inbox/take-changes.js';
import { codes, keepRooms, rooms, statusOf, type RoomWorld } from '../support/steps.js';

const open = keepRooms();

/** Returns the seconds until the record is checked again. */
async function secondsToSecondLook(world: RoomWorld): Promise<number | null> {
  const [row] = await world.sql<{ seconds: number | null }[]>`
    SELECT extract(epoch FROM check_after - now())::float8 AS seconds FROM slotsync.records WHERE local_key = 'A'`;
  return row?.seconds ?? null;
}

/** Lets two minutes pass for every pending check. */
const pass = (world: RoomWorld) =>
  world.sql`UPDATE slotsync.records SET check_after = check_after - interval '2 minutes'`;

// Guarantee 10
describe('an object that is refused alone', () => {
  it('is sent again after two minutes, by no earlier run, and given up when it is refused again', async () => {
    const world = await open(rooms());
    await world.addRooms('A');
    world.refuse('room_A');
    const { run } = await world.sync();
    expect(run).toMatchObject({ status: 'partial', counts: { rooms: { failed: 1, dead: 0 } } });
    const error_message = expect.stringMatching(/^no; .*sent once more after 2 minutes/);
    const failed = { status: 'failed', error_code: 'refused_400', error_message, in_doubt: false };
    expect(await world.recordOf('A')).toMatchObject(failed);
    const seconds = await secondsToSecondLook(world);
    expect(seconds).toBeGreaterThan(60);
    expect(seconds).toBeLessThanOrEqual(120);

    await world.sql`UPDATE slotsync.records SET check_after = check_after - interval '1 minute'`;
    await world.sync();
    expect(await world.recordOf('A')).toMatchObject(failed);
    expect(await secondsToSecondLook(world)).toBeLessThanOrEqual(60);

    // When its second check is due, it is put into the inbox.
    expect(await addDueChecks(world.state.db, ['rooms'])).toBe(false);
    await pass(world);
    expect(await addDueChecks(world.state.db, ['rooms'])).toBe(true);
    expect(await world.sql`SELECT local_key FROM slotsync.changes`).toEqual([{ local_key: 'A' }]);
    expect(await world.recordOf('A')).toMatchObject(failed);
    const { run: second } = await world.sync();
    expect(second).toMatchObject({ status: 'partial', counts: { rooms: { failed: 0, dead: 1 } } });
    const dead = { status: 'dead', error_code: 'refused_400', error_message: 'no', in_doubt: false };
    expect(await world.recordOf('A')).toMatchObject(dead);
  });

  it('is checked again for another reason, for another row and after a retry', async () => {
    const world = await open(rooms());
    await world.addRooms('A');
    world.refuse('room_A');
    await world.sync();
    const changes: Record<string, () => unknown> = {
      'another reason': () => world.refuse('room_A', 422),
      'another row': () => world.rename('A', 'Aula'),
      'a retry': async () => {
        await world.retry('A');
        expect(await secondsToSecondLook(world)).toBeNull();
      },
    };
    for (const [name, change] of Object.entries(changes)) {
      await pass(world);
      await change();
      await world.sync();
      expect([name, await world.recordOf('A')]).toMatchObject([name, { status: 'failed', in_doubt: false }]);
      expect(await secondsToSecondLook(world)).toBeGreaterThan(60);
    }
    await pass(world);
    await world.sync();
    expect(await world.recordOf('A')).toMatchObject({ status: 'dead' });
  });

  it('may get another external id, because the service never had the first one', async () => {
    const world = await open(rooms({ externalId: 'room_{number}' }));
    await world.sql`INSERT INTO rooms (code, name, number) VALUES ('A', 'Room A', '1')`;
    world.refuse('room_1');
    await world.sync();
    await pass(world);
    await world.sync();
    expect(await world.recordOf('A')).toMatchObject({ status: 'dead' });
    await world.sql`UPDATE rooms SET number = '2'`;
    await world.sync();
    expect(await world.recordOf('A')).toMatchObject({ status: 'synced', external_id: 'room_2' });
  });

  it('is checked again if it was to be retired', async () => {
    const world = await open(rooms({ retire: 'deactivate' }), { synced: ['A', 'B'] });
    world.refuse('room_A', 409);
    await world.remove('A');
    await world.sync();
    expect(await world.recordOf('A')).toMatchObject({
      status: 'failed',
      error_code: 'retirement_refused_409',
    });
    await pass(world);
    await world.sync();
    expect(await world.recordOf('A')).toMatchObject({ status: 'dead', error_code: 'retirement_refused_409' });
  });
});

describe('a service that refuses everything for a while', () => {
  it.each([400, 404])('has no record given up by %i and JSON', async (status) => {
    const world = await open(rooms());
    await world.addRooms(...codes(20));
    world.sandbox.failNext({ path: '/objects', method: 'PUT', fault: 'status', status, times: 'always' });
    const { run } = await world.sync();
    expect(run).toMatchObject({ status: 'partial', counts: { rooms: { failed: 20, dead: 0 } } });
    await world.sync();
    world.sandbox.clearFailures();
    await pass(world);
    expect((await world.sync()).run).toMatchObject({ status: 'succeeded' });
    await world.expectInSync();
  });
});

it('a dead record is sent again when its row or mapping changes, or by a retry, and not by a sync alone', async () => {
  const world = await open(
    rooms({
      fields: {
        'room.name': (row) => {
          if (row.name === 'bad') throw new Error('this name cannot be mapped');
          return row.name;
        },
      },
    }),
  );
  await world.addRooms('A', 'B', 'C', 'D');
  await world.renameAll('bad', ['A', 'B']);
  world.refuse('room_C');
  await world.sync();
  expect(await world.statusesOf('rooms')).toEqual({ A: 'dead', B: 'dead', C: 'dead', D: 'synced' });
  world.sandbox.allowObject('room_C');
  await world.expectNothingToSend();
  await world.rename('A', 'good');
  await world.sync();
  expect(await world.statusesOf('rooms')).toMatchObject({ A: 'synced', B: 'dead', C: 'dead' });
  expect(await world.retry('C', 'unknown')).toEqual([
    { stream: 'rooms', localKey: 'C', code: 'refused_400' },
  ]);
  world.configure(rooms({ fields: { 'room.name': 'name' } }));
  await world.sync();
  await world.expectInSync();
});

async function explained(world: RoomWorld, key: string): Promise<string> {
  const known = await world.explain(key);
  return answerToText(recordDocument(known, known), { timeZone: 'UTC', columns: Infinity });
}

const TIME = String.raw`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC`;

it('explain and status say that an answer was lost, and when the service is asked again', async () => {
  const world = await open(rooms({ owns: 'object' }));
  await world.addRooms('A', 'B');
  expect(await statusOf(world.state)).not.toContain('checked again');
  const { queue, runId } = await world.plan();
  world.sandbox.failNext({ path: '/v1/objects', fault: 'loseAnswer' });
  await expect(world.apply(queue[0] ?? 0)).rejects.toMatchObject({ code: 'answer_lost' });
  const lost = new RegExp(
    `a write without an answer may still be carried out: slotsync reads the object after ${TIME}`,
  );
  expect(await explained(world, 'A')).toMatch(lost);
  expect(await explained(world, 'A')).toContain(
    'In doubt: the object may differ from what was accepted last',
  );
  const count = new RegExp(
    `2 objects will be checked again because an answer was lost or the service refused the object alone, the last after ${TIME}`,
  );
  expect(await statusOf(world.state)).toMatch(count);
  await world.finish(runId, queue);
  expect(await explained(world, 'A')).toMatch(lost);
  expect(await explained(world, 'A')).not.toContain('In doubt');
});

it('explain says that an object refused alone is sent once more, and when', async () => {
  const world = await open(rooms());
  await world.addRooms('A');
  world.refuse('room_A', 422);
  await world.sync();
  const text = await explained(world, 'A');
  expect(text).toMatch(
    new RegExp(`the service refused this object alone: slotsync sends it once more after ${TIME}`),
  );
  expect(text).not.toContain('answer was lost');
});
