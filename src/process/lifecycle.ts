// Starts and stops everything that runs in the background. Code that opens a resource registers how it is released. A
// periodic loop is a `repeat`. Work in flight stops in two steps: it may finish within a grace period, then is
// interrupted.
import { setMaxListeners } from 'node:events';
import pLimit from 'p-limit';
import { openDeadline } from '../time/deadline.js';
import type { Logger } from './logger.js';

/** A part of the program that stops in two steps: its work may finish, then is interrupted. */
export interface Stoppable {
  /**
   * Starts no more work. Resolves when the work in flight has ended; after `graceMs` that work is interrupted.
   * Idempotent: only the grace period of the first call counts.
   */
  stop(graceMs?: number): Promise<void>;
  /** Starts no more work, and interrupts the work in flight at once. */
  abort(): void;
}

const SECOND = 1000;
/** Default of the grace period, in which work in flight may finish. */
const GRACE_MS = 30 * SECOND;
/** Time for interrupted work to return to the queue, which takes a transaction and a command to the queue. */
const INTERRUPT_WITHIN_MS = 5 * SECOND;

/**
 * Creates the two-step stop of one part. `finish` is called once, when the part stops, and resolves when no work is in
 * flight. Work that does not end soon after its interruption is left to the end of the process.
 */
export function createStoppable(
  part: string,
  log: Logger,
  finish: () => Promise<unknown>,
): Stoppable & { stopping: AbortSignal; aborting: AbortSignal } {
  const stopping = new AbortController();
  const aborting = new AbortController();
  setMaxListeners(0, stopping.signal, aborting.signal); // every request in flight adds a listener
  const reason = new Error('the process is stopping');
  let stopped: Promise<void> | undefined;

  async function finishOrInterrupt(graceMs: number): Promise<void> {
    stopping.abort(reason);
    const finished = finish();
    if (await endsWithin(finished, graceMs, aborting.signal)) return;
    aborting.abort(reason);
    if (await endsWithin(finished, INTERRUPT_WITHIN_MS)) return;
    log.warn({ part }, 'interrupted work did not end in time; other workers will take over that work');
  }

  return {
    /** Aborted by the first step: start no more work. */
    stopping: stopping.signal,
    /** Aborted by the second step: interrupt the work in flight. */
    aborting: aborting.signal,
    stop: (graceMs = GRACE_MS) => (stopped ??= finishOrInterrupt(graceMs)),
    abort(): void {
      stopped ??= finishOrInterrupt(GRACE_MS);
      aborting.abort(reason);
    },
  };
}

/** Stops several parts at the same time, including parts that are added to the list later. */
export function stopTogether(parts: readonly Stoppable[]): Stoppable {
  return {
    stop: async (graceMs) => void (await Promise.all(parts.map((part) => part.stop(graceMs)))),
    abort: () => parts.forEach((part) => part.abort()),
  };
}

interface RepeatOptions {
  /** Milliseconds from the end of a round to the start of the next, unless the round returns another number. */
  everyMs: number;
  /** Milliseconds before the first round. The default is 0. */
  firstAfterMs?: number;
  /** Aborted to end the loop. A round in progress finishes first. Without a signal, only `end` ends the loop. */
  signal?: AbortSignal;
  /** Called when a round fails, unless the loop is to end. The next round follows after `everyMs`. */
  onError: (error: unknown) => void;
}

/** Repeats `round`, never twice at once, until the signal aborts, `end` is called, or a round returns `done`. */
export function repeat(
  round: () => Promise<number | 'done' | void>,
  { everyMs, firstAfterMs = 0, signal, onError }: RepeatOptions,
) {
  let pause = new AbortController();
  let isEnding = false;
  const wake = () => pause.abort();
  const isOver = () => isEnding || signal?.aborted === true;

  async function run(): Promise<void> {
    let waitMs = firstAfterMs;
    while (!isOver()) {
      await endsWithin(new Promise(() => undefined), waitMs, pause.signal); // returns when woken, too
      if (isOver()) return;
      pause = new AbortController();
      waitMs = everyMs;
      try {
        const next = await round();
        if (next === 'done') return;
        if (typeof next === 'number') waitMs = next;
      } catch (error) {
        if (!isOver()) onError(error);
      }
    }
  }

  signal?.addEventListener('abort', wake, { once: true });
  const ended = run().finally(() => signal?.removeEventListener('abort', wake));
  return {
    /** Starts a round now, or as soon as the round in progress has ended. */
    wake,
    ended,
    /** Ends the loop. Resolves when the round in progress has finished. */
    async end(): Promise<void> {
      isEnding = true;
      wake();
      await ended;
    },
  };
}

/** Returns a function that calls `open` once, and returns the same result at every call. */
export function once<T>(open: () => Promise<T>): () => Promise<T> {
  let opened: Promise<T> | undefined;
  return () => (opened ??= open());
}

/** Returns a function that calls `look`. A successful call within the last `withinMs` is not repeated. */
export function remembered(look: () => Promise<void>): (withinMs?: number) => Promise<void> {
  let last: { at: number; looked: Promise<void> } | undefined;
  return (withinMs = 0) => {
    const at = performance.now();
    if (last && at - last.at < withinMs) return last.looked;
    const begun = { at, looked: look() };
    last = begun;
    begun.looked.catch(() => (last = last === begun ? undefined : last));
    return begun.looked;
  };
}

/** Releases resources, the last opened first. A release that fails or exceeds `withinMs` does not block the others. */
export function createReleasers({ log, withinMs }: { log: Logger; withinMs: number }) {
  const releasers: (() => Promise<unknown>)[] = [];
  return {
    /** Registers how a resource is released, and returns the resource. */
    add<T>(thing: T, release: () => Promise<unknown>): T {
      releasers.push(release);
      return thing;
    },

    async releaseAll(): Promise<void> {
      for (let release = releasers.pop(); release; release = releasers.pop()) {
        try {
          await endsWithin(release(), withinMs);
        } catch (error) {
          log.debug({ reason: String(error) }, 'closing failed');
        }
      }
    },
  };
}

/** Returns true if the work ends within the time and before the signal aborts. Throws the errors of the work. */
export async function endsWithin(work: Promise<unknown>, ms: number, signal?: AbortSignal): Promise<boolean> {
  const deadline = openDeadline({ ms, signal });
  try {
    await deadline.within(work);
    return true;
  } catch (error) {
    if (deadline.signal.aborted) return false;
    throw error;
  } finally {
    deadline.end();
  }
}

export type Turns = ReturnType<typeof createTurns>;

/** Runs one piece of work at a time, in the order of the calls. */
export function createTurns() {
  const limit = pLimit(1);
  return { take: <T>(work: () => Promise<T>): Promise<T> => limit(work) };
}
