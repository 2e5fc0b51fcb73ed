// Caches what health and metrics read from a database or the queue: one reading at a time, repeated for a while, with a
// time limit. A monitoring system that asks too often must not become a load.
import { endsWithin } from '../lifecycle.js';

/**
 * Returns a cached `read`. An answer, or a failure, is repeated for `keepMs` without reading again. A caller waits
 * `withinMs`, and then gets an error `ETIMEDOUT`; the reading continues, and a later caller gets its answer. `now` is a
 * monotonic clock in milliseconds.
 */
export function cacheReading<T>(
  read: () => Promise<T>,
  {
    keepMs,
    withinMs,
    now = () => performance.now(),
  }: { keepMs: number; withinMs: number; now?: () => number },
): () => Promise<T> {
  let reading: Promise<T> | undefined;
  let kept: { answer: Promise<T>; until: number } | undefined;

  async function ask(): Promise<T> {
    const answer = (reading ??= read().finally(() => (reading = undefined)));
    if (await endsWithin(answer, withinMs)) return answer;
    throw Object.assign(new Error(`no answer within ${withinMs} ms`), { code: 'ETIMEDOUT' });
  }

  return () => {
    if (kept && now() < kept.until) return kept.answer;
    const answer = ask();
    answer.catch(() => undefined); // also if no one reads again
    kept = { answer, until: now() + keepMs };
    return answer;
  };
}
