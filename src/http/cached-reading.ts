// A value from a database or the queue, asked for by anyone at any rate: answered from memory for a while, within
// a time, and never asked twice at once. A monitoring system that asks too often must not become a load.
import { setTimeout as sleep } from 'node:timers/promises';

export interface ReadingOptions {
  /** How long an answer, or a failure, is repeated without asking again. */
  keepMs: number;
  /** How long a caller waits. The question stays open, and its answer is taken by whoever asks then. */
  withinMs: number;
  /** A monotonic clock in milliseconds. */
  now?: () => number;
}

/** Returns a function that reads. It throws what `read` throws, or an error `ETIMEDOUT`. */
export function createReading<T>(
  read: () => Promise<T>,
  { keepMs, withinMs, now = () => performance.now() }: ReadingOptions,
): () => Promise<T> {
  let asking: Promise<T> | undefined;
  let kept: { answer: Promise<T>; until: number } | undefined;

  async function ask(): Promise<T> {
    asking ??= read().finally(() => (asking = undefined));
    const waiting = new AbortController();
    const signal = waiting.signal;
    const timeout = sleep(withinMs, undefined, { signal, ref: false }).then(() => {
      throw Object.assign(new Error(`no answer within ${withinMs} ms`), { code: 'ETIMEDOUT' });
    });
    return Promise.race([asking, timeout]).finally(() => waiting.abort());
  }

  return () => {
    if (kept && now() < kept.until) return kept.answer;
    const answer = ask();
    answer.catch(() => undefined); // also when nobody asks again
    kept = { answer, until: now() + keepMs };
    return answer;
  };
}
