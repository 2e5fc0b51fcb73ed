// Guarantee 1
// Several processes over one state: they share one quota in one place, at the lowest rate of all, and the batches in flight.
import { beforeEach, describe, expect, it } from 'vitest';
import { startPresence } from '../../src/queue/presence.js';
import { bindDestination, claimQuotaPlace, moveQuotaPlace } from '../../src/state/destination-binding.js';
import { notePresence, readPool, removeProcess } from '../../src/state/processes.js';
import { ROOMS } from '../support/campus.js';
import { keepWorlds } from '../support/worlds.js';
import type { World } from '../support/world.js';

const STATE = { id: 'state', address: 'the state database' };
const REDIS = { id: '5e3b/0', address: 'Redis at cache:6379/0' };
const RESTARTED = { ...REDIS, id: '77aa/0' };
const WORKER = { command: 'worker', host: 'north', pid: 7 };

const openWorld = keepWorlds();
let world: World;
beforeEach(async () => {
  world = await openWorld({ streams: { rooms: ROOMS } });
  await bindDestination(world.state, { baseUrl: 'http://x', organizationId: 'o', region: 'EU_EES' });
});

const claim = (place: typeof STATE, options: { own?: typeof WORKER; withinMs?: number } = {}) =>
  claimQuotaPlace(world.state, place, { withinMs: 0, ...options });

const readPlace = async () => {
  const [row] = await world.sql`SELECT quota_place AS place FROM slotsync.destination`;
  return row?.['place'] as string | null;
};

describe('the place of the quota', () => {
  it('is noted by the first process, and decided anew only when no other process is at work', async () => {
    await claim(STATE);
    expect(await readPlace()).toBe('state');
    await notePresence(world.state.db, { id: 'a', ...WORKER }, null);
    await claim(STATE);
    await expect(claim(REDIS)).rejects.toThrow(
      'quota and queue of this state are in the state database, but this process is set to Redis at cache:6379/0: two counters would exceed the quota; running: worker on north, process 7',
    );
    expect(await readPlace()).toBe('state');
    // Its own note refuses a process nothing.
    await claim(REDIS, { own: WORKER });
    expect(await readPlace()).toBe(REDIS.id);
    await expect(claim(STATE)).rejects.toThrow('quota and queue of this state are in Redis');
    await removeProcess(world.state.db, 'a');
    await claim(STATE);
    expect(await readPlace()).toBe('state');
  });

  it('stays while requests are answered, because commands that only read send them', async () => {
    await claim(STATE);
    await world.sql`UPDATE slotsync.destination SET answered_at = now() + interval '1 hour'`;
    await expect(claim(REDIS, { withinMs: 1500 })).rejects.toThrow('the state database');
    await world.sql`UPDATE slotsync.destination SET answered_at = now()`;
    await claim(REDIS, { withinMs: 1500 });
    expect(await readPlace()).toBe(REDIS.id);
  });

  it('waits for the processes at work to note that their Redis was restarted', async () => {
    await claim(REDIS);
    await notePresence(world.state.db, { id: 'a', ...WORKER }, null);
    const claiming = claim(RESTARTED, { withinMs: 20_000 });
    await moveQuotaPlace(world.state.db, REDIS.id, RESTARTED);
    await claiming;
    await moveQuotaPlace(world.state.db, REDIS.id, STATE); // of a process that has slept: another place is noted by now
    expect(await readPlace()).toBe(RESTARTED.id);
  });
});

describe('the pool of processes', () => {
  it('counts the other processes that send, and names the process with the least rate', async () => {
    const { db } = world.state;
    await notePresence(db, { id: 'a', ...WORKER, requestsPerSecond: 20 }, null);
    await notePresence(db, { id: 'b', ...WORKER, pid: 8, requestsPerSecond: 5 }, null);
    await notePresence(db, { id: 'c', ...WORKER, pid: 9 }, { code: 'service_failed', message: 'HTTP 503' });
    await notePresence(db, { id: 'd', ...WORKER, pid: 10, requestsPerSecond: 1 }, null);
    await world.sql`UPDATE slotsync.processes SET seen_at = now() - interval '31 seconds' WHERE id = 'd'`;
    const least = { requestsPerSecond: 5, process: 'worker on north, process 8' };
    expect(await notePresence(db, { id: 'a', ...WORKER, requestsPerSecond: 20 }, null)).toMatchObject({
      others: 1,
      least,
    });
    expect(await readPool(db)).toEqual({ others: 2, least });
  });

  it('is seen by a process from its start on', async () => {
    const { state, log } = world;
    await notePresence(state.db, { id: 'b', ...WORKER, requestsPerSecond: 5 }, null);
    const seen: unknown[] = [];
    const presence = await startPresence({
      state,
      log,
      command: 'worker',
      quota: {
        requestsPerSecond: 20,
        findPlace: async () => STATE,
        sees: ({ others, least }) => seen.push([others, least?.requestsPerSecond]),
      },
    });
    expect(seen).toEqual([[1, 5]]);
    expect(presence.processes()).toBe(2);
    await presence.close();
  });
});
