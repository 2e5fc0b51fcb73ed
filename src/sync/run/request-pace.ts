// Limits the request rate of work that reads all objects of a type, so that other work can use the quota. A request
// waits before it asks for a quota slot, so that it holds no slot meanwhile.
import { setTimeout as sleep } from 'node:timers/promises';

/** Waits until the next request may be sent. Rejects with the signal's reason. */
export type Pace = (signal?: AbortSignal) => Promise<void>;

interface PaceOptions {
  /** Requests per second that the organization may send. */
  requestsPerSecond: number;
  /** Share of the quota that these requests may use, from 0 to 1. With 1, no request is delayed. */
  share: number;
  /** Returns milliseconds of a monotonic clock. */
  now?: () => number;
  wait?: (ms: number, signal: AbortSignal | undefined) => Promise<unknown>;
}

/** Returns a function that delays requests so that they are sent at an even rate. */
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
