// Guarantee 1
// The quota on its real stores, as a service would count requests. Both stores must behave the same.
import { randomUUID } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { describe, expect, it } from 'vitest';
import { createLimiter, type Limiter, type LimiterOptions } from '../../src/destination/quota/limiter.js';
import { createRedisStore } from '../../src/destination/quota/redis-store.js';
import type { QuotaRules } from '../../src/destination/quota/quota-rules.js';
import { mostInAnySecond } from '../../src/sandbox/quota.js';
import { keepQuotaStores } from '../support/quota-stores.js';
import { isRedisInstalled, startRedisServer } from '../support/redis-server.js';
import { until } from '../support/wait.js';

const { closers, stores } = keepQuotaStores();
const SHORT_GUARD = { bootGuardMs: 20 };

describe.each(stores)('the quota in $name', ({ there, connect }) => {
  const test = it.skipIf(!there).concurrent;

  async function setup(
    rate: number,
    rules: Partial<QuotaRules> = SHORT_GUARD,
    options: Partial<LimiterOptions> = {},
  ) {
    const [key, client] = [randomUUID(), await connect()];
    const limiterOf = (ofKey = key, from = client) => {
      const limiter = createLimiter({ store: from.store(ofKey, rate, rules), ...options });
      closers.push(() => limiter.close());
      return limiter;
    };
    return { key, client, limiterOf };
  }

  // How much of the quota is used, the bench measures, where nothing else uses the machine.
  test('never has more than N requests judged in any second', async () => {
    const { key, limiterOf } = await setup(20, {});
    const limiters = await Promise.all([1, 2, 3, 4].map(async () => limiterOf(key, await connect())));
    const judged = await saturate(limiters, 120, () => 20 + 280 * Math.random() ** 3);
    expect(mostInAnySecond(judged)).toBeLessThanOrEqual(20);
  });

  test('stays within N when the store forgets everything in between', async () => {
    const { key, client, limiterOf } = await setup(20, {});
    const limiters = await Promise.all([1, 2].map(async () => limiterOf(key, await connect())));
    // Hardly anything is on the wire when it forgets, so that nothing but the guard can help.
    const judged = await saturate(
      limiters,
      100,
      () => 2,
      async (count) => {
        if (count === 50) await client.forget(key);
      },
    );
    expect(mostInAnySecond(judged)).toBeLessThanOrEqual(20);
  });

  test('follows a lowered rate from the next request on', async () => {
    const [key, client] = [randomUUID(), await connect()];
    let rate = 20;
    const limiter = createLimiter({ store: client.store(key, () => rate, SHORT_GUARD) });
    closers.push(() => limiter.close());
    await saturate([limiter], 20, () => 2);
    rate = 3;
    const judged = await saturate([limiter], 9, () => 2);
    // The slots of the greater rate are free again after a second.
    expect(mostInAnySecond(judged.slice(1))).toBeLessThanOrEqual(3);
    expect(await limiter.usage()).toMatchObject({ rate: 3, allowed: 3, usedByOthers: 0 });
  });

  test('waits before the first grant when the store knows nothing', async () => {
    const { limiterOf } = await setup(20, {});
    const began = performance.now();
    await Promise.all([limiterOf().take('sync'), limiterOf().take('verify')]);
    // A request sent right before the loss counts for a second, and may arrive half a second late.
    expect(performance.now() - began).toBeGreaterThanOrEqual(1_500 - 5);
  });

  test('grants nothing for a second when the store knows nothing, however busy the machine is', async () => {
    const { key, client } = await setup(20, {});
    // The store's first answer, without a look in between: a busy machine neither hides nor feigns a short guard.
    const store = client.store(key, 20, { pollMs: 60_000 });
    const ask = () => store.take({ id: 'a', lane: 'sync', wanted: 1 }, 30_000);
    const SECOND_OF_THE_SERVICE = 1_000;
    for (let time = 0; time < 2; time++) {
      const answer = await ask();
      expect(answer.grants).toEqual([]);
      expect(answer.askMs).toBeGreaterThanOrEqual(SECOND_OF_THE_SERVICE);
      await client.forget(key);
    }
  });

  test('keeps its pace between grants', async () => {
    const { limiterOf } = await setup(20);
    const [one, two] = [limiterOf(), limiterOf()];
    const began = performance.now();
    const times = await Promise.all(
      Array.from({ length: 16 }, async (_, i) => {
        await (i % 2 ? one : two).take('sync');
        return performance.now();
      }),
    );
    // A grant is seen when it is given or later, never earlier.
    expect(Math.max(...times) - began).toBeGreaterThan(15 * 50 * 0.8);
  });

  test('runs ahead of its pace once, by no more than its allowance', async () => {
    const { key, client } = await setup(20);
    const store = client.store(key, 20, { ...SHORT_GUARD, paceMs: 500, aheadMs: 250 });
    /** When the store first says that the waiter's turn comes, and when it came: a busy machine only delays that. */
    const takeNext = async (id: string) => {
      const ask = () => store.take({ id, lane: 'sync', wanted: 1 }, 30_000);
      let answer = await ask();
      const toldMs = answer.grants[0]?.waitMs ?? answer.askMs;
      for (; !answer.grants[0]; answer = await ask()) await pause(answer.askMs);
      return { toldMs, at: performance.now() + answer.grants[0].waitMs };
    };
    await takeNext('before');
    await pause(800); // nobody asks for longer than the pace
    const began = performance.now();
    const [first, second, third] = [await takeNext('a'), await takeNext('b'), await takeNext('c')];
    expect(first.toldMs).toBe(0);
    expect(second.toldMs).toBeLessThanOrEqual(250);
    expect(second.at - began).toBeGreaterThanOrEqual(250 - 5);
    expect(third.toldMs).toBeLessThanOrEqual(500);
    expect(third.at - began).toBeGreaterThanOrEqual(250 + 500 - 5);
  });

  test('returns the slot of a holder that died, and ignores its late release', async () => {
    const { limiterOf } = await setup(1, SHORT_GUARD, { leaseMs: 2_000 });
    const limiter = limiterOf();
    const began = performance.now();
    const lost = await limiter.take('sync');
    const slot = await limiter.take('backfill');
    expect(performance.now() - began).toBeGreaterThanOrEqual(2_000 + 1_000);
    await lost.release();
    expect(await limiter.usage()).toMatchObject({ held: 1, cooling: 0, lanes: { sync: 0, backfill: 1 } });
    await slot.release();
    expect(await limiter.usage()).toMatchObject({ held: 0, cooling: 1, free: 0, lanes: { backfill: 0 } });
  });

  test('is shared by clients of one key only', async () => {
    const { key, limiterOf } = await setup(4, { ...SHORT_GUARD, paceMs: 5 });
    const [here, there, elsewhere] = [limiterOf(), limiterOf(key, await connect()), limiterOf(randomUUID())];
    await Promise.all([here.take('sync'), here.take('sync'), there.take('verify'), there.take('verify')]);
    await expect(here.take('sync', AbortSignal.timeout(300))).rejects.toThrow();
    await expect(there.take('incremental', AbortSignal.timeout(300))).rejects.toThrow();
    await until(async () => (await here.usage()).waiting.incremental === 0, { describe: 'the withdrawal' });
    expect(await here.usage()).toEqual(await there.usage());
    expect(await here.usage()).toMatchObject({ rate: 4, held: 4, free: 0, lanes: { sync: 2, verify: 2 } });
    await elsewhere.take('sync');
    expect(await elsewhere.usage()).toMatchObject({ held: 1, free: 3 });
  });

  test('pauses every client after a 429, lowers N, and raises N again', async () => {
    const times = { pauseDefaultMs: 300, pauseExtraMs: 50, reduceEveryMs: 600, recoverEveryMs: 2_500 };
    const { key, limiterOf } = await setup(3, { ...SHORT_GUARD, ...times });
    const [one, two] = [limiterOf(), limiterOf(key, await connect())];
    await one.take('sync');
    const began = performance.now();
    await Promise.all([one.throttled(), two.throttled()]);
    expect(await two.usage()).toMatchObject({ allowed: 2, throttled: 2 });
    await two.take('sync');
    expect(performance.now() - began).toBeGreaterThanOrEqual(350 - 5);
    expect(await one.usage()).toMatchObject({ allowed: 2, held: 2, free: 0 });

    await until(() => performance.now() - began > 750, { describe: 'the next reduction to be possible' });
    const throttledAt = performance.now();
    await one.throttled(900);
    const { allowed, pausedMs } = await two.usage();
    expect(allowed).toBe(1);
    expect(pausedMs).toBeGreaterThan(950 - 5 - (performance.now() - throttledAt));
    expect(pausedMs).toBeLessThanOrEqual(950);
    await until(async () => (await two.usage()).allowed === 3, { describe: 'N to be whole again' });
    expect(performance.now() - began).toBeGreaterThanOrEqual(750 + 950 + 2 * 2_500 - 5);
  });

  test('counts every 429 of a burst, lowers N once, and pauses for the longest delay', async () => {
    const times = { pauseExtraMs: 50, reduceEveryMs: 20_000, recoverEveryMs: 60_000 };
    const { key, limiterOf } = await setup(20, { ...SHORT_GUARD, ...times });
    const [one, two] = [limiterOf(), limiterOf(key, await connect())];
    await one.take('sync');
    const retryAfters = Array.from({ length: 40 }, (_, i) => (i === 11 ? 20_000 : 100 * (i % 5)));
    await Promise.all(retryAfters.map((ms, i) => (i % 2 ? one : two).throttled(ms)));
    const usage = await one.usage();
    expect(usage).toMatchObject({ rate: 20, allowed: 19, usedByOthers: 1, throttled: 40, granted: 1 });
    expect(usage.pausedMs).toBeGreaterThan(15_000);
    expect(usage.pausedMs).toBeLessThanOrEqual(20_050);
  });

  test('pauses for at most ten minutes, whatever a 429 asks for', async () => {
    const { limiterOf } = await setup(20);
    const limiter = limiterOf();
    await limiter.throttled(1e9 * 1_000);
    const { pausedMs } = await limiter.usage();
    expect(pausedMs).toBeGreaterThan(9 * 60_000);
    expect(pausedMs).toBeLessThanOrEqual(10 * 60_000);
  });

  test('always leaves one slot', async () => {
    const { limiterOf } = await setup(2, { ...SHORT_GUARD, pauseDefaultMs: 10, reduceEveryMs: 0 });
    const limiter = limiterOf();
    for (let i = 0; i < 4; i++) await limiter.throttled();
    expect(await limiter.usage()).toMatchObject({ allowed: 1, throttled: 4 });
    await limiter.take('sync');
  });

  test('waits for the answers to requests that were sent before the store forgot', async () => {
    const { key, client, limiterOf } = await setup(5);
    const limiter = limiterOf();
    const before = await limiter.take('sync');
    await client.forget(key);
    await limiter.take('sync');
    const answered = performance.now();
    await before.release();
    await limiter.take('sync');
    expect(performance.now() - answered).toBeGreaterThanOrEqual(1_000);
  });

  test('grants nothing early when the clock jumps back', async () => {
    const { key, client, limiterOf } = await setup(1, SHORT_GUARD, { leaseMs: 200 });
    const limiter = limiterOf();
    const began = performance.now();
    await limiter.take('sync');
    await client.turnBack(key, 3_600_000);
    await limiter.take('sync');
    expect(performance.now() - began).toBeGreaterThanOrEqual(200 + 1_000);
  });
});

describe.skipIf(!(await isRedisInstalled()))('a Redis that comes back with an older copy', () => {
  it('counts as a store that knows nothing', async () => {
    const first = await startRedisServer();
    const redis = new Redis(first.url, { retryStrategy: () => 50 });
    redis.on('error', () => {});
    const limiter = createLimiter({ store: createRedisStore({ redis, key: 'copy', rate: 20 }) });
    await limiter.take('sync');
    const copy = await redis.dumpBuffer('slotsync:quota:copy');
    await first.kill();
    const second = await startRedisServer({ port: first.port });
    try {
      await until(() => redis.ping(), { describe: 'the connection' });
      await redis.restore('slotsync:quota:copy', 0, copy);
      const began = performance.now();
      await limiter.take('sync');
      expect(performance.now() - began).toBeGreaterThanOrEqual(1_500 - 5);
    } finally {
      await limiter.close();
      redis.disconnect();
      await second.stop();
    }
  });
});

/**
 * Keeps every limiter busy against a service that judges each request at some moment before its answer, until it has
 * judged `total`. Returns when it judged each.
 */
async function saturate(
  limiters: Limiter[],
  total: number,
  newLatencyMs: () => number,
  onJudged: (count: number) => Promise<unknown> = async () => undefined,
): Promise<number[]> {
  const judged: number[] = [];
  const work = async (limiter: Limiter) => {
    while (judged.length < total) {
      const slot = await limiter.take('backfill');
      if (slot.usable()) {
        const [latencyMs, judgedAt] = [newLatencyMs(), Math.random()];
        await pause(latencyMs * judgedAt);
        await onJudged(judged.push(performance.now()));
        await pause(latencyMs * (1 - judgedAt));
      }
      void slot.release();
    }
  };
  await Promise.all(limiters.flatMap((limiter) => Array.from({ length: 8 }, () => work(limiter))));
  return judged;
}
