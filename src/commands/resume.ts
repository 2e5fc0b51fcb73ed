import type { Command } from 'commander';
import { setPaused } from '../state/runs/pause-runs.js';
import { common, EXIT, withApp, type CommonOptions } from './command.js';
import { printJson, printLine } from '../report/format.js';
import { requireUnfinished } from './runs.js';

export function addResume(program: Command): void {
  common(program.command('resume'))
    .argument('[run]', 'number of the run (default: every paused one, changes between runs excepted)')
    .description('let a paused run go on')
    .action((id: string | undefined, options: CommonOptions) =>
      withApp({ needs: ['state', 'api'] }, async (app) => {
        const { db } = await app.state();
        const run = id === undefined ? undefined : await requireUnfinished(db, id);
        const resumed = await setPaused(db, false, run?.id);
        if (resumed.length > 0) await (await app.producer()).requeue();
        if (options.json) printJson({ resumed });
        else if (resumed.length === 0) printLine(run ? `Run ${run.id} is not paused.` : 'No run is paused.');
        for (const each of options.json ? [] : resumed)
          printLine(
            `Run ${each} goes on with the next worker, sync or backfill; watch it with: slotsync status`,
          );
        return EXIT.done;
      }),
    );
}
