// Computes the number of batches a process works at once: its share of what the quota needs. Beside the batches whose requests are under
// way, others are claimed, read, rendered and settled, so that each slot of the quota finds a request that is ready. How many
// that takes is learned from how long batches wait for their slots: far from the databases it takes more. More only wait longer than
// their readings are good for, in one process or in all of them together.

/** Batches of one request. Those of several fill as many slots with fewer, and what was read for their last request is younger. */
export const FEWEST_IN_FLIGHT = 12;
const FEWEST_OF_SEVERAL = 4;
const MOST_IN_FLIGHT = 48;
/** Records of all batches in flight, for the sake of memory. */
const MOST_KEYS = 24_000;
/** Batches that waited less for their slots were waited for. */
const TOO_FEW_BELOW_MS = 300;
/** Beyond it, more of them only let readings grow old: one is good for 10 s. */
const TOO_MANY_ABOVE_MS = 1500;
/** The longest rest of a process after a batch: so soon all of them send again when the quota is free. */
const MOST_REST_MS = 2000;

/** The share of one process, at least one batch. */
const shareOf = (batches: number, processes: number) => Math.ceil(batches / processes);

/** The number to begin with. `requests`: of a batch at most, each of which fills a slot; `processes`: those that send. */
export const fewestInFlight = ({ requests, processes }: { requests: number; processes: number }) =>
  shareOf(requests > 1 ? FEWEST_OF_SEVERAL : FEWEST_IN_FLIGHT, processes);

/**
 * The number after a batch of `keys` keys has ended. `waitMs`: how long batches have waited lately for their slots. `restMs`: the time to
 * take no other batch in its place, where more processes than the quota needs have one each.
 */
export function nextInFlight(
  now: number,
  { waitMs, keys, ...of }: { waitMs: number; keys: number; requests: number; processes: number },
): { inFlight: number; restMs: number } {
  const fewest = fewestInFlight(of);
  const share = shareOf(MOST_IN_FLIGHT, of.processes);
  const most = Math.max(fewest, Math.min(share, Math.floor(MOST_KEYS / keys)));
  const step = waitMs < TOO_FEW_BELOW_MS ? 1 : waitMs > TOO_MANY_ABOVE_MS ? -1 : 0;
  const inFlight = Math.min(most, Math.max(fewest, now + step));
  const tooLong = now + step < fewest ? waitMs - TOO_MANY_ABOVE_MS : 0;
  return { inFlight, restMs: Math.min(MOST_REST_MS, tooLong) };
}

export type BatchesInFlight = ReturnType<typeof createBatchesInFlight>;

/** The number of one process. `most`: an upper limit that somebody has set. */
export function createBatchesInFlight(of: {
  most: number;
  requests: number;
  processes: () => number;
  waitMs: () => number;
}) {
  const begin = () => Math.min(of.most, fewestInFlight({ ...of, processes: of.processes() }));
  let listener: (inFlight: number) => void = () => undefined;
  let now = begin();
  let restMs = 0;
  let hasEnded = false;

  return {
    now: () => now,
    restMs: () => restMs,
    onChange: (changed: (inFlight: number) => void) => void (listener = changed),

    /** Processes that are started together see each other only after they have begun. */
    processesSeen(): void {
      if (hasEnded || now === begin()) return;
      now = begin();
      listener(now);
    },

    batchEnded(keys: number): void {
      const { requests } = of;
      const next = nextInFlight(now, { waitMs: of.waitMs(), keys, requests, processes: of.processes() });
      now = Math.min(of.most, next.inFlight);
      ({ restMs } = next);
      hasEnded = true;
      listener(now);
    },
  };
}
