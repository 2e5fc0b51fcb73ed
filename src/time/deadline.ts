// The only place that limits how long something is waited for. A deadline holds its timer until it ends. On Node 20 the
// garbage collector removes the timer of AbortSignal.timeout when only AbortSignal.any refers to it, and the wait never ends.
import { setMaxListeners } from 'node:events';

export interface Limit {
  /** From now on; undefined: the signal alone ends the wait. */
  ms?: number;
  /** Ends the wait before its time. */
  signal?: AbortSignal | undefined;
}

/** Something took longer than its limit. */
export class TimeoutError extends Error {
  override readonly name = 'TimeoutError';
  readonly code = 'ETIMEDOUT';
}

export interface Deadline {
  /** Aborts when the deadline passes. */
  signal: AbortSignal;
  /** The result of the work. Throws the reason as soon as the deadline passes, also when the work does not listen to it. */
  within: <T>(work: Promise<T>) => Promise<T>;
  end: () => void;
}

/** Opens a deadline, whose `end` is called in any case. When it passes, `reason` is a TimeoutError or the reason of the signal. */
export function openDeadline({ ms, signal }: Limit): Deadline {
  const passing = new AbortController();
  let reject: (reason: unknown) => void = () => undefined;
  const passed = new Promise<never>((_, fail) => (reject = fail));
  passed.catch(() => undefined); // whoever waits gets the reason
  const pass = (reason: unknown) => {
    passing.abort(reason);
    reject(reason);
  };
  const timer =
    ms === undefined ? undefined : setTimeout(() => pass(new TimeoutError('no answer in time')), ms);
  const onAbort = () => pass(signal?.reason);
  if (signal?.aborted) onAbort();
  else if (signal) {
    setMaxListeners(0, signal); // everything in flight listens
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

/** The result of work that gets the deadline's signal. Throws a TimeoutError or the reason of the caller's signal. */
export async function withDeadline<T>(limit: Limit, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const deadline = openDeadline(limit);
  try {
    return await deadline.within(work(deadline.signal));
  } finally {
    deadline.end();
  }
}
