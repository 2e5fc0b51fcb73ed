// The pace of readings over whole types.
import { describe, expect, it } from 'vitest';
import { createPace } from '../../src/sync/run/request-pace.js';

/** Paces requests with a clock that only waiting moves, or nothing. */
function play(options: { requestsPerSecond?: number; share?: number; isStill?: boolean } = {}) {
  const clock = { ms: 0 };
  const waits: number[] = [];
  const pace = createPace({
    requestsPerSecond: 20,
    share: 0.5,
    now: () => clock.ms,
    wait: async (ms) => {
      waits.push(ms);
      if (!options.isStill) clock.ms += ms;
    },
    ...options,
  });
  return { pace, clock, waits };
}

describe('the pace of a reading', () => {
  it.each([
    ['spaces requests evenly at its share of the quota, the first at once', { share: 0.5 }, [100, 100]],
    ['delays no request with the whole quota', { share: 1 }, []],
  ])('%s', async (_, options, expected) => {
    const { pace, waits } = play(options);
    for (let request = 0; request < 3; request++) await pace();
    expect(waits).toEqual(expected);
  });

  it('schedules concurrent requests one after the other', async () => {
    const { pace, waits } = play({ requestsPerSecond: 10, isStill: true });
    await Promise.all([pace(), pace(), pace()]);
    expect(waits).toEqual([200, 400]);
  });

  it('does not make up for a pause', async () => {
    const { pace, clock, waits } = play();
    await pace();
    clock.ms += 10_000;
    await pace();
    await pace();
    expect(waits).toEqual([100]);
  });

  it('ends a wait with the reason of the signal', async () => {
    const reason = new Error('stopped');
    const pace = createPace({ requestsPerSecond: 20, share: 0.5 });
    await expect(pace(AbortSignal.abort(reason))).rejects.toBe(reason);
  });
});
