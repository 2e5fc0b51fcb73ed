// Checks whether mirror and state are still the same databases as before, and not restored backups.
import type { Recognition } from '../../connections/database-facts.js';
import { remembered } from '../../process/lifecycle.js';
import type { Logger } from '../../process/logger.js';
import type { Mirror } from '../../mirror/mirror.js';
import type { State } from '../../state/database.js';
import { noteDatabase, readStateFacts } from '../../state/restored-databases.js';

export type Recognizer = ReturnType<typeof createRecognizer>;

/** Creates the checks. A check that this process made within the last `withinMs` milliseconds is not repeated. */
export function createRecognizer({
  state: { db },
  mirror,
  log,
}: {
  state: Pick<State, 'db'>;
  mirror: Pick<Mirror, 'facts'>;
  log: Logger;
}) {
  const report = (database: string, { is, ...found }: Recognition) => {
    if (is === 'promoted')
      log.warn(
        { database },
        'a replica of this database was promoted: writes that had not reached it are lost',
      );
    if (is === 'other') log.warn({ database, ...found }, 'this database was restored or replaced');
  };
  const state = remembered(async () => report('state', await noteDatabase(db, 'state', readStateFacts)));
  const mirrorAlone = remembered(async () =>
    report('mirror', await noteDatabase(db, 'mirror', () => mirror.facts())),
  );
  const both = async (withinMs?: number) =>
    void (await Promise.all([state(withinMs), mirrorAlone(withinMs)]));
  return { state, both };
}
