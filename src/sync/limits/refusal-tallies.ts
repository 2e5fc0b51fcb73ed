// The limit of refusals while batches are in flight. It is weighed when a batch ends, and by then every batch of a stream may
// have begun: so a process also counts, answer by answer, and sends no more of a stream of which too much was refused.
import type { Queries } from '../../state/database.js';
import { readAccepted } from '../../state/runs/hold-rest.js';
import type { Stream } from '../../streams/stream.js';
import { isRefusedTooOften } from './mass-change-limits.js';

/** Streams of runs that are remembered: those that were counted last. */
const MOST_REMEMBERED = 100;

interface Tally {
  sent: number;
  refused: number;
  /** Refusals that an approval of the run allows; read when it matters. */
  allowed?: Promise<number>;
}

export type RefusalTallies = ReturnType<typeof createRefusalTallies>;

/** Counts the answers that this process has got, by stream and run. */
export function createRefusalTallies() {
  const tallies = new Map<string, Tally>();
  const nameOf = (stream: Stream, runId: number) => `${runId} ${stream.name}`;

  function tallyOf(name: string): Tally {
    const tally = tallies.get(name) ?? { sent: 0, refused: 0 };
    tallies.delete(name); // the one that was used last is the last
    tallies.set(name, tally);
    for (const oldest of tallies.keys()) if (tallies.size > MOST_REMEMBERED) tallies.delete(oldest);
    return tally;
  }

  async function readAllowed(db: Queries, part: { runId: number; stream: string }, tally: Tally) {
    try {
      return (await readAccepted(db, part)).allowed;
    } catch (error) {
      delete tally.allowed; // the next one reads it again
      throw error;
    }
  }

  return {
    /** Counts an answer about one object. */
    note(stream: Stream, runId: number, isRefused: boolean): void {
      const tally = tallyOf(nameOf(stream, runId));
      tally.sent++;
      if (isRefused) tally.refused++;
    },

    /** Whether too much was refused to send more. */
    async isBeyond(db: Queries, stream: Stream, runId: number): Promise<boolean> {
      const tally = tallyOf(nameOf(stream, runId));
      if (!isRefusedTooOften(stream, { ...tally, allowed: 0 })) return false;
      tally.allowed ??= readAllowed(db, { runId, stream: stream.name }, tally);
      return isRefusedTooOften(stream, { ...tally, allowed: await tally.allowed });
    },

    /** Begins anew: of all that was answered, in every process, too little was refused to hold anything. */
    clear: (stream: Stream, runId: number): void => void tallies.delete(nameOf(stream, runId)),
  };
}
