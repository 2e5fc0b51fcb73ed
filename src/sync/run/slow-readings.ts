// Warns when the rows of a batch take long to read: each further batch of the run takes as long.
import type { Logger } from '../../process/logger.js';
import type { SlowReading } from '../../mirror/mirror.js';

/** Streams of runs that are remembered. */
const MOST_REMEMBERED = 100;

export type SlowReadings = ReturnType<typeof createSlowReadings>;

/** Remembers of which streams of which runs this process has warned: once is enough. */
export function createSlowReadings() {
  const warned = new Set<string>();
  return {
    warn(log: Logger, { runId, stream }: { runId: number; stream: string }, reading: SlowReading): void {
      const name = `${runId} ${stream}`;
      if (warned.has(name)) return;
      warned.add(name);
      for (const oldest of warned) if (warned.size > MOST_REMEMBERED) warned.delete(oldest);
      log.warn(
        { stream, ...reading },
        'reading the rows of a batch took long: docs/costs.md says which index helps',
      );
    },
  };
}
