// How an operator or an init system ends a command. One that works the queue: the first SIGINT or SIGTERM finishes the
// work in flight within the grace, the second interrupts it, a third ends the process at once, as the system does.
import { once } from 'node:events';
import type { Stoppable } from '../process/lifecycle.js';
import { printNote } from '../render/print.js';

const SIGNALS = ['SIGINT', 'SIGTERM'] as const;
/** How long a process that is stopping may take to close its connections. */
const CLOSE_WITHIN_MS = 6000;

/** How long interrupted work may take to leave nothing half written. */
const UNWIND_WITHIN_MS = 2000;

/**
 * For every command: a signal that the command does not handle closes what is open, so that no statement goes on at a server,
 * and then ends the process as the system does. A second one ends it at once.
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
    /** To be called when the command has ended. Never resolves after such a signal: what fails then is no news. */
    async ended(): Promise<void> {
      unlisten();
      if (isClosing) await new Promise(() => undefined);
    },
  };
}

/**
 * For a command that only reads, and starts again from the beginning: a signal interrupts it at once. Undefined: it was
 * interrupted, and `stopped` was said.
 */
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
    end('Stopping: finishing the work in flight; a second signal interrupts it.');
  }
  /** Stops as after the first signal. */
  function end(note: string): void {
    printNote(note);
    void work.stop(graceMs);
    first.abort();
  }
  SIGNALS.forEach((name) => process.on(name, onSignal));

  return {
    requested: () => first.signal.aborted,
    end,

    /** Aborts at the first signal. */
    signal,

    /** Resolves at the first signal. */
    async firstSignal(): Promise<void> {
      if (!first.signal.aborted) await once(first.signal, 'abort');
    },

    /** To be called when the work is over and closing begins. */
    ended(): void {
      if (!first.signal.aborted) return unlisten();
      // Signals are still caught, so that a second one does not break the closing off. But a connection that cannot be
      // closed must not keep a process alive that was asked to stop.
      setTimeout(() => process.exit(), CLOSE_WITHIN_MS).unref();
    },
  };
}
