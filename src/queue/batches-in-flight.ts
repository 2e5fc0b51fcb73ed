// Computes how many batches a process works at once: its share of the batches that keep the quota busy. While some
// batches send requests, others are claimed, read, rendered and settled, so that each slot finds a ready request. The
// number adapts to how long batches wait for slots: the slower the databases answer, the more batches are needed. With
// too many batches, their rows grow too old before they get a slot.

/** Fewest batches in flight if a batch is one request. Batches of several requests fill as many slots with fewer. */
export const FEWEST_IN_FLIGHT = 12;
const FEWEST_OF_SEVERAL = 4;
const MOST_IN_FLIGHT = 48;
/** Maximum number of records in all batches in flight, to bound memory. */
const MOST_KEYS = 24_000;
/** If batches wait less than this for their slots, slots have waited for batches, so more batches are needed. */
const TOO_FEW_BELOW_MS = 300;
/** If batches wait longer than this for their slots, there are too many. Rows are too old 10 s after reading. */
const TOO_MANY_ABOVE_MS = 1500;
/** Longest pause of a process after a batch, so that all processes soon send again when the quota is free. */
const MOST_REST_MS = 2000;

/** Returns the share of one process, at least one batch. */
const shareOf = (batches: number, processes: number) => Math.ceil(batches / processes);

/** Returns the initial number of batches. `requests` is the maximum per batch, `processes` counts those that send. */
export const fewestInFlight = ({ requests, processes }: { requests: number; processes: number }) =>
  shareOf(requests > 1 ? FEWEST_OF_SEVERAL : FEWEST_IN_FLIGHT, processes);

/**
 * Returns the number of batches after a batch of `keys` keys has ended. `waitMs` is how long batches waited recently
 * for their slots. `restMs` is a pause before the next batch, if even one batch per process is too many.
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

/** Adapts the number of batches in flight of one process. `most` is a configured upper limit. */
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

    /** Computes the initial number again, once processes that were started together have seen each other. */
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
