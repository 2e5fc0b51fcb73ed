// Guarantees 2, 3, 4
// A write whose answer was lost, or whose process died, may land after all later writes. It is followed up, whatever became of
// its record meanwhile.
import { describe, expect, it } from 'vitest';
import { keepPlaces, type PlaceWorld } from '../support/steps.js';

const open = keepPlaces();

/** Lets the process die during the write of row 1, writes row 1 or its successor, and then lets the first write land. */
async function outlive(world: PlaceWorld, change: () => Promise<string[]>): Promise<void> {
  const end = await world.dieWhileWriting(await world.planOlder());
  const keys = await change();
  await world.send('places', ...keys);
  await end();
  world.sandbox.releaseLate();
}

/** The rules of a field. Neither takes the value of a lost write for a person's. */
const RULES = [['always'], ['changed']] as const;

describe.each(RULES)('a lost write of a process that died (write: %s)', (write) => {
  it.each([
    ['its key', 'y_{id}', 'y_1'],
    ['another column', 'y_{code}', 'y_A'],
  ])('does not stay over a newer write for its key (external id from %s)', async (_, externalId, extId) => {
    const world = await open({ externalId, write });
    await outlive(world, async () => {
      await world.rename(1, 'newer');
      return ['1'];
    });
    expect(world.nameOf(extId)).toBe('older');
    await world.passLateWrites();
    await world.drainInbox();
    expect(world.nameOf(extId)).toBe('newer');
    expect(await world.recordsOf('places')).toMatchObject({ 1: { status: 'synced', in_doubt: false } });
  });

  it('does not stay over a newer write for another key, without a sync', async () => {
    const world = await open({ write });
    await outlive(world, async () => {
      await world.replace('A', 2, 'newer');
      return ['2'];
    });
    expect(world.nameOf('y_A')).toBe('older');
    await world.passLateWrites();
    await world.drainInbox();
    expect(world.nameOf('y_A')).toBe('newer');
    expect(await world.recordsOf('places')).toMatchObject({ 2: { status: 'synced', in_doubt: false } });
  });
});

describe('a lost create that lands after its row has gone', () => {
  it.each([
    ['its key', 'y_{id}', 'y_1'],
    ['another column', 'y_{code}', 'y_A'],
  ])(
    'is retired then, although no object was there before (external id from %s)',
    async (_, externalId, extId) => {
      const world = await open({ externalId });
      await world.syncPlaces([9, 'Z', 'other']);
      await world.insert(1, 'A', 'first');
      const { runId, queue } = await world.plan();
      await world.loseAnswer({ queue });
      await world.sql`DELETE FROM places WHERE id = 1`;
      await world.finish(runId, queue);
      await world.sync();
      expect(world.sandbox.object(extId)).toBeUndefined();
      world.sandbox.releaseLate();
      expect(world.isActive(extId)).toBe(true);
      await world.passLateWrites();
      await world.drainInbox();
      await world.sync();
      expect(world.isActive(extId)).toBe(false);
    },
  );
});

describe('a lost write whose repetition is refused', () => {
  it('is followed up when it can no longer land, not when its refusal is checked again', async () => {
    const world = await open({ externalId: 'y_{id}' });
    await world.syncPlaces([1, 'A', 'first']);
    await world.rename(1, 'second');
    const deps = world.deps();
    // Ten minutes and a half: longer than a refusal waits for its second look.
    const destination = { ...deps.destination, lateWriteMs: 630_000 };
    const { queue } = await world.plan();
    world.sandbox.failNext({ method: 'PUT', path: '/objects', fault: 'late' });
    await expect(world.apply(queue[0] ?? 0, undefined, { ...deps, destination })).rejects.toMatchObject({
      code: 'answer_lost',
    });
    world.refuse('y_1');
    await world.apply(queue[0] ?? 0, undefined, { ...deps, destination });
    expect(await world.recordsOf('places')).toMatchObject({ 1: { status: 'failed', in_doubt: true } });
    expect(
      await world.sql`SELECT FROM slotsync.records WHERE check_after > now() + interval '9 minutes'`,
    ).toHaveLength(1);
  });
});
