// How an operator or an init system ends a command that works the queue. First SIGINT or SIGTERM: finish the work in
// flight within the grace. Second: interrupt it. A third ends the process at once, as the system does by default.
import { once } from 'node:events';
import type { Stoppable } from '../lifecycle.js';
import { printNote } from '../report/print.js';

const SIGNALS = ['SIGINT', 'SIGTERM'] as const;
/** How long a process that is stopping may take to close its connections. */
const CLOSE_WITHIN_MS = 6000;

export function listenForSignals(work: Stoppable, graceMs?: number) {
  const first = new AbortController();
  const unlisten = () => SIGNALS.forEach((name) => process.off(name, onSignal));
  function onSignal(): void {
    if (first.signal.aborted) {
      unlisten();
      return work.abort();
    }
    printNote('\nStopping: finishing the work in flight; a second signal interrupts it.');
    void work.stop(graceMs);
    first.abort();
  }
  SIGNALS.forEach((name) => process.on(name, onSignal));

  return {
    requested: () => first.signal.aborted,

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
