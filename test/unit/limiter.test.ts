// The local side of the quota, with a played store. test/integration/limiter.test.ts tests the real stores.
import { setTimeout as pause } from 'node:timers/promises';
import fc from 'fast-check';
import { afterEach, describe, expect, it, vi } from 'vitest';
import {
  createLimiter,
  type Lane,
  type LimiterOptions,
  type SlotStore,
  type SlotAnswer,
} from '../../src/destination/quota/limiter.js';
import { createLater } from '../support/later.js';
import { until } from '../support/wait.js';

/** Plays a store that answers each take as `answer` says. By default it grants at once. */
function playStore(answer: (call: number) => SlotAnswer | Promise<SlotAnswer> = (call) => granted(call)) {
  const takes: { lane: Lane; leaseMs: number }[] = [];
  const withdrawn: string[] = [];
  const released: string[] = [];
  const throttled: (number | undefined)[] = [];
  const store: SlotStore = {
    take: async ({ lane }, leaseMs) => answer(takes.push({ lane, leaseMs })),
    withdraw: async (waiterId) => void withdrawn.push(waiterId),
    release: async (token) => void released.push(token),
    throttled: async (retryAfterMs) => void throttled.push(retryAfterMs),
    usage: () => Promise.reject(new Error('not played')),
  };
  return { store, takes, withdrawn, released, throttled };
}

/** Plays a store that answers its first question when the test calls `answer`, and no other. */
function playHeldStore() {
  const { promise: held, resolve: answer } = createLater<SlotAnswer>();
  const played = playStore((call) => (call === 1 ? held : never()));
  const asked = () => until(() => played.takes.length === 1, { describe: 'the head to ask' });
  return { ...played, asked, answer };
}

const granted = (call: number, waitMs = 0): SlotAnswer => ({ grants: [{ token: `token-${call}`, waitMs }] });
const refused = (askMs: number): SlotAnswer => ({ grants: [], askMs });
const never = () => new Promise<never>(() => {});

const limiters: ReturnType<typeof createLimiter>[] = [];
function limiterOf(options: LimiterOptions) {
  const limiter = createLimiter({ storeTimeoutMs: 200, ...options });
  limiters.push(limiter);
  return limiter;
}
afterEach(async () => {
  for (const limiter of limiters.splice(0)) await limiter.close();
});

describe('the local line for slots', () => {
  it('serves the waiters of a lane in their order', async () => {
    const { store } = playStore((call) => (call % 2 ? refused(1) : granted(call)));
    const limiter = limiterOf({ store });
    const served: number[] = [];
    await Promise.all([0, 1, 2, 3].map((place) => limiter.take('backfill').then(() => served.push(place))));
    expect(served).toEqual([0, 1, 2, 3]);
  });

  it('lets only its head ask the store', async () => {
    const { store, takes } = playStore(never);
    const limiter = limiterOf({ store, storeTimeoutMs: 10_000 });
    const leaving = Array.from({ length: 50 }, () => new AbortController());
    const waiting = leaving.map((leave) => limiter.take('backfill', leave.signal));
    await until(() => takes.length > 0, { describe: 'the head to ask' });
    expect(takes).toHaveLength(1);
    for (const leave of leaving) leave.abort();
    expect((await Promise.allSettled(waiting)).every((take) => take.status === 'rejected')).toBe(true);
    limiters.pop(); // the store never answers, so there is nothing to wait for
  });

  it('is separate for each lane, and tells the store its lane and its lease', async () => {
    const { store, takes } = playStore((call) => (call === 1 ? never() : granted(call)));
    const limiter = limiterOf({ store, leaseMs: 7_000 });
    const first = limiter.take('incremental').catch(() => undefined);
    await limiter.take('verify');
    expect(takes).toEqual([
      { lane: 'incremental', leaseMs: 7_000 },
      { lane: 'verify', leaseMs: 7_000 },
    ]);
    await limiter.close();
    await first;
  });

  it('hands out the grants of one answer in order, and releases surplus grants', async () => {
    const { store, takes, released, asked, answer } = playHeldStore();
    const limiter = limiterOf({ store, storeTimeoutMs: 10_000 });
    const leave = new AbortController();
    const served: string[] = [];
    const waiting = ['a', 'b'].map((name) => limiter.take('sync').then(() => served.push(name)));
    const leaving = limiter.take('sync', leave.signal);
    await asked();
    leave.abort();
    await expect(leaving).rejects.toThrow();
    answer({ grants: [1, 2, 3].map((one) => ({ token: `token-${one}`, waitMs: 0 })) });
    await Promise.all(waiting);
    expect(served).toEqual(['a', 'b']);
    expect(released).toEqual(['token-3']);
    expect(takes).toHaveLength(1);
  });

  it('resolves at the booked time', async () => {
    const { store } = playStore((call) => granted(call, 50));
    const began = performance.now();
    await limiterOf({ store }).take('sync');
    expect(performance.now() - began).toBeGreaterThanOrEqual(49);
  });

  it('asks again after the delay that the store named', async () => {
    const { store, takes } = playStore((call) => (call === 1 ? refused(40) : granted(call)));
    const began = performance.now();
    await limiterOf({ store }).take('sync');
    expect(performance.now() - began).toBeGreaterThanOrEqual(39);
    expect(takes).toHaveLength(2);
  });
});

describe('an abandoned wait for a slot', () => {
  it('rejects with the reason of the signal, even if the signal was aborted before', async () => {
    const { store, takes } = playStore(() => refused(10));
    const limiter = limiterOf({ store });
    const reason = new Error('run cancelled');
    await expect(limiter.take('sync', AbortSignal.abort(reason))).rejects.toBe(reason);
    expect(takes).toHaveLength(0);
    const leave = new AbortController();
    const take = limiter.take('sync', leave.signal);
    leave.abort(reason);
    await expect(take).rejects.toBe(reason);
  });

  it('leaves a grant in transit to the next waiter', async () => {
    const { store, released, asked, answer } = playHeldStore();
    const limiter = limiterOf({ store });
    const leave = new AbortController();
    const first = limiter.take('sync', leave.signal);
    const second = limiter.take('sync');
    await asked();
    leave.abort();
    await expect(first).rejects.toThrow();
    answer(granted(1));
    await second;
    expect(released).toEqual([]);
  });

  it('leaks no slot, whenever waiters leave and however the store answers', async () => {
    const waiter = fc.record({ leavesAfterMs: fc.option(fc.integer({ min: 0, max: 12 })) });
    const answers = fc.infiniteStream(
      fc.record({
        afterMs: fc.integer({ min: 0, max: 4 }),
        kind: fc.constantFrom('now', 'several', 'booked', 'wait', 'fail'),
      }),
    );
    await fc.assert(
      fc.asyncProperty(fc.array(waiter, { minLength: 1, maxLength: 8 }), answers, async (waiters, stream) => {
        const handedOut: string[] = [];
        const { store, released } = playStore(async (call) => {
          const { afterMs, kind } = stream.next().value;
          await pause(afterMs);
          if (kind === 'fail') throw new Error('store away');
          if (kind === 'wait') return refused(3);
          const tokens = kind === 'several' ? [`token-${call}`, `also-${call}`] : [`token-${call}`];
          handedOut.push(...tokens);
          return { grants: tokens.map((token) => ({ token, waitMs: kind === 'booked' ? 5 : 0 })) };
        });
        const limiter = createLimiter({ store, storeTimeoutMs: 3, giveUpMs: 60 });
        const kept = await Promise.allSettled(
          waiters.map(async ({ leavesAfterMs }) => {
            const slot = await limiter.take(
              'backfill',
              leavesAfterMs === null ? undefined : AbortSignal.timeout(leavesAfterMs),
            );
            await slot.release();
          }),
        );
        expect(kept).toHaveLength(waiters.length);
        await limiter.close();
        await until(() => released.length === handedOut.length, {
          describe: 'late grants to be released',
          intervalMs: 1,
        });
        expect(released.toSorted()).toEqual(handedOut.toSorted());
      }),
      { numRuns: 30 },
    );
  });
});

describe('the registration of a line at the store', () => {
  it('is withdrawn when the last waiter leaves', async () => {
    const { store, takes, withdrawn } = playStore(() => refused(60_000));
    const limiter = limiterOf({ store });
    const leaving = [new AbortController(), new AbortController()] as const;
    const waiting = leaving.map((leave) => limiter.take('sync', leave.signal).catch(() => undefined));
    await until(() => takes.length === 1, { describe: 'the head to ask' });
    leaving[0].abort();
    await waiting[0];
    expect(withdrawn).toHaveLength(0);
    leaving[1].abort();
    await until(() => withdrawn.length === 1, { describe: 'the withdrawal' });
  });

  it('is withdrawn when the last waiter has left while the store was asked', async () => {
    const { store, withdrawn, asked, answer } = playHeldStore();
    const leave = new AbortController();
    const take = limiterOf({ store }).take('sync', leave.signal);
    await asked();
    leave.abort();
    await expect(take).rejects.toThrow();
    answer(refused(60_000));
    await until(() => withdrawn.length === 1, { describe: 'the withdrawal' });
  });

  it('is withdrawn on closing, for each lane by its own name', async () => {
    const { store, takes, withdrawn } = playStore(() => refused(60_000));
    const limiter = limiterOf({ store });
    const waiting = [limiter.take('sync'), limiter.take('verify')];
    await until(() => takes.length === 2, { describe: 'both heads to ask' });
    await Promise.all([limiter.close(), Promise.allSettled(waiting)]);
    expect(new Set(withdrawn).size).toBe(2);
  });

  it('stays after a grant while a waiter is left, and is withdrawn when none is left', async () => {
    const asked: number[] = [];
    const { store, withdrawn } = playStore();
    const limiter = limiterOf({
      store: {
        ...store,
        take: async ({ wanted }) => ({
          ...granted(asked.push(wanted)),
          ...(wanted > 1 && { askMs: 60_000 }),
        }),
      },
    });
    const leave = new AbortController();
    const served = [limiter.take('sync'), limiter.take('sync')];
    const waiting = limiter.take('sync', leave.signal);
    await Promise.all(served);
    expect(asked).toEqual([1, 2]);
    leave.abort();
    await expect(waiting).rejects.toThrow();
    await until(() => withdrawn.length === 1, { describe: 'the withdrawal' });
    await limiter.take('sync');
    expect(asked).toEqual([1, 2, 1]);
  });

  it('ends with a grant, without a withdrawal', async () => {
    const { store, withdrawn } = playStore((call) => (call === 1 ? refused(1) : granted(call)));
    const limiter = limiterOf({ store });
    await limiter.take('sync');
    await limiter.close();
    expect(withdrawn).toEqual([]);
  });

  it('does not delay a waiter who joins after its last waiter has left', async () => {
    const { store, takes } = playStore((call) => (call === 1 ? refused(60_000) : granted(call)));
    const limiter = limiterOf({ store });
    const leave = new AbortController();
    const first = limiter.take('sync', leave.signal);
    await until(() => takes.length === 1, { describe: 'the head to ask' });
    leave.abort();
    await expect(first).rejects.toThrow();
    await limiter.take('sync');
  });
});

describe('a slot of the quota', () => {
  it('is released once, however often its release is called', async () => {
    const { store, released } = playStore();
    const slot = await limiterOf({ store }).take('sync');
    await Promise.all([slot.release(), slot.release()]);
    await slot.release();
    expect(released).toEqual(['token-1']);
  });

  it('is released by a retry when the store fails, without an error for its holder', async () => {
    const { store, released } = playStore();
    const release = vi.fn(store.release).mockRejectedValueOnce(new Error('connection lost'));
    const slot = await limiterOf({ store: { ...store, release } }).take('sync');
    await slot.release();
    expect(released).toEqual(['token-1']);
  });

  it('is usable until the lease would no longer cover the request', async () => {
    let time = 1_000;
    const { store } = playStore((call) => granted(call, 20));
    const slot = await limiterOf({ store, now: () => time }).take('sync');
    expect(slot.usable()).toBe(true);
    time += 20 + 900;
    expect(slot.usable()).toBe(true);
    time += 1;
    expect(slot.usable()).toBe(false);
  });

  it('is released when it arrives too late, and another slot is taken', async () => {
    let time = 0;
    const { store, released } = playStore((call) => {
      if (call === 1) time += 2_000;
      return granted(call);
    });
    const slot = await limiterOf({ store, now: () => time }).take('sync');
    expect(slot.usable()).toBe(true);
    expect(released).toEqual(['token-1']);
  });
});

describe('a store of the quota that cannot be reached', () => {
  const away = () => Promise.reject(new Error('ECONNREFUSED'));

  it('fails every waiter after the time limit, with a retryable error', async () => {
    const { store, takes } = playStore(away);
    const limiter = limiterOf({ store, giveUpMs: 150 });
    const began = performance.now();
    const lanes = ['sync', 'sync', 'verify'] as const;
    const waiting = await Promise.allSettled(lanes.map((lane) => limiter.take(lane)));
    expect(performance.now() - began).toBeGreaterThan(149);
    const reason = { code: 'quota_unavailable', disposition: 'retry' };
    expect(waiting).toMatchObject(lanes.map(() => ({ status: 'rejected', reason })));
    expect(takes.length).toBeGreaterThan(3);
  });

  it('is asked again until it answers', async () => {
    const { store } = playStore((call) => (call < 3 ? away() : granted(call)));
    await expect(limiterOf({ store }).take('sync')).resolves.toBeDefined();
  });

  it('does not delay an abort', async () => {
    const { store } = playStore(away);
    await expect(limiterOf({ store }).take('sync', AbortSignal.timeout(30))).rejects.toMatchObject({
      name: 'TimeoutError',
    });
  });

  it('counts as unreachable when it is silent, and its late grants are released', async () => {
    const { store, released, answer } = playHeldStore();
    const limiter = limiterOf({ store, storeTimeoutMs: 30, giveUpMs: 60 });
    await expect(limiter.take('sync')).rejects.toMatchObject({ code: 'quota_unavailable' });
    answer({ grants: ['one', 'two'].map((token) => ({ token, waitMs: 0 })) });
    await until(() => released.length === 2, { describe: 'both releases' });
  });

  it('fails the report of a 429 and the query of usage with the same code', async () => {
    const { store } = playStore();
    const limiter = limiterOf({ store: { ...store, throttled: away } });
    await expect(limiter.throttled()).rejects.toMatchObject({ code: 'quota_unavailable' });
    await expect(limiter.usage()).rejects.toMatchObject({ code: 'quota_unavailable' });
  });
});

it('the limiter ignores a Retry-After that is negative or not finite', async () => {
  const { store, throttled } = playStore();
  const limiter = limiterOf({ store });
  for (const retryAfterMs of [2_000, 0, undefined, -5, Number.NaN, Infinity])
    await limiter.throttled(retryAfterMs);
  expect(throttled).toEqual([2_000, 0, undefined, undefined, undefined, undefined]);
});

it('the limiter refuses waiters when it is closed, and waits for pending releases', async () => {
  const { store, released } = playStore((call) => (call === 1 ? granted(call) : refused(10_000)));
  const slow: SlotStore = { ...store, release: (token) => pause(30).then(() => store.release(token)) };
  const limiter = limiterOf({ store: slow });
  const slot = await limiter.take('sync');
  const waiting = limiter.take('sync');
  void slot.release();
  await Promise.all([
    expect(waiting).rejects.toMatchObject({ code: 'limiter_closed', disposition: 'retry' }),
    limiter.close(),
  ]);
  expect(released).toEqual(['token-1']);
  await expect(limiter.take('sync')).rejects.toMatchObject({ code: 'limiter_closed' });
});
