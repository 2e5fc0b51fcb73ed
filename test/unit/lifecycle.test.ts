import { pino } from 'pino';
import { afterEach, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import {
  createReleasers,
  createStoppable,
  endsWithin,
  repeat,
  stopTogether,
} from '../../src/process/lifecycle.js';
import { createLater } from '../support/later.js';

const SECOND = 1000;
const never = () => new Promise<never>(() => undefined);

let lines: { msg: string }[];
const log = pino(
  { level: 'debug' },
  { write: (line: string) => void lines.push(JSON.parse(line) as { msg: string }) },
);
const messages = () => lines.map(({ msg }) => msg);

beforeEach(() => {
  lines = [];
  vi.useFakeTimers();
});
afterEach(() => vi.useRealTimers());
const pass = (ms: number) => vi.advanceTimersByTimeAsync(ms);

/** Tracks the state of a promise. */
function observe(promise: Promise<unknown>) {
  const seen: { state: 'pending' | 'done' | 'failed' } = { state: 'pending' };
  promise.then(
    () => (seen.state = 'done'),
    () => (seen.state = 'failed'),
  );
  return seen;
}

/** Creates work in flight that ends when the test calls `end` or `fail`. */
function createWork() {
  const { promise: ended, resolve: end, reject: fail } = createLater();
  return { ended, end, fail };
}

describe('releasers', () => {
  it('run last in, first out, each after the one before has ended', async () => {
    const steps: string[] = [];
    const releasers = createReleasers({ log, withinMs: SECOND });
    for (const name of ['state', 'queue', 'workers']) {
      const thing = releasers.add({ name }, async () => {
        steps.push(`${name} begins`);
        await new Promise((resolve) => setTimeout(resolve, 10));
        steps.push(`${name} ends`);
      });
      expect(thing).toEqual({ name });
    }
    const released = releasers.releaseAll();
    await pass(30);
    await released;
    expect(steps).toEqual(
      ['workers', 'queue', 'state'].flatMap((name) => [`${name} begins`, `${name} ends`]),
    );
  });

  it('continue with the remaining releasers after a releaser fails or hangs', async () => {
    const released: string[] = [];
    const releasers = createReleasers({ log, withinMs: SECOND });
    releasers.add(1, async () => released.push('first'));
    releasers.add(2, () => Promise.reject(new Error('rejects')));
    releasers.add(3, () => {
      throw new Error('throws');
    });
    releasers.add(4, never);
    const done = observe(releasers.releaseAll());
    await pass(SECOND - 1);
    expect({ released, ...done }).toEqual({ released: [], state: 'pending' });
    await pass(1);
    expect({ released, ...done }).toEqual({ released: ['first'], state: 'done' });
    expect(messages()).toEqual(['closing failed', 'closing failed']);
  });

  it('run once, including releasers that are added while they run', async () => {
    const release = vi.fn(async () => undefined);
    const releasers = createReleasers({ log, withinMs: SECOND });
    releasers.add(1, async () => void releasers.add(2, release));
    await releasers.releaseAll();
    await releasers.releaseAll();
    expect(release).toHaveBeenCalledTimes(1);
  });
});

describe('repeat', () => {
  const start = (round: () => Promise<number | 'done' | void>, firstAfterMs?: number) => {
    const stopping = new AbortController();
    const onError = vi.fn();
    const options = { everyMs: SECOND, signal: stopping.signal, onError };
    const loop = repeat(round, firstAfterMs === undefined ? options : { ...options, firstAfterMs });
    onTestFinished(() => stopping.abort());
    return { ...loop, onError, stop: () => stopping.abort() };
  };

  it('runs at once, and then a fixed time after the end of each round', async () => {
    const round = vi.fn(() => new Promise<void>((resolve) => setTimeout(resolve, 300)));
    const { stop, ended } = start(round);
    await pass(0);
    expect(round).toHaveBeenCalledTimes(1);
    await pass(1299);
    expect(round).toHaveBeenCalledTimes(1);
    await pass(1);
    expect(round).toHaveBeenCalledTimes(2);
    stop();
    await pass(300);
    await ended;
  });

  it('waits before the first round if asked to', async () => {
    const round = vi.fn(async () => undefined);
    start(round, 5 * SECOND);
    await pass(4999);
    expect(round).not.toHaveBeenCalled();
    await pass(1);
    expect(round).toHaveBeenCalledTimes(1);
  });

  it('takes the time to the next round from the result of a round, and ends with `done`', async () => {
    const results = [0, 250, 'done' as const];
    const round = vi.fn(async () => results.shift());
    const { ended } = start(round);
    await pass(1);
    expect(round).toHaveBeenCalledTimes(2);
    await pass(250);
    expect(round).toHaveBeenCalledTimes(3);
    await ended;
    await pass(10 * SECOND);
    expect(round).toHaveBeenCalledTimes(3);
  });

  it('continues after a failed round, and reports each failure', async () => {
    const round = vi.fn(() => Promise.reject(new Error('down')));
    const { onError } = start(round);
    await pass(2 * SECOND);
    expect(round).toHaveBeenCalledTimes(3);
    expect(onError).toHaveBeenCalledTimes(3);
  });

  it('is woken during a pause, or runs one more round after the running round, without overlap', async () => {
    let running = 0;
    const round = vi.fn(async () => {
      expect(++running).toBe(1);
      await new Promise((resolve) => setTimeout(resolve, 100));
      running--;
    });
    const { wake } = start(round);
    await pass(150); // the first round has ended
    wake();
    await pass(50); // the second is half done
    expect(round).toHaveBeenCalledTimes(2);
    for (let times = 0; times < 3; times++) wake();
    await pass(100);
    expect(round).toHaveBeenCalledTimes(3);
    await pass(SECOND);
    expect(round).toHaveBeenCalledTimes(3);
  });

  it('ends at once between rounds, or after the running round without reporting its failure', async () => {
    const waiting = start(async () => undefined);
    await pass(500);
    waiting.stop();
    await waiting.ended;

    const work = createWork();
    const running = start(() => work.ended);
    const seen = observe(running.ended);
    await pass(10);
    running.stop();
    await pass(10 * SECOND);
    expect(seen.state).toBe('pending');
    work.fail(new Error('interrupted'));
    await running.ended;
    expect(running.onError).not.toHaveBeenCalled();
  });

  it('does nothing when its signal was aborted before', async () => {
    const round = vi.fn(async () => undefined);
    await repeat(round, { everyMs: SECOND, signal: AbortSignal.abort(), onError: vi.fn() }).ended;
    expect(round).not.toHaveBeenCalled();
  });
});

describe('a two-step stop', () => {
  const setUp = () => {
    const work = createWork();
    const finish = vi.fn(() => work.ended);
    return { ...createStoppable('workers', log, finish), finish, work };
  };

  it('lets work in flight finish within the grace, without an interruption', async () => {
    const { stop, stopping, aborting, work } = setUp();
    const stopped = observe(stop(10 * SECOND));
    expect(stopping.aborted).toBe(true);
    await pass(9 * SECOND);
    expect(stopped.state).toBe('pending');
    work.end();
    await pass(0);
    expect(stopped.state).toBe('done');
    await pass(60 * SECOND);
    expect(aborting.aborted).toBe(false);
    expect(messages()).toEqual([]);
  });

  it('interrupts work when the grace has ended, and waits until it has returned', async () => {
    const { stop, aborting, work } = setUp();
    const stopped = observe(stop(10 * SECOND));
    await pass(10 * SECOND - 1);
    expect(aborting.aborted).toBe(false);
    await pass(1);
    expect(aborting.aborted).toBe(true);
    expect(stopped.state).toBe('pending');
    work.end();
    await pass(0);
    expect(stopped.state).toBe('done');
    expect(messages()).toEqual([]);
  });

  it('interrupts work at once on `abort`, within the grace or without a stop', async () => {
    const later = setUp();
    const stopped = observe(later.stop(10 * SECOND));
    await pass(SECOND);
    later.abort();
    expect(later.aborting.aborted).toBe(true);
    later.work.end();
    await pass(0);
    expect(stopped.state).toBe('done');

    const { abort, stopping, aborting, finish } = setUp();
    abort();
    expect([stopping.aborted, aborting.aborted]).toEqual([true, true]);
    expect(finish).toHaveBeenCalledTimes(1);
  });

  it('abandons work that does not return, and logs an error', async () => {
    const { stop } = setUp();
    const stopped = observe(stop(10 * SECOND));
    await pass(15 * SECOND - 1);
    expect(stopped.state).toBe('pending');
    await pass(1);
    expect(stopped.state).toBe('done');
    expect(lines).toMatchObject([{ part: 'workers', msg: expect.stringContaining('did not end in time') }]);
  });

  it('happens once, with the first grace', async () => {
    const { stop, aborting, finish } = setUp();
    void stop(SECOND);
    void stop(60 * SECOND);
    await pass(SECOND);
    expect(aborting.aborted).toBe(true);
    expect(finish).toHaveBeenCalledTimes(1);
  });

  it('rejects when finishing fails', async () => {
    const { stop, work } = setUp();
    const stopped = stop();
    work.fail(new Error('lost'));
    await expect(stopped).rejects.toThrow('lost');
  });

  it('stops its parts at the same time, including parts that were added later', async () => {
    const parts = [setUp(), setUp()];
    const all = stopTogether(parts);
    parts.push(setUp());
    const stopped = observe(all.stop(SECOND));
    expect(parts.map(({ stopping }) => stopping.aborted)).toEqual([true, true, true]);
    all.abort();
    expect(parts.map(({ aborting }) => aborting.aborted)).toEqual([true, true, true]);
    for (const { work } of parts) work.end();
    await pass(0);
    expect(stopped.state).toBe('done');
  });
});

describe('endsWithin', () => {
  it('returns whether work has ended in time, and throws the error of the work', async () => {
    expect(await endsWithin(Promise.resolve(), SECOND)).toBe(true);
    expect(await endsWithin(never(), SECOND, AbortSignal.abort())).toBe(false);
    await expect(endsWithin(Promise.reject(new Error('down')), SECOND)).rejects.toThrow('down');
    const late = endsWithin(never(), SECOND);
    await pass(SECOND);
    expect(await late).toBe(false);
    expect(vi.getTimerCount()).toBe(0);
  });
});
