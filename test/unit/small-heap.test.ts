// The memory of a command that reads whole types.
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { withSmallHeap } from '../../src/commands/small-heap.js';

beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] }));
afterEach(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
});

it.each([
  ['twice a second', 1, 20],
  ['for a tenth of the time where the machine is busy', 1000, 1],
])('is collected %s', async (_, collectionMs, expected) => {
  let now = 0;
  vi.spyOn(performance, 'now').mockImplementation(() => now);
  let collections = 0;
  const collect = () => {
    collections++;
    now += collectionMs;
  };
  await withSmallHeap(() => vi.advanceTimersByTimeAsync(10_000), collect);
  expect(collections).toBe(expected);
  await vi.advanceTimersByTimeAsync(60_000);
  expect(collections).toBe(expected);
});
