// Delays between the attempts of what failed for a reason that may pass.

const SECOND = 1000;
const LONGEST_DELAY_MS = 60 * SECOND;

/** Whole milliseconds before the next attempt: doubling from 1 s to at most a minute, ±50 % at random. */
export function retryDelayMs(attemptsMade: number, random: () => number = Math.random): number {
  return Math.round(Math.min(LONGEST_DELAY_MS, SECOND * 2 ** (attemptsMade - 1)) * (0.5 + random()));
}
