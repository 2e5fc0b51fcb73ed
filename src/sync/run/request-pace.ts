// A reading of whole types leaves room for the work of others: its requests are spaced before they ask for a slot of the
// quota, so that none holds a slot while it waits.
import { setTimeout as sleep } from 'node:timers/promises';

/** Resolves when the next request may ask for its slot; rejects with the signal's reason. */
export type Pace = (signal?: AbortSignal) => Promise<void>;

interface PaceOptions {
  /** The organization's quota. */
  requestsPerSecond: number;
  /** The part of the quota for these requests, 0 to 1. With 1 the quota alone decides. */
  share: number;
  /** Milliseconds since any moment, never going back. */
  now?: () => number;
  wait?: (ms: number, signal: AbortSignal | undefined) => Promise<unknown>;
}

/** Spaces the requests of one reading evenly, however many are asked for at once. */
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
