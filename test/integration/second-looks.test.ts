// Guarantee 10
// Status and explain name the objects that are checked again, with reason and time.
import { statusOf } from '../support/status.js';
import { expect, it } from 'vitest';
import { recordDocument } from '../../src/documents/record.js';
import { answerToText } from '../../src/render/text.js';
import { explainRecord } from '../../src/sync/operator/explain.js';
import { addRooms, keepRoomWorlds, rooms } from '../support/room-worlds.js';
import type { World } from '../support/world.js';

const open = keepRoomWorlds();

async function explained(world: World, key: string): Promise<string> {
  const known = await explainRecord(world.deps(), world.stream('rooms'), key);
  return answerToText(recordDocument(known, known), { timeZone: 'UTC', columns: Infinity });
}

const status = (world: World) => statusOf(world.state);

const TIME = String.raw`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC`;

it('explain and status say that an answer was lost, and when the service is asked again', async () => {
  const world = await open(rooms({ owns: 'object' }));
  await addRooms(world, 'A', 'B');
  expect(await status(world)).not.toContain('checked again');
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
  expect(await status(world)).toMatch(count);
  await world.finish(runId, queue);
  expect(await explained(world, 'A')).toMatch(lost);
  expect(await explained(world, 'A')).not.toContain('In doubt');
});

it('explain says that an object refused alone is sent once more, and when', async () => {
  const world = await open(rooms());
  await addRooms(world, 'A');
  world.sandbox.refuseObject('room_A', { status: 422, message: 'no' });
  await world.sync();
  const text = await explained(world, 'A');
  expect(text).toMatch(
    new RegExp(`the service refused this object alone: slotsync sends it once more after ${TIME}`),
  );
  expect(text).not.toContain('answer was lost');
});
