// How everything that runs in the background starts and stops: whoever opens a thing registers how it is released, a
// periodic loop is a `repeat`, and work in flight is stopped in two steps: finish within a grace, then be interrupted.
import { setMaxListeners } from 'node:events';
import { openDeadline } from '../time/deadline.js';
import type { Logger } from './logger.js';

/** A part of the program that stops in two steps. */
export interface Stoppable {
  /**
   * Starts nothing more. Resolves when the work in flight has ended; after `graceMs` it is interrupted. Idempotent: the
   * first call's grace counts.
   */
  stop(graceMs?: number): Promise<void>;
  /** Stops and interrupts the work in flight now. */
  abort(): void;
}

const SECOND = 1000;
/** Time to finish the work in flight, unless the caller sets another. */
const GRACE_MS = 30 * SECOND;
/** Time for interrupted work to return to the queue: a transaction and a command to the queue. */
const INTERRUPT_WITHIN_MS = 5 * SECOND;

/**
 * The two-step stop of one part of the program. `finish` is called once, when it stops, and resolves when no work is in
 * flight; what has not ended shortly after the interruption is left to the end of the process.
 */
export function createStoppable(
  part: string,
  log: Logger,
  finish: () => Promise<unknown>,
): Stoppable & { stopping: AbortSignal; aborting: AbortSignal } {
  const stopping = new AbortController();
  const aborting = new AbortController();
  setMaxListeners(0, stopping.signal, aborting.signal); // every request in flight listens
  const reason = new Error('the process is stopping');
  let stopped: Promise<void> | undefined;

  async function finishOrInterrupt(graceMs: number): Promise<void> {
    stopping.abort(reason);
    const finished = finish();
    if (await endsWithin(finished, graceMs, aborting.signal)) return;
    aborting.abort(reason);
    if (await endsWithin(finished, INTERRUPT_WITHIN_MS)) return;
    log.warn({ part }, 'interrupted work did not end in time; other workers take it over');
  }

  return {
    /** Aborted by the first step: start nothing more. */
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

/** Several parts that stop at the same time; parts added to the list later are included. */
export function stopTogether(parts: readonly Stoppable[]): Stoppable {
  return {
    stop: async (graceMs) => void (await Promise.all(parts.map((part) => part.stop(graceMs)))),
    abort: () => parts.forEach((part) => part.abort()),
  };
}

interface RepeatOptions {
  /** From the end of one round to the start of the next, unless the round returns another number of milliseconds. */
  everyMs: number;
  /** Before the first round. 0 unless given. */
  firstAfterMs?: number;
  /** Ends the loop; a round that runs is finished first. */
  signal: AbortSignal;
  /** A round failed; the next one follows after `everyMs`. Not called once the signal has aborted. */
  onError: (error: unknown) => void;
}

/** Runs `round` again and again, never twice at once, until the signal aborts or a round returns `done`. */
export function repeat(
  round: () => Promise<number | 'done' | void>,
  { everyMs, firstAfterMs = 0, signal, onError }: RepeatOptions,
) {
  let pause = new AbortController();
  const wake = () => pause.abort();

  async function run(): Promise<void> {
    let waitMs = firstAfterMs;
    while (!signal.aborted) {
      await wait(waitMs, pause.signal);
      if (signal.aborted) return;
      pause = new AbortController();
      waitMs = everyMs;
      try {
        const next = await round();
        if (next === 'done') return;
        if (typeof next === 'number') waitMs = next;
      } catch (error) {
        if (!signal.aborted) onError(error);
      }
    }
  }

  signal.addEventListener('abort', wake, { once: true });
  return {
    /** Starts a round now, or as soon as the running one has ended. */
    wake,
    /** Resolves when the loop has ended. */
    ended: run().finally(() => signal.removeEventListener('abort', wake)),
  };
}

/** A function that opens something at its first call, and returns the same from then on. */
export function once<T>(open: () => Promise<T>): () => Promise<T> {
  let opened: Promise<T> | undefined;
  return () => (opened ??= open());
}

/** A function that looks, unless it has begun to within so many milliseconds and did not fail: then that look counts. */
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

/** Releases what was opened: last in, first out. One that fails, or takes longer than `withinMs`, holds up no other. */
export function createReleasers({ log, withinMs }: { log: Logger; withinMs: number }) {
  const releasers: (() => Promise<unknown>)[] = [];
  return {
    /** Registers how a thing is released, and returns the thing. */
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

/** Whether the work ends within the time and before the signal aborts. Throws what the work throws. */
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

/** Resolves after the time, or as soon as the signal aborts. */
async function wait(ms: number, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return;
  await new Promise<void>((resolve) => {
    const end = () => {
      clearTimeout(timer);
      resolve();
    };
    const timer = setTimeout(end, ms);
    signal.addEventListener('abort', end, { once: true });
  });
}

export type Turns = ReturnType<typeof createTurns>;

/** Work is done in the order in which it was asked for, never two pieces at a time. */
export function createTurns() {
  let last: Promise<void> = Promise.resolve();
  return {
    /** Does the work when no other work has the turn. */
    async take<T>(work: () => Promise<T>): Promise<T> {
      const before = last;
      let leave = () => undefined as void;
      last = new Promise((resolve) => (leave = resolve));
      await before;
      try {
        return await work();
      } finally {
        leave();
      }
    },
  };
}
