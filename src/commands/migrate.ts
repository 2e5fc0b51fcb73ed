import type { App } from '../app.js';
import { migrateQueue } from '../queue/bullmq.js';
import { plural } from '../format.js';
import { print } from '../report/print.js';
import { migrate } from '../state/migrate.js';
import type { CommonOptions } from './command.js';

export async function migrateState(app: App, options: CommonOptions): Promise<void> {
  const { applied } = await migrate(app.stateUrl());
  await app.state(); // refuses a schema that is newer than this program
  await migrateQueue(app.queueStore());
  print(options, { applied }, [
    applied === 0 ? 'The state is up to date.' : `Applied ${plural(applied, 'migration')}.`,
  ]);
}
