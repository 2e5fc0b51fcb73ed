// How many batches are worked at once.
import { expect, it } from 'vitest';
import { firstInFlight, nextInFlight } from '../../src/queue/batches-in-flight.js';

/** The number that it comes to when batches wait as long as `waitMs` says for so many of them. */
function settle(waitMs: (inFlight: number) => number, keys = 100): number {
  let inFlight = 12;
  for (let batch = 0; batch < 200; batch++)
    inFlight = nextInFlight(inFlight, { waitMs: waitMs(inFlight), keys });
  return inFlight;
}

/** Little's law: a batch of one request is prepared and settled for this long; 20 slots a second. */
const waitFor = (busyMs: number) => (inFlight: number) => Math.max(0, inFlight * 50 - busyMs);

it.each([
  ['near', 300, 12],
  ['a second away', 1000, 26],
  ['so far that no number is enough', 10_000, 48],
])('databases %s: a batch always waits for its slot, and none for long', (_, busyMs, expected) => {
  expect(settle(waitFor(busyMs))).toBe(expected);
});

it('shrinks again when batches wait so long that their readings grow old', () => {
  expect(nextInFlight(40, { waitMs: 5000, keys: 100 })).toBe(39);
  expect(settle(() => 5000)).toBe(12);
});

it.each([
  [1000, 24],
  [10_000, 12],
])('there are no more batches of %i keys than memory allows', (keys, most) => {
  expect(settle(() => 0, keys)).toBe(most);
});

it.each([
  ['near', 1, 1, 12],
  ['10 ms away', 21, 1, 17],
  ['25 ms away', 51, 1, 24],
  ['so far that no number is enough', 500, 1, 24],
  ['far, for batches of many requests', 51, 10, 12],
])('databases %s: so many are in flight in the beginning', (_, roundTripMs, requests, expected) => {
  expect(firstInFlight({ roundTripMs, requests })).toBe(expected);
});
