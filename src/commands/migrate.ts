import type { App } from '../app/app.js';
import { migrateQueue } from '../queue/migrate-queue.js';
import { plural } from '../text/format.js';
import { print, printNote } from '../render/print.js';
import { takeLock, whileHolding } from '../state/locks.js';
import { migrate } from '../state/migrate.js';
import type { CommonOptions } from './command.js';

export async function migrateState(app: App, options: CommonOptions): Promise<void> {
  const waiting = { onWait: printNote };
  const { applied } = await migrate(app.stateUrl(), waiting);
  const { db } = await app.state(); // refuses a schema that is newer than this program
  await db.transaction(async (tx) => {
    await takeLock(tx, 'migrate', waiting);
    await whileHolding(tx, () => migrateQueue(app.queueStore()));
  });
  print(options, { applied }, [
    applied === 0 ? 'The state is up to date.' : `Applied ${plural(applied, 'migration')}.`,
  ]);
}
