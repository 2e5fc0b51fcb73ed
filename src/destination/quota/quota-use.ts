// Measures the recent share of the quota that all processes together use, for the progress display of a run.
import type { Limiter } from './limiter.js';

const READ_EVERY_MS = 1000;

/** Returns a function that returns the used share of the quota, from 0 to 1, or undefined while it is unknown. */
export function createQuotaUseReader(limiter: Limiter): () => Promise<number | undefined> {
  let before: { at: number; granted: number } | undefined;
  let use: number | undefined;
  return async () => {
    const at = performance.now();
    if (before && at - before.at < READ_EVERY_MS) return use;
    const usage = await limiter.usage().catch(() => undefined); // the next request reports the reason
    use =
      before && usage
        ? (((usage.granted - before.granted) / (at - before.at)) * 1000) / usage.rate
        : undefined;
    before = usage && { at, granted: usage.granted };
    return use;
  };
}
