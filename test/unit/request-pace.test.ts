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
  it('spaces requests evenly at its share of the quota, the first at once', async () => {
    const clock = createClock();
    const pace = createPace({ requestsPerSecond: 20, share: 0.5, ...clock });
    for (let request = 0; request < 3; request++) await pace();
    expect(clock.waits).toEqual([100, 100]);
  });

  it('schedules concurrent requests one after the other', async () => {
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

  it('does not make up for a pause', async () => {
    const clock = createClock();
    const pace = createPace({ requestsPerSecond: 20, share: 0.5, ...clock });
    await pace();
    clock.pass(10_000);
    await pace();
    await pace();
    expect(clock.waits).toEqual([100]);
  });

  it('delays no request with the whole quota', async () => {
    const clock = createClock();
    const pace = createPace({ requestsPerSecond: 20, share: 1, ...clock });
    for (let request = 0; request < 5; request++) await pace();
    expect(clock.waits).toEqual([]);
  });

  it('ends a wait with the reason of the signal', async () => {
    const reason = new Error('stopped');
    const pace = createPace({ requestsPerSecond: 20, share: 0.5 });
    await expect(pace(AbortSignal.abort(reason))).rejects.toBe(reason);
  });
});
