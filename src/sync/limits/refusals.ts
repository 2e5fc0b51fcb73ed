// Stops sending a stream when the service refuses too many of its objects, for example after a change of the mapping.
// Otherwise every record would cost a request and be given up. Refusals are counted answer by answer.
import type { Queries } from '../../state/database.js';
import { closeGate } from '../../state/gates/close-gates.js';
import { noteRefusals, type Refusals as Totals } from '../../state/streams.js';
import type { Stream } from '../../streams/stream.js';
import { isRefusedTooOften } from './decide.js';

/** Maximum number of stopped streams to remember. The oldest is forgotten first. */
const MOST_REMEMBERED = 100;

export type Refusals = ReturnType<typeof createRefusals>;

/** Answers about objects of one batch that are not yet added to the stream's totals, with an example of a refusal. */
export type Answers = Omit<Totals, 'allowed'>;

export const noAnswers = (): Answers => ({ answered: 0, refused: 0, code: '', message: '' });

/** Counts refusals, and remembers which streams to stop. Batches that have already begun must stop too. */
export function createRefusals() {
  const stopped = new Set<string>();
  const nameOf = (stream: Stream, runId: number) => `${runId} ${stream.name}`;
  return {
    /**
     * Adds answers to the stream's totals. Closes a gate if too many are refusals. Returns true if the stream is
     * stopped in this run.
     */
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
