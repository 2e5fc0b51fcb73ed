// How a person or a service manager ends a command that works the queue, in two steps: finish, then interrupt.

/** How long a process that was told to end may still close what it has open. Milliseconds. */
const LINGER_MS = 6000;

export interface Stoppable {
  /** Takes no more, and resolves when what is in work is finished or its grace has ended. */
  stop(graceMs?: number): Promise<void>;
  abort(): void;
}

/**
 * First SIGINT or SIGTERM: finish what is in work within the grace. Second: interrupt it. A third ends the process as
 * the system does.
 */
export function listenForSignals(workers: Stoppable, graceMs?: number) {
  let signals = 0;
  const first = new AbortController();
  const onSignal = () => {
    signals++;
    if (signals === 1) {
      process.stderr.write('\nFinishing what is in work; once more to interrupt it.\n');
      void workers.stop(graceMs);
      first.abort();
    } else {
      workers.abort();
      unlisten();
    }
  };
  const unlisten = () => {
    process.off('SIGINT', onSignal);
    process.off('SIGTERM', onSignal);
  };
  process.on('SIGINT', onSignal);
  process.on('SIGTERM', onSignal);
  return {
    requested: () => signals > 0,
    /** Resolves at the first signal. */
    asked: () =>
      new Promise<void>((resolve) => {
        if (first.signal.aborted) resolve();
        else first.signal.addEventListener('abort', () => resolve());
      }),
    /** The work is over; what is open is being closed. */
    ended() {
      if (signals === 0) return unlisten();
      // It goes on listening: a second signal must not break the closing off. And a connection that cannot be closed
      // must not keep a process that was told to end.
      setTimeout(() => process.exit(), LINGER_MS).unref();
    },
  };
}
