// Decides what happens to a job that failed, and when its next retry is: a pure function. Only the workers act on it.
import { dispositionOf } from '../errors/errors.js';
import { retryDelayMs } from '../time/retry-delay.js';

/** Attempts before a batch is given up until the next run: about three minutes with the delays below. */
export const ATTEMPTS = 9;

const SECOND = 1000;
/** How long a batch waits while another batch writes its records, or while no batch can succeed. */
const DEFER_MS = 5 * SECOND;
/** The same in the incremental lane, where latency counts; the other batch takes one or two requests. */
const DEFER_INCREMENTAL_MS = 250;

export interface FailedJob {
  error: unknown;
  /** Failed attempts before this one. */
  attemptsMade: number;
  lane?: string | undefined;
  /** The process is stopping and interrupted the job. */
  isInterrupted?: boolean;
  /** The circuit breaker's answer: the cause is outside the job, so waiting uses up no attempt. */
  mustWait?: boolean;
  /** ATTEMPTS unless given. */
  attempts?: number | undefined;
}

/** `retry` uses up an attempt; `defer` and `return` (to the queue, for another process) do not. */
type RetryDecision = { action: 'retry' | 'defer' | 'return'; afterMs: number } | { action: 'give_up' };

export function decideRetry(failed: FailedJob, random: () => number = Math.random): RetryDecision {
  const { error, attemptsMade, lane, isInterrupted, mustWait, attempts = ATTEMPTS } = failed;
  if (isInterrupted) return { action: 'return', afterMs: 0 };
  if (mustWait) return { action: 'defer', afterMs: DEFER_MS };
  switch (dispositionOf(error)) {
    case 'defer':
      return { action: 'defer', afterMs: lane === 'incremental' ? DEFER_INCREMENTAL_MS : DEFER_MS };
    case 'dead':
      return { action: 'give_up' };
    case 'retry':
      if (attemptsMade + 1 >= attempts) return { action: 'give_up' };
      return { action: 'retry', afterMs: retryDelayMs(attemptsMade + 1, random) };
  }
}
