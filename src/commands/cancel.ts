import type { Command } from 'commander';
import { cancelRun } from '../state/runs/end-run.js';
import { common, EXIT, withApp, type CommonOptions } from './command.js';
import { printJson, printLine } from '../report/format.js';
import { requireUnfinished } from './runs.js';

export function addCancel(program: Command): void {
  common(program.command('cancel'))
    .argument('<run>', 'number of the run')
    .description('end an unfinished run that nobody wants; what was accepted stays at the service')
    .action((id: string, options: CommonOptions) =>
      withApp({ needs: ['state'] }, async (app) => {
        const { db } = await app.state();
        const run = await requireUnfinished(db, id);
        await cancelRun(db, run.id);
        if (options.json) printJson({ cancelled: run.id });
        else {
          printLine(
            `Run ${run.id} is cancelled: what is in work is finished, and what was accepted stays at the service.`,
          );
          printLine('Records it did not come to go with the next run: slotsync sync');
        }
        return EXIT.done;
      }),
    );
}
