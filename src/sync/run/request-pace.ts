// Spaces the requests of a verify or survey, which read whole types, so that other work gets most of the quota. Waits
// before asking for a quota slot, so that no slot is held while waiting.
import { setTimeout as sleep } from 'node:timers/promises';

/** Resolves when the next request may ask for its slot. Rejects with the signal's reason. */
export type Pace = (signal?: AbortSignal) => Promise<void>;

interface PaceOptions {
  /** Quota of the organization. */
  requestsPerSecond: number;
  /** Share of the quota for these requests, from 0 to 1. With 1, only the quota limits the rate. */
  share: number;
  /** Returns milliseconds of a monotonic clock. */
  now?: () => number;
  wait?: (ms: number, signal: AbortSignal | undefined) => Promise<unknown>;
}

/** Returns a function that spaces requests evenly, even if many wait at the same time. */
export function createPace({
  requestsPerSecond,
  share,
  now = () => performance.now(),
  wait = (ms, signal) => sleep(ms, undefined, { signal }),
}: PaceOptions): Pace {
  if (share >= 1) return async (signal) => signal?.throwIfAborted();
  const everyMs = 1000 / (requestsPerSecond * share);
  let next = -Infinity;
  return async (signal) => {
    signal?.throwIfAborted();
    const at = Math.max(now(), next);
    next = at + everyMs;
    if (at > now()) await wait(at - now(), signal);
  };
}
