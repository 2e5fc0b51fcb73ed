// Number of batches that a process works at once.
import { expect, it } from 'vitest';
import { createBatchesInFlight, nextInFlight } from '../../src/queue/batches-in-flight.js';

/** Returns the number that each process settles at, if `waitMs` is the wait for the batches of all processes. */
function settle(
  waitMs: (inFlight: number) => number,
  { keys = 100, requests = 1, processes = 1 } = {},
): number {
  let inFlight = 12;
  for (let batch = 0; batch < 200; batch++) {
    const seen = { waitMs: waitMs(inFlight * processes), keys, requests, processes };
    ({ inFlight } = nextInFlight(inFlight, seen));
  }
  return inFlight;
}

/** Wait after Little's law: each batch sends one request, is prepared and settled in `busyMs`, and 20 slots come each second. */
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
])(
  'the number of batches in flight settles at a short wait for slots: databases %s',
  (_, busyMs, processes, expected) => {
    expect(settle(waitFor(busyMs), { processes })).toBe(expected);
  },
);

it('the number of batches in flight shrinks when batches wait until their readings grow old', () => {
  expect(nextInFlight(40, { waitMs: 5000, keys: 100, requests: 1, processes: 1 }).inFlight).toBe(39);
  expect(settle(() => 5000)).toBe(12);
  expect(settle(() => 5000, { processes: 8 })).toBe(2);
  expect(settle(() => 5000, { requests: 10, processes: 8 })).toBe(1);
});

it('the number of batches in flight shrinks to the share of a process as soon as processes join', () => {
  const seen = { waitMs: 1000, keys: 100, requests: 1, processes: 8 };
  expect(nextInFlight(48, seen)).toEqual({ inFlight: 6, restMs: 0 });
});

it.each([
  [1000, 0],
  [2000, 500],
  [20_000, 2000],
])(
  'a process with one batch in flight rests after a batch has waited too long for a slot: %i ms',
  (waitMs, restMs) => {
    const seen = { waitMs, keys: 50, requests: 10, processes: 16 };
    expect(nextInFlight(1, seen)).toEqual({ inFlight: 1, restMs });
  },
);

it.each([
  [1000, 24],
  [10_000, 12],
])('the number of batches in flight is limited by memory: batches of %i keys', (keys, most) => {
  expect(settle(() => 0, { keys })).toBe(most);
});

it.each([
  ['one request', 1, 1, 12],
  ['many requests', 10, 1, 4],
  ['one request, three processes', 1, 3, 4],
  ['one request, sixteen processes', 1, 16, 1],
])('the initial number of batches in flight suits batches of %s', (_, requests, processes, expected) => {
  const of = { most: Infinity, requests, processes: () => processes, waitMs: () => 0 };
  expect(createBatchesInFlight(of).now()).toBe(expected);
});

it('the number of batches in flight follows the processes before a batch has ended, and keeps its limit', () => {
  let processes = 1;
  const heard: number[] = [];
  const of = { most: 5, requests: 1, processes: () => processes, waitMs: () => 0 };
  const inFlight = createBatchesInFlight(of);
  inFlight.onChange((now) => heard.push(now));
  inFlight.processesSeen();
  processes = 4;
  inFlight.processesSeen();
  for (let batch = 0; batch < 4; batch++) inFlight.batchEnded(100);
  processes = 8;
  inFlight.processesSeen();
  expect(heard).toEqual([3, 4, 5, 5, 5]);
});
