// Computes the number of batches a process works at once: its share of what the quota needs. Beside the batches whose requests are under
// way, others are claimed, read, rendered and settled, so that each slot of the quota finds a request that is ready. How many
// that takes follows from how long preparing and settling take: with the databases on another machine it is a second in place
// of a tenth. More only wait longer than their readings are good for, in one process or in all of them together.

/** Batches of one request. Those of several fill as many slots with fewer, and what was read for their last request is younger. */
export const FEWEST_IN_FLIGHT = 12;
const FEWEST_OF_SEVERAL = 4;
/** In the beginning at most. */
const FIRST_IN_FLIGHT = 24;
/** A batch waits for about a dozen round trips: a further one is in flight for so many milliseconds of each. */
const ROUND_TRIP_MS = 4;
const MOST_IN_FLIGHT = 48;
/** Records of all batches in flight, for the sake of memory. */
const MOST_KEYS = 24_000;
/** Batches that waited less for their slots were waited for. */
const TOO_FEW_BELOW_MS = 300;
/** Beyond it, more of them only let readings grow old: one is good for 10 s. */
const TOO_MANY_ABOVE_MS = 1500;
/** The longest rest of a process after a batch: so soon all of them send again when the quota is free. */
const MOST_REST_MS = 2000;

const fewestOf = (requests: number) => (requests > 1 ? FEWEST_OF_SEVERAL : FEWEST_IN_FLIGHT);

/** The share of one process, at least one batch. */
const shareOf = (batches: number, processes: number) => Math.ceil(batches / processes);

/**
 * The number to begin with, before any batch has waited. `roundTripMs`: to the state; `requests`: of a batch at most, each of which
 * fills a slot, while what was read for the last of them grows old; `processes`: those that send.
 */
export function firstInFlight({
  roundTripMs,
  requests,
  processes,
}: {
  roundTripMs: number;
  requests: number;
  processes: number;
}): number {
  const more = requests > 1 ? 0 : Math.floor(roundTripMs / ROUND_TRIP_MS);
  return shareOf(Math.min(FIRST_IN_FLIGHT, fewestOf(requests) + more), processes);
}

/**
 * The number after a batch of `keys` keys has ended. `waitMs`: how long batches have waited lately for their slots. `restMs`: the time to
 * take no other batch in its place, where more processes than the quota needs have one each.
 */
export function nextInFlight(
  now: number,
  {
    waitMs,
    keys,
    requests,
    processes,
  }: { waitMs: number; keys: number; requests: number; processes: number },
): { inFlight: number; restMs: number } {
  const fewest = shareOf(fewestOf(requests), processes);
  const most = Math.max(fewest, Math.min(shareOf(MOST_IN_FLIGHT, processes), Math.floor(MOST_KEYS / keys)));
  const step = waitMs < TOO_FEW_BELOW_MS ? 1 : waitMs > TOO_MANY_ABOVE_MS ? -1 : 0;
  const inFlight = Math.min(most, Math.max(fewest, now + step));
  const tooLong = now + step < fewest ? waitMs - TOO_MANY_ABOVE_MS : 0;
  return { inFlight, restMs: Math.min(MOST_REST_MS, tooLong) };
}
