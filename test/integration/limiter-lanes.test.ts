// Guarantee 1
// The order in which waiters get slots: lanes, places in line, and waiters that left. Both stores must behave the same.
import { randomUUID } from 'node:crypto';
import { setMaxListeners } from 'node:events';
import { setTimeout as pause } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import {
  createLimiter,
  LANES,
  type Lane,
  type Limiter,
  type SlotAnswer,
  type SlotStore,
} from '../../src/destination/quota/limiter.js';
import type { QuotaRules } from '../../src/destination/quota/quota-rules.js';
import { mostInAnySecond } from '../../src/sandbox/quota.js';
import { keepQuotaStores } from '../support/quota-stores.js';
import { until } from '../support/wait.js';

const { closers, stores } = keepQuotaStores();

/** Waiters register with a store that grants nothing for long, and take from a store that grants the next in line at once. */
interface Stage {
  register(id: string, lane: Lane): Promise<SlotAnswer>;
  /** How many slots were granted. */
  take(id: string, lane: Lane, wanted?: number): Promise<number>;
}
const LEASE_MS = 31_000;
/** Grants nothing for long, and keeps registered waiters for as long. */
const SHUT = { bootGuardMs: 60_000, pollMs: 30_000, lateMs: 30_000 };
/** Grants a slot to the next in line at once. */
const OPEN = { bookAheadMs: 600_000, pollMs: 30_000, lateMs: 30_000, paceMs: 1 };

describe.each(stores)('the lanes in $name', ({ there, connect }) => {
  const test = it.skipIf(!there).concurrent;

  /** A limiter of one key for each lane named, with a connection of its own, and what they ask of the store. */
  async function openLimiters(lanes: Lane[], rate: number, rules: Partial<QuotaRules> = {}) {
    const key = randomUUID();
    const asked = { takes: 0 };
    const limiters = await Promise.all(
      lanes.map(async (lane) => {
        const store = (await connect()).store(key, rate, { bootGuardMs: 20, ...rules });
        const counting: SlotStore = { ...store, take: (...args) => (asked.takes++, store.take(...args)) };
        const limiter = createLimiter({ store: counting });
        closers.push(() => limiter.close());
        return { lane, limiter };
      }),
    );
    return { limiters, asked, store: (await connect()).store(key, rate, rules) };
  }

  /** Two views of one limiter in which no time passes: waiters register with the one, and are granted by the other. */
  async function openStage(rate: number, changes: Partial<QuotaRules> = {}) {
    const [key, client] = [randomUUID(), await connect()];
    const shut = client.store(key, rate, { ...SHUT, ...changes });
    const opened = client.store(key, rate, { ...OPEN, ...changes });
    return {
      opened,
      register: (id: string, lane: Lane) => shut.take({ id, lane, wanted: 1 }, LEASE_MS),
      take: async (id: string, lane: Lane, wanted = 1) =>
        (await opened.take({ id, lane, wanted }, LEASE_MS)).grants.length,
    };
  }

  test('are served in order, by arrival within a lane, and now and then by arrival over all lanes', async () => {
    const { register, take } = await openStage(20, { anyLaneEvery: 4 });
    const waiters: [string, Lane][] = [
      ['b1', 'backfill'],
      ['v1', 'verify'],
      ['n1', 'sync'],
      ['i1', 'incremental'],
      ['i2', 'incremental'],
      ['i3', 'incremental'],
      ['n2', 'sync'],
      ['b2', 'backfill'],
    ];
    for (const waiter of waiters) expect((await register(...waiter)).grants).toEqual([]);
    const order: string[] = [];
    for (let round = 0; order.length < waiters.length && round < 20; round++) {
      for (const [id, lane] of waiters.toReversed()) {
        if (!order.includes(id) && (await take(id, lane)) === 1) order.push(id);
      }
    }
    // The fourth and the eighth grant ask for nobody's lane.
    expect(order).toEqual(['i1', 'i2', 'i3', 'b1', 'n1', 'n2', 'b2', 'v1']);
  });

  test('grant a waiter who is alone as many slots at once as one after another', async () => {
    const { register, take, opened } = await openStage(20);
    expect(await take('n1', 'sync', 3)).toBe(3);
    await register('n1', 'sync');
    expect(await take('n1', 'sync', 2)).toBe(2);
    await register('v1', 'verify');
    // It waits for the second one, in its place.
    const { grants, askMs } = await opened.take({ id: 'n1', lane: 'sync', wanted: 2 }, LEASE_MS);
    expect([grants.length, askMs]).toEqual([1, expect.any(Number)]);
    expect((await opened.usage()).waiting).toMatchObject({ sync: 1, verify: 1 });
    await opened.withdraw('v1');
    expect(await take('n1', 'sync', 2)).toBe(2);
  });

  test('grant no more slots ahead at once than one after another', async () => {
    const rules = { bootGuardMs: 0, paceMs: 1000, aheadMs: 0, bookAheadMs: 4500, pollMs: 60_000 };
    const store = (await connect()).store(randomUUID(), 20, rules);
    const { grants, askMs = 0 } = await store.take({ id: 'a', lane: 'sync', wanted: 20 }, LEASE_MS);
    expect(grants.map(({ waitMs }) => Math.round(waitMs / 1000))).toEqual([0, 1, 2, 3, 4]);
    expect(new Set(grants.map(({ token }) => token)).size).toBe(5);
    expect(askMs).toBeGreaterThan(0);
  });

  test('announce to each waiter when to ask again', async () => {
    const { register } = await openStage(20, {
      bootGuardMs: 10_000,
      paceMs: 2_000,
      pollMs: 100_000,
      anyLaneEvery: 5,
    });
    const FIRST_MS = 10_000 - 60 - 300; // when the first grant can be booked, and a little, for the calls take time
    const told: number[] = [];
    const began = performance.now();
    for (const [id, lane] of [
      ['v1', 'verify'],
      ['b1', 'backfill'],
      ['b2', 'backfill'],
      ['i1', 'incremental'],
      ['b3', 'backfill'],
      ['b4', 'backfill'],
      ['b5', 'backfill'],
    ] as const) {
      const { askMs = 0 } = await register(id, lane);
      told.push(Math.round((performance.now() - began + askMs - FIRST_MS) / 2_000));
    }
    // In grants from the first: b4 comes after the fifth one, which is v1's.
    expect(told).toEqual([0, 0, 1, 0, 3, 5, 6]);
  });

  test('pass over a waiter who does not ask in time, and keep his place', async () => {
    const { register, take } = await openStage(20, { bootGuardMs: 3_000, paceMs: 5_000, lateMs: 100 });
    await register('dead', 'incremental');
    await register('b1', 'backfill');
    expect(await take('b1', 'backfill')).toBe(0);
    const granted = async (id: string, lane: Lane) => (await take(id, lane)) === 1;
    await until(() => granted('b1', 'backfill'), { describe: 'the dead to be passed over' });
    expect((await register('i2', 'incremental')).grants).toEqual([]);
    expect(await granted('dead', 'incremental')).toBe(true);
  });

  test('forget a waiter who has not asked for long', async () => {
    const { register, take, opened } = await openStage(20, { pollMs: 1_000, lateMs: 50, forgetMs: 100 });
    await register('dead', 'sync');
    expect((await opened.usage()).waiting.sync).toBe(1);
    await until(async () => (await opened.usage()).waiting.sync === 0, { describe: 'him to be late' });
    const late = performance.now();
    await until(() => performance.now() - late > 100, { describe: 'him to be forgotten' });
    await register('b1', 'backfill');
    await register('n2', 'sync');
    await register('dead', 'sync');
    expect(await take('dead', 'sync')).toBe(0);
    expect(await take('n2', 'sync')).toBe(1);
  });

  test('hold no slot for a waiter who will ask too late for it', async () => {
    const { register, take, opened } = await openStage(20, { bootGuardMs: 5_000, paceMs: 1_000 });
    for (const id of ['i1', 'i2', 'i3']) await register(id, 'incremental');
    await opened.withdraw('i1');
    await opened.withdraw('i2');
    // i3 has to come two paces after the first grant.
    expect(await take('b1', 'backfill')).toBe(1);
  });

  test('serve a waiter of a worse lane as soon as the waiters of better lanes have withdrawn', async () => {
    const { register, take, opened } = await openStage(20);
    await register('i1', 'incremental');
    await register('n1', 'sync');
    await register('v1', 'verify');
    expect((await opened.usage()).waiting).toEqual({ incremental: 1, sync: 1, backfill: 0, verify: 1 });
    expect(await take('v1', 'verify')).toBe(0);
    await opened.withdraw('i1');
    await opened.withdraw('n1');
    await opened.withdraw('nobody');
    expect(await take('v1', 'verify')).toBe(1);
    expect(await opened.usage()).toMatchObject({
      granted: 1,
      usedByOthers: 0,
      waiting: { incremental: 0, sync: 0, backfill: 0, verify: 0 },
    });
  });

  test('let an incremental request wait little beside a saturating backfill', async () => {
    const { limiters } = await openLimiters(
      Array.from({ length: 8 }, () => 'backfill'),
      20,
    );
    const overtaken = await besideLoad(limiters, async (grants) => {
      const [first] = limiters;
      const counted: number[] = [];
      for (let i = 0; i < 24; i++) {
        await pause(60 + 120 * Math.random());
        const before = grants();
        const slot = await first?.limiter.take('incremental');
        counted.push(grants() - before);
        await pause(30);
        void slot?.release();
      }
      return counted.toSorted((a, b) => a - b);
    });
    // In grants to the backfill, so that a busy machine changes nothing. Without lanes it would be the ninth of nine.
    expect(overtaken.at(12)).toBeLessThan(5);
    expect(overtaken.at(-2)).toBeLessThan(10);
  });

  test('leave the worst lane a fifteenth of the slots of a saturating best lane', async () => {
    const granted = await countStagedGrants(
      await openStage(1000),
      ['incremental', 'incremental', 'verify'],
      240,
    );
    expect(granted[2]).toBeGreaterThanOrEqual(240 / 20);
    expect(granted[2]).toBeLessThanOrEqual(240 / 10);
  });

  test('starve no worse lane beside a saturating one', async () => {
    const granted = await countStagedGrants(await openStage(1000), LANES, 240);
    for (const count of granted.slice(1)) expect(count).toBeGreaterThanOrEqual(3);
    expect(granted[0]).toBeGreaterThan(240 * 0.8);
  });

  test('are shared equally by the processes in one lane, with few calls of the store', async () => {
    const { limiters, asked } = await openLimiters(
      Array.from({ length: 8 }, () => 'backfill'),
      60,
    );
    const granted = await countGrants(limiters, 240);
    expect(Math.min(...granted)).toBeGreaterThanOrEqual(24);
    expect(Math.max(...granted)).toBeLessThanOrEqual(36);
    expect(asked.takes).toBeLessThan(4 * 240);
  });

  test('stop counting a waiter at once when the waiter aborts', async () => {
    const { limiters, store } = await openLimiters(['incremental'], 20, SHUT);
    const leave = new AbortController();
    const take = limiters[0]?.limiter.take('incremental', leave.signal);
    await until(async () => (await store.usage()).waiting.incremental === 1, {
      describe: 'the registration',
    });
    leave.abort();
    await expect(take).rejects.toThrow();
    // Without the withdrawal it would count for half a minute.
    await until(async () => (await store.usage()).waiting.incremental === 0, {
      describe: 'the withdrawal',
    });
  });

  test('let at most N requests through in a second, whoever waits, leaves or dies', async () => {
    const lanes = [...LANES, ...LANES];
    const { limiters, store } = await openLimiters(lanes, 20, { bootGuardMs: 1_500 });
    const judged: number[] = [];
    const isOver = () => judged.length >= 100;
    const work = async (limiter: Limiter, lane: Lane) => {
      while (!isOver()) {
        const patience =
          Math.random() < 0.3 ? AbortSignal.timeout(Math.ceil(300 * Math.random())) : undefined;
        const slot = await limiter.take(lane, patience).catch(() => undefined);
        if (slot?.usable()) {
          const [latencyMs, judgedAt] = [20 + 150 * Math.random() ** 2, Math.random()];
          await pause(latencyMs * judgedAt);
          judged.push(performance.now());
          await pause(latencyMs * (1 - judgedAt));
        }
        void slot?.release();
      }
    };
    const dying = async () => {
      while (!isOver()) {
        const taken = await store.take({ id: randomUUID(), lane: 'incremental', wanted: 2 }, 2_000);
        for (const { token } of taken.grants) await store.release(token);
        await pause(150);
      }
    };
    await Promise.all([
      dying(),
      ...limiters.flatMap(({ limiter, lane }) => [1, 2, 3].map(() => work(limiter, lane))),
    ]);
    expect(mostInAnySecond(judged)).toBeLessThanOrEqual(20);
  });
});

/** Counts the grants, of `total`, to each of these lanes. Two waiters of each lane ask again as soon as they were served. */
async function countStagedGrants(
  { register, take }: Stage,
  lanes: readonly Lane[],
  total: number,
): Promise<number[]> {
  const granted = lanes.map(() => 0);
  let count = 0;
  const waiters = lanes.flatMap((lane, at) => [0, 1].map((one) => ({ lane, at, id: `${at} ${one}` })));
  for (const { id, lane } of waiters) await register(id, lane);
  while (count < total) {
    for (const waiter of waiters) {
      if ((await take(waiter.id, waiter.lane)) === 0) continue;
      granted[waiter.at] = (granted[waiter.at] ?? 0) + 1;
      waiter.id = `${waiter.id.slice(0, 3)} ${++count}`;
      await register(waiter.id, waiter.lane);
    }
  }
  return granted;
}

type Opened = { lane: Lane; limiter: Limiter }[];

/** Keeps every limiter's lane saturated until `total` slots are granted. Returns each count without the first few grants. */
async function countGrants(limiters: Opened, total: number): Promise<number[]> {
  const granted = limiters.map(() => 0);
  const first = limiters.length; // until all have registered
  let count = 0;
  const done = new AbortController();
  setMaxListeners(0, done.signal);
  const work = async ({ lane, limiter }: Opened[number], i: number) => {
    while (!done.signal.aborted) {
      const slot = await limiter.take(lane, done.signal).catch(() => undefined);
      if (!slot) return;
      if (++count > first && count <= first + total) granted[i] = (granted[i] ?? 0) + 1;
      if (count > first + total) done.abort();
      await pause(10 + 30 * Math.random());
      void slot.release();
    }
  };
  await Promise.all(
    limiters.flatMap((opened, i) => Array.from({ length: 4 * limiters.length }, () => work(opened, i))),
  );
  return granted;
}

/** Returns the result of `measure`, which can read the number of grants, while every limiter's lane is saturated. */
async function besideLoad<Result>(
  limiters: Opened,
  measure: (grants: () => number) => Promise<Result>,
): Promise<Result> {
  const done = new AbortController();
  let grants = 0;
  const work = async ({ lane, limiter }: Opened[number]) => {
    while (!done.signal.aborted) {
      const slot = await limiter.take(lane);
      grants++;
      await pause(20 + 60 * Math.random());
      void slot.release();
    }
  };
  const load = limiters.flatMap((opened) => [1, 2, 3].map(() => work(opened)));
  const result = await measure(() => grants);
  done.abort();
  await Promise.all(load);
  return result;
}
