// The pace of readings over whole types.
import { describe, expect, it } from 'vitest';
import { createPace } from '../../src/sync/run/request-pace.js';

/** A clock that only waiting moves. */
function createClock() {
  let at = 0;
  const waits: number[] = [];
  const wait = async (ms: number) => {
    waits.push(ms);
    at += ms;
  };
  return { now: () => at, wait, waits, pass: (ms: number) => (at += ms) };
}

describe('the pace of a reading', () => {
  it('its share of the quota: requests are spaced evenly, the first at once', async () => {
    const clock = createClock();
    const pace = createPace({ requestsPerSecond: 20, share: 0.5, ...clock });
    for (let request = 0; request < 3; request++) await pace();
    expect(clock.waits).toEqual([100, 100]);
  });

  it('requests asked for at once: each waits for its own turn', async () => {
    const waits: number[] = [];
    const pace = createPace({
      requestsPerSecond: 10,
      share: 0.5,
      now: () => 0,
      wait: async (ms) => void waits.push(ms),
    });
    await Promise.all([pace(), pace(), pace()]);
    expect(waits).toEqual([200, 400]);
  });

  it('a pause: what was not used is not made up for', async () => {
    const clock = createClock();
    const pace = createPace({ requestsPerSecond: 20, share: 0.5, ...clock });
    await pace();
    clock.pass(10_000);
    await pace();
    await pace();
    expect(clock.waits).toEqual([100]);
  });

  it('the whole quota: nothing waits here', async () => {
    const clock = createClock();
    const pace = createPace({ requestsPerSecond: 20, share: 1, ...clock });
    for (let request = 0; request < 5; request++) await pace();
    expect(clock.waits).toEqual([]);
  });

  it('a stop: the wait ends with its reason', async () => {
    const reason = new Error('stopped');
    const pace = createPace({ requestsPerSecond: 20, share: 0.5 });
    await expect(pace(AbortSignal.abort(reason))).rejects.toBe(reason);
  });
});
