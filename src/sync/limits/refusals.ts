// The limit of refusals. A mapping or a service that has changed may make every object of a stream be refused: the rest is
// kept back before all of it has cost a request and been given up. Counted answer by answer, because no plan can know it.
import type { Queries } from '../../state/database.js';
import { closeGate } from '../../state/gates/close-gate.js';
import { noteRefusals } from '../../state/streams.js';
import type { Stream } from '../../streams/stream.js';
import { isRefusedTooOften } from './decide.js';

/** Runs whose streams are remembered. */
const MOST_REMEMBERED = 100;

export type Refusals = ReturnType<typeof createRefusals>;

/** Answers about objects of one batch that were not counted yet. */
export interface Answers {
  answered: number;
  refused: number;
  code: string;
  message: string;
}

export const noAnswers = (): Answers => ({ answered: 0, refused: 0, code: '', message: '' });

/** Remembers of which streams of which runs this process sends no more: their other batches have begun. */
export function createRefusals() {
  const stopped = new Set<string>();
  const nameOf = (stream: Stream, runId: number) => `${runId} ${stream.name}`;
  return {
    /** Whether too much of the stream was refused to send more of it in this run. */
    isStopped: (stream: Stream, runId: number): boolean => stopped.has(nameOf(stream, runId)),

    /** Counts answers, if any refuses; closes the gate when there are too many. Returns whether it is closed. */
    async count(db: Queries, stream: Stream, runId: number, answers: Answers): Promise<boolean> {
      if (answers.refused > 0) {
        const limit = stream.limits.refused;
        const total = await noteRefusals(db, stream.name, answers);
        Object.assign(answers, noAnswers());
        if (isRefusedTooOften(stream, total)) {
          stopped.add(nameOf(stream, runId));
          for (const oldest of stopped) if (stopped.size > MOST_REMEMBERED) stopped.delete(oldest);
          const { refused: records, answered: sent, code, message, allowed } = total;
          await closeGate(db, stream.name, {
            operation: '*',
            reason: 'refused',
            runId,
            facts: {
              accepted: 0,
              limit,
              refused: { records, sent, code, message },
              ...(allowed > 0 && { approval: { allowed, isOther: false } }),
            },
          });
        }
      }
      return stopped.has(nameOf(stream, runId));
    },
  };
}
