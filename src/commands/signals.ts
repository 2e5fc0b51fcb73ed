// How an operator or an init system ends a command. If the command works the queue, the first SIGINT or SIGTERM
// finishes the work in flight, a second signal aborts the work, and a third ends the process at once.
import { once } from 'node:events';
import type { Stoppable } from '../process/lifecycle.js';
import { printNote } from '../render/print.js';

const SIGNALS = ['SIGINT', 'SIGTERM'] as const;
/** Maximum time in milliseconds to close the connections of a process that stops. */
const CLOSE_WITHIN_MS = 6000;

/** Maximum time in milliseconds for aborted work to end in order, so that nothing stays half written. */
const UNWIND_WITHIN_MS = 2000;

/**
 * Handles signals that a command does not handle. The first signal closes all connections, so that no statement
 * continues on a server, and then ends the process. A second signal ends the process at once.
 */
export function closeOnSignal(close: () => Promise<unknown>) {
  let isHandled = false;
  let isClosing = false;
  const unlisten = () => SIGNALS.forEach((name) => process.off(name, onSignal));
  function onSignal(name: NodeJS.Signals): void {
    if (process.listenerCount(name) > 1) {
      isHandled = true;
      return;
    }
    unlisten();
    if (isHandled) return void process.kill(process.pid, name);
    isClosing = true;
    void close().finally(() => process.kill(process.pid, name));
  }
  SIGNALS.forEach((name) => process.on(name, onSignal));
  return {
    /** Call this when the command has ended. After a signal it never resolves: errors of closing are not reported. */
    async ended(): Promise<void> {
      unlisten();
      if (isClosing) await new Promise(() => undefined);
    },
  };
}

/** Runs work that only reads. A signal aborts it at once. Then `stopped` is printed, and undefined is returned. */
export async function untilInterrupted<T>(
  work: (signal: AbortSignal) => Promise<T>,
  stopped: string,
): Promise<T | undefined> {
  const interrupted = new AbortController();
  let giveUp: (reason: unknown) => void = () => undefined;
  const givenUp = new Promise<never>((_, reject) => (giveUp = reject));
  const interrupt = () => {
    const reason = new Error('interrupted');
    interrupted.abort(reason);
    setTimeout(giveUp, UNWIND_WITHIN_MS, reason).unref();
  };
  SIGNALS.forEach((name) => process.once(name, interrupt));
  try {
    return await Promise.race([work(interrupted.signal), givenUp]);
  } catch (error) {
    if (!interrupted.signal.aborted) throw error;
    printNote(stopped);
    return undefined;
  } finally {
    SIGNALS.forEach((name) => process.off(name, interrupt));
  }
}

export function listenForSignals(work: Stoppable, graceMs?: number) {
  const first = new AbortController();
  const signal: AbortSignal = first.signal;
  const unlisten = () => SIGNALS.forEach((name) => process.off(name, onSignal));
  function onSignal(): void {
    if (first.signal.aborted) {
      unlisten();
      return work.abort();
    }
    printNote('');
    end('Stopping: finishing the work in flight. Press Ctrl-C again to interrupt it.');
  }
  /** Prints the note, and stops the work as the first signal does. */
  function end(note: string): void {
    printNote(note);
    void work.stop(graceMs);
    first.abort();
  }
  SIGNALS.forEach((name) => process.on(name, onSignal));

  return {
    requested: () => first.signal.aborted,
    end,

    signal,

    async firstSignal(): Promise<void> {
      if (!first.signal.aborted) await once(first.signal, 'abort');
    },

    /** Call when the work has ended, before connections are closed. */
    ended(): void {
      if (!first.signal.aborted) return unlisten();
      // Signals are still caught, so that a second signal does not interrupt the closing. A connection that cannot be
      // closed must not keep the process alive.
      setTimeout(() => process.exit(), CLOSE_WITHIN_MS).unref();
    },
  };
}
