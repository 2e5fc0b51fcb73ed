// How many keys a batch takes where each batch reads the whole source: more of them, so that it is read less often.
import type { CostlyReading } from '../../mirror/mirror.js';

/** A batch holds its rows in memory, and a worker has twelve of them at once. */
const MOST_KEYS = 5000;

/** `usual`: keys of a batch that reads its rows alone, or undefined where the configuration fixes them. */
export function keysAtOnce(usual: number, reading: CostlyReading | undefined): number {
  return reading ? Math.max(usual, MOST_KEYS) : usual;
}
