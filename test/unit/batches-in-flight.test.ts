// How many batches are worked at once.
import { expect, it } from 'vitest';
import { createBatchesInFlight, nextInFlight } from '../../src/queue/batches-in-flight.js';

/** The number for each process, when batches wait as long as `waitMs` says for the batches of all processes. */
function settle(
  waitMs: (inFlight: number) => number,
  { keys = 100, requests = 1, processes = 1 } = {},
): number {
  let inFlight = 12;
  for (let batch = 0; batch < 200; batch++)
    ({ inFlight } = nextInFlight(inFlight, {
      waitMs: waitMs(inFlight * processes),
      keys,
      requests,
      processes,
    }));
  return inFlight;
}

/** Little's law: a batch of one request is prepared and settled for this long; 20 slots a second. */
const waitFor = (busyMs: number) => (inFlight: number) => Math.max(0, inFlight * 50 - busyMs);

it.each([
  ['near', 300, 1, 12],
  ['a second away', 1000, 1, 26],
  ['so far that no number is enough', 10_000, 1, 48],
  ['near, two processes', 300, 2, 12],
  ['near, eight processes', 300, 8, 4],
  ['near, more processes than the quota needs', 300, 16, 2],
  ['a second away, eight processes', 1000, 8, 6],
  ['so far that no number is enough, eight processes', 10_000, 8, 6],
])('databases %s: a batch always waits for its slot, and none for long', (_, busyMs, processes, expected) => {
  expect(settle(waitFor(busyMs), { processes })).toBe(expected);
});

it('shrinks again when batches wait so long that their readings grow old', () => {
  expect(nextInFlight(40, { waitMs: 5000, keys: 100, requests: 1, processes: 1 }).inFlight).toBe(39);
  expect(settle(() => 5000)).toBe(12);
  expect(settle(() => 5000, { processes: 8 })).toBe(2);
  expect(settle(() => 5000, { requests: 10, processes: 8 })).toBe(1);
});

it('shrinks at once to its share when other processes join', () => {
  expect(nextInFlight(48, { waitMs: 1000, keys: 100, requests: 1, processes: 8 })).toEqual({
    inFlight: 6,
    restMs: 0,
  });
});

it.each([
  [1000, 0],
  [2000, 500],
  [20_000, 2000],
])('rests after a batch that waited for %i ms where it has no more than one in flight', (waitMs, restMs) => {
  expect(nextInFlight(1, { waitMs, keys: 50, requests: 10, processes: 16 })).toEqual({ inFlight: 1, restMs });
});

it.each([
  [1000, 24],
  [10_000, 12],
])('there are no more batches of %i keys than memory allows', (keys, most) => {
  expect(settle(() => 0, { keys })).toBe(most);
});

it.each([
  ['one request', 1, 1, 12],
  ['many requests', 10, 1, 4],
  ['one request, three processes', 1, 3, 4],
  ['one request, sixteen processes', 1, 16, 1],
])('batches of %s: so many are in flight in the beginning', (_, requests, processes, expected) => {
  const of = { most: Infinity, requests, processes: () => processes, waitMs: () => 0 };
  expect(createBatchesInFlight(of).now()).toBe(expected);
});

it('takes its share of what it sees before a batch has ended, and its limit at any time', () => {
  let processes = 1;
  const heard: number[] = [];
  const inFlight = createBatchesInFlight({
    most: 5,
    requests: 1,
    processes: () => processes,
    waitMs: () => 0,
  });
  inFlight.onChange((now) => heard.push(now));
  inFlight.processesSeen();
  processes = 4;
  inFlight.processesSeen();
  for (let batch = 0; batch < 4; batch++) inFlight.batchEnded(100);
  processes = 8;
  inFlight.processesSeen();
  expect(heard).toEqual([3, 4, 5, 5, 5]);
});
