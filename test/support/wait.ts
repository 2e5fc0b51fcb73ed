// Tests wait for what they are about, never for an amount of time. The limit is for what hangs, not for what is slow:
// the machine may be busy with other things.
import { setTimeout as pause } from 'node:timers/promises';

type Falsy = false | 0 | '' | null | undefined;

/** A promise that is resolved from outside. */
export function createDeferred() {
  let resolve = () => {};
  const promise = new Promise<void>((settle) => (resolve = settle));
  return { promise, resolve: () => resolve() };
}

/**
 * Asks again until the answer is truthy, and returns it. An error thrown by the condition counts as "not yet"; the
 * last one is the cause when time runs out.
 */
export async function until<Answer>(
  condition: () => Answer | Promise<Answer>,
  options: { describe: string | (() => string); timeoutMs?: number; intervalMs?: number },
): Promise<Exclude<Answer, Falsy>> {
  const { timeoutMs = 120_000, intervalMs = 20 } = options;
  const deadline = performance.now() + timeoutMs;
  let cause: unknown;
  do {
    try {
      const answer = await condition();
      if (answer) return answer as Exclude<Answer, Falsy>;
      cause = undefined;
    } catch (error) {
      cause = error;
    }
    await pause(intervalMs);
  } while (performance.now() < deadline);
  const described = typeof options.describe === 'string' ? options.describe : options.describe();
  throw new Error(`waited ${timeoutMs} ms for ${described}`, { cause });
}

/** Starts to count the processor time of this process, which a busy machine does not lengthen. Milliseconds. */
export function countProcessorTime(): () => number {
  const since = process.cpuUsage();
  return () => {
    const { user, system } = process.cpuUsage(since);
    return (user + system) / 1000;
  };
}
