// Caches what health and metrics read from a database or the queue: one reading at a time, repeated for a while, with a
// time limit. A monitoring system that asks too often must not become a load.
import { withDeadline } from '../time/deadline.js';

/**
 * Returns a cached `read`. An answer, or a failure, is repeated for `keepMs` without reading again, and for `keepTimes` as
 * long as the reading took since `inTurn` let it begin. A caller waits `withinMs`, and then gets an error `ETIMEDOUT`; the
 * reading continues, and later callers get its answer. `now` is a monotonic clock in milliseconds.
 */
export function cacheReading<T>(
  read: () => Promise<T>,
  {
    keepMs,
    keepTimes = 0,
    withinMs,
    inTurn = (work) => work(),
    now = () => performance.now(),
  }: {
    keepMs: number;
    keepTimes?: number;
    withinMs: number;
    inTurn?: (work: () => Promise<T>) => Promise<T>;
    now?: () => number;
  },
): () => Promise<T> {
  let reading: Promise<T> | undefined;
  let kept: { answer: Promise<T>; until: number } | undefined;

  function begin(): Promise<T> {
    let began = now();
    const answer = inTurn(() => {
      began = now();
      return read();
    }).finally(() => {
      reading = undefined;
      // Kept although the caller has timed out: otherwise a reading slower than the time limit is never shown.
      const took = now() - began;
      kept = { answer, until: Math.max(began + keepMs, now() + keepTimes * took) };
    });
    return answer;
  }

  async function ask(): Promise<T> {
    const answer = (reading ??= begin());
    return withDeadline({ ms: withinMs }, () => answer);
  }

  return () => {
    if (kept && now() < kept.until) return kept.answer;
    const answer = ask();
    kept = { answer, until: now() + keepMs };
    return answer;
  };
}
