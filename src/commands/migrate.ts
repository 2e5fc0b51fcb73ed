import type { Command } from 'commander';
import { migrateQueue } from '../queue/bullmq.js';
import { migrate } from '../state/migrate.js';
import { common, EXIT, withApp, type CommonOptions } from './command.js';
import { plural, printJson, printLine } from '../report/format.js';

export function addMigrate(program: Command): void {
  common(program.command('migrate'))
    .description('create or update the state tables (schema slotsync); safe to run at any time')
    .action((options: CommonOptions) =>
      withApp({ needs: ['state'] }, async (app) => {
        const { applied } = await migrate(app.stateUrl());
        await app.state(); // refuses a schema that is newer than this program
        await migrateQueue(app.queueStore());
        if (options.json) printJson({ applied });
        else
          printLine(applied === 0 ? 'The state is up to date.' : `Applied ${plural(applied, 'migration')}.`);
        return EXIT.done;
      }),
    );
}
