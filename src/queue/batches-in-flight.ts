// How many batches a process works at once. Beside those whose requests are under way, others are claimed, read, rendered
// and settled, so that each slot of the quota finds a request that is ready. How many that takes follows from how long
// preparing and settling take: with the databases on another machine it is a second in place of a tenth.

const FEWEST_IN_FLIGHT = 12;
/** In the beginning at most. */
const FIRST_IN_FLIGHT = 24;
/** A batch waits for about a dozen round trips: a further one is in flight for so many milliseconds of each. */
const ROUND_TRIP_MS = 4;
const MOST_IN_FLIGHT = 48;
/** Records of all batches in flight, for the sake of memory. */
const MOST_KEYS = 24_000;
/** Batches that waited less for their first slot were waited for. */
const TOO_FEW_BELOW_MS = 300;
/** Beyond it, more of them only let readings grow old: one is good for 10 s. */
const TOO_MANY_ABOVE_MS = 1500;

/**
 * The number to begin with, before any batch has waited. `roundTripMs`: to the state; `requests`: of a batch at most, each of which
 * fills a slot, while what was read for the last of them grows old.
 */
export function firstInFlight({ roundTripMs, requests }: { roundTripMs: number; requests: number }): number {
  if (requests > 1) return FEWEST_IN_FLIGHT;
  return Math.min(FIRST_IN_FLIGHT, FEWEST_IN_FLIGHT + Math.floor(roundTripMs / ROUND_TRIP_MS));
}

/** The number after a batch of so many keys has ended. `waitMs`: how long batches have waited lately for their first slot. */
export function nextInFlight(now: number, { waitMs, keys }: { waitMs: number; keys: number }): number {
  const most = Math.max(FEWEST_IN_FLIGHT, Math.min(MOST_IN_FLIGHT, Math.floor(MOST_KEYS / keys)));
  const step = waitMs < TOO_FEW_BELOW_MS ? 1 : waitMs > TOO_MANY_ABOVE_MS ? -1 : 0;
  return Math.min(most, Math.max(FEWEST_IN_FLIGHT, now + step));
}
