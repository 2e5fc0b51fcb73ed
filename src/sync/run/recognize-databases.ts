// Looks whether mirror and state are still the databases they were, and hold what they held.
import type { Recognition } from '../../connections/database-facts.js';
import type { Logger } from '../../process/logger.js';
import type { Mirror } from '../../mirror/mirror.js';
import type { State } from '../../state/database.js';
import { noteDatabase, readStateFacts } from '../../state/databases.js';

export type Recognizer = ReturnType<typeof createRecognizer>;

/** Returns a function that looks, unless this process has looked within so many milliseconds. It throws what the sides throw. */
export function createRecognizer({
  state,
  mirror,
  log,
}: {
  state: Pick<State, 'db'>;
  mirror: Pick<Mirror, 'facts'>;
  log: Logger;
}) {
  const report = (database: string, recognition: Recognition) => {
    if (recognition.is === 'promoted')
      log.warn({ database }, 'a replica of this database was promoted: what it had not received yet is lost');
    if (recognition.is === 'other')
      log.warn({ database, why: recognition.why }, 'this database was restored, or is another one');
  };
  let lookedAt = -Infinity;
  return async (withinMs = 0): Promise<void> => {
    if (performance.now() - lookedAt < withinMs) return;
    const [ofState, ofMirror] = await Promise.all([
      noteDatabase(state.db, 'state', readStateFacts),
      noteDatabase(state.db, 'mirror', () => mirror.facts()),
    ]);
    report('state', ofState);
    report('mirror', ofMirror);
    lookedAt = performance.now();
  };
}
