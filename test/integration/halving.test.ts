// A request refused as a whole is halved until each refused record is alone.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { SlotsyncError } from '../../src/errors/errors.js';
import { addRooms, codes, expectInSync, keepRoomWorlds, rooms } from '../support/room-worlds.js';
import { until } from '../support/wait.js';

const open = keepRoomWorlds();

describe('a request refused as a whole', () => {
  it('is halved until the refused objects are alone, and all other objects are accepted', async () => {
    const world = await open(rooms());
    const all = codes(24);
    const refusals = fc.record({
      bad: fc.uniqueArray(fc.constantFrom(...all), { maxLength: 5 }),
      alone: fc.uniqueArray(fc.constantFrom(...all), { maxLength: 2 }),
      status: fc.constantFrom(400, 404, 409, 422),
    });
    let generation = 0;
    await fc.assert(
      fc.asyncProperty(refusals, async ({ bad, alone, status }) => {
        await world.sql`TRUNCATE rooms, slotsync.records, slotsync.runs, slotsync.batches CASCADE`;
        generation++;
        const own = (code: string) => `${code}_${generation}`;
        await addRooms(world, ...all.map(own));
        for (const code of alone)
          world.sandbox.refuseObject(`room_${own(code)}`, { status: 400, message: 'alone' });
        for (const code of bad)
          world.sandbox.refuseObject(`room_${own(code)}`, { status, message: 'spoils', wholeCall: true });
        world.sandbox.clearArrivals();
        const { errors } = await world.sync();

        expect(errors).toEqual([]);
        const refused = new Set([...bad, ...alone].map(own));
        expect(await world.statusesOf('rooms')).toEqual(
          Object.fromEntries(all.map((code) => [own(code), refused.has(own(code)) ? 'dead' : 'synced'])),
        );
        for (const code of all.map(own))
          expect(world.sandbox.object(`room_${code}`) !== undefined).toBe(!refused.has(code));
        const mostRequests = 1 + 2 * bad.length * Math.ceil(Math.log2(all.length));
        expect(world.writes().length).toBeLessThanOrEqual(mostRequests);
      }),
      { numRuns: 12 },
    );
  });

  it('keeps what was accepted when it is interrupted', async () => {
    const world = await open(rooms(), { sandbox: { maxObjects: 2 } });
    await addRooms(world, 'A', 'B', 'C', 'D');
    const { runId, queue } = await world.plan();
    // The first half is accepted; the second finds the service gone.
    world.sandbox.closeGate({ method: 'PUT', hold: 'answer', after: 1 });
    const applying = expect(world.apply(queue[0] ?? 0)).rejects.toBeInstanceOf(SlotsyncError);
    await until(() => world.sandbox.gate().held, { describe: 'the first half to be stored' });
    expect(world.sandbox.objects().map(({ extId }) => extId)).toEqual(['room_A', 'room_B']);
    world.sandbox.failNext({ path: '/objects', fault: 'reset' });
    world.sandbox.openGate();
    await applying;
    expect(await world.recordsOf('rooms')).toMatchObject({
      A: { status: 'synced', in_doubt: false },
      B: { status: 'synced', in_doubt: false },
      C: { status: 'pending', in_doubt: true },
      D: { status: 'pending', in_doubt: true },
    });
    await world.finish(runId, queue);
    await expectInSync(world);
  });
});
