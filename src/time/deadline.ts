// Sets all time limits for waiting; no other file does. A deadline holds its timer until it ends. On Node 20 the
// garbage collector removes the timer of AbortSignal.timeout if only AbortSignal.any refers to it, and the wait never
// ends.
import { setMaxListeners } from 'node:events';

export interface Limit {
  /** Time limit in milliseconds. If undefined, only the signal ends the wait. */
  ms?: number;
  /** Aborted to end the wait before the time limit. */
  signal?: AbortSignal | undefined;
}

export class TimeoutError extends Error {
  override readonly name = 'TimeoutError';
  readonly code = 'ETIMEDOUT';
}

export interface Deadline {
  signal: AbortSignal;
  /** Returns the result of the work. Throws when the deadline passes, even if the work ignores the signal. */
  within: <T>(work: Promise<T>) => Promise<T>;
  end: () => void;
}

/** Opens a deadline; the caller must call `end`. The reason is a TimeoutError or the reason of the caller's signal. */
export function openDeadline({ ms, signal }: Limit): Deadline {
  const passing = new AbortController();
  let reject: (reason: unknown) => void = () => undefined;
  const passed = new Promise<never>((_, fail) => (reject = fail));
  passed.catch(() => undefined); // `within` throws the reason
  const pass = (reason: unknown) => {
    passing.abort(reason);
    reject(reason);
  };
  const timer =
    ms === undefined ? undefined : setTimeout(() => pass(new TimeoutError('no answer in time')), ms);
  const onAbort = () => pass(signal?.reason);
  if (signal?.aborted) onAbort();
  else if (signal) {
    setMaxListeners(0, signal); // all work in flight adds listeners
    signal.addEventListener('abort', onAbort);
  }
  return {
    signal: passing.signal,
    within: (work) => Promise.race([passed, work]),
    end(): void {
      clearTimeout(timer);
      signal?.removeEventListener('abort', onAbort);
    },
  };
}

/** Returns the result of `work`, which gets the deadline's signal. Throws a TimeoutError or the signal's reason. */
export async function withDeadline<T>(limit: Limit, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const deadline = openDeadline(limit);
  try {
    return await deadline.within(work(deadline.signal));
  } finally {
    deadline.end();
  }
}

// Computes the delays between attempts at work that failed for a temporary reason.

const SECOND = 1000;
const LONGEST_DELAY_MS = 60 * SECOND;

/** Returns the milliseconds before the next attempt: doubling from 1 s to a minute, ±50 % at random. */
export function retryDelayMs(attemptsMade: number, random: () => number = Math.random): number {
  return Math.round(Math.min(LONGEST_DELAY_MS, SECOND * 2 ** (attemptsMade - 1)) * (0.5 + random()));
}
