// The recognition of a process's databases: when it is done, and when an earlier recognition counts.
import { expect, it } from 'vitest';
import { createRecognizer } from '../../src/sync/run/recognize-databases.js';
import { keepRoomWorlds, rooms } from '../support/room-worlds.js';

const open = keepRoomWorlds();
const MINUTE = 60_000;

async function openWithLooks() {
  const { state, mirror, log } = await open(rooms());
  await createRecognizer({ state, mirror, log }).both(); // the first look of all is taken twice
  const looks = { taken: 0, fails: false };
  const facts: typeof mirror.facts = async () => {
    looks.taken++;
    if (looks.fails) throw new Error('no answer');
    return mirror.facts();
  };
  return { looks, ...createRecognizer({ state, mirror: { facts }, log }) };
}

it('an earlier recognition counts for as long as is asked, even while it is under way', async () => {
  const { looks, both } = await openWithLooks();
  await Promise.all([both(MINUTE), both(MINUTE)]);
  await both(MINUTE);
  expect(looks.taken).toBe(1);
  await both();
  expect(looks.taken).toBe(2);
});

it('a failed recognition does not count, and does not stop the recognition of the state', async () => {
  const { looks, both, state } = await openWithLooks();
  looks.fails = true;
  await expect(both(MINUTE)).rejects.toThrow('no answer');
  await state(MINUTE);
  looks.fails = false;
  await both(MINUTE);
  expect(looks.taken).toBe(2);
});
