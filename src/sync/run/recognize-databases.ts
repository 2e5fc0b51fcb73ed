// Looks whether mirror and state are still the databases they were, and hold what they held.
import type { Recognition } from '../../connections/database-facts.js';
import type { Logger } from '../../process/logger.js';
import type { Mirror } from '../../mirror/mirror.js';
import type { State } from '../../state/database.js';
import { noteDatabase, readStateFacts } from '../../state/databases.js';

export type Recognizer = ReturnType<typeof createRecognizer>;

/** A state that a process has just looked at: its presence tells of one that is put back from then on. */
const STATE_GOOD_FOR_MS = 60_000;

/**
 * Returns a function that looks, unless this process has looked within so many milliseconds. It throws what the sides throw.
 * `stateNotedAt`: when the process has looked at the state, by `performance.now()`.
 */
export function createRecognizer({
  state,
  mirror,
  log,
  stateNotedAt = -Infinity,
}: {
  state: Pick<State, 'db'>;
  mirror: Pick<Mirror, 'facts'>;
  log: Logger;
  stateNotedAt?: number | undefined;
}) {
  const report = (database: string, recognition: Recognition) => {
    if (recognition.is === 'promoted')
      log.warn({ database }, 'a replica of this database was promoted: what it had not received yet is lost');
    if (recognition.is === 'other')
      log.warn({ database, why: recognition.why }, 'this database was restored, or is another one');
  };
  let lookedAt = -Infinity;
  return async (withinMs = 0): Promise<void> => {
    const now = performance.now();
    if (now - lookedAt < withinMs) return;
    const [ofState, ofMirror] = await Promise.all([
      now - stateNotedAt < STATE_GOOD_FOR_MS ? undefined : noteDatabase(state.db, 'state', readStateFacts),
      noteDatabase(state.db, 'mirror', () => mirror.facts()),
    ]);
    if (ofState) report('state', ofState);
    report('mirror', ofMirror);
    lookedAt = performance.now();
  };
}
