// Caches facts that health checks and metrics read, so that a monitoring system that asks too often causes no load.
import { withDeadline } from '../time/deadline.js';

/**
 * Returns a cached version of `read`, which never runs twice at a time. A result or an error is cached for `keepMs`,
 * and for `keepTimes` times the duration of the read, which begins when `inTurn` lets it. A caller gets the error
 * `ETIMEDOUT` after `withinMs`. The read then continues, and later callers get its result. `now` is a monotonic clock
 * in milliseconds.
 */
export function cacheReading<T>(
  read: () => Promise<T>,
  options: {
    keepMs: number;
    keepTimes?: number;
    withinMs: number;
    inTurn?: (work: () => Promise<T>) => Promise<T>;
    now?: () => number;
  },
): () => Promise<T> {
  const {
    keepMs,
    keepTimes = 0,
    withinMs,
    inTurn = (work) => work(),
    now = () => performance.now(),
  } = options;
  let reading: Promise<T> | undefined;
  let kept: { answer: Promise<T>; until: number } | undefined;

  function begin(): Promise<T> {
    let began = now();
    const answer = inTurn(() => {
      began = now();
      return read();
    }).finally(() => {
      reading = undefined;
      // Cached even if the caller has timed out. Otherwise a read slower than the time limit would never be shown.
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
