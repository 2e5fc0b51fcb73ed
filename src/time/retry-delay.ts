// Computes the delays between attempts at work that failed for a temporary reason.

const SECOND = 1000;
const LONGEST_DELAY_MS = 60 * SECOND;

/** Returns the milliseconds before the next attempt: doubling from 1 s to a minute, ±50 % at random. */
export function retryDelayMs(attemptsMade: number, random: () => number = Math.random): number {
  return Math.round(Math.min(LONGEST_DELAY_MS, SECOND * 2 ** (attemptsMade - 1)) * (0.5 + random()));
}
