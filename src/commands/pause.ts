import type { Command } from 'commander';
import { UsageError } from '../errors.js';
import { setPaused } from '../state/runs/pause-runs.js';
import { common, EXIT, withApp, type CommonOptions } from './command.js';
import { printJson, printLine } from '../report/format.js';
import { requireUnfinished } from './runs.js';

export function addPause(program: Command): void {
  common(program.command('pause'))
    .argument('[run]', 'number of the run (default: every unfinished one, changes between runs excepted)')
    .description('let a run rest: what is in work is finished, and nothing more of it is sent until resume')
    .action((id: string | undefined, options: CommonOptions) =>
      withApp({ needs: ['state'] }, async (app) => {
        const { db } = await app.state();
        const run = id === undefined ? undefined : await requireUnfinished(db, id);
        if (run?.kind === 'reconcile') {
          throw new UsageError(`run ${run.id} is a reconcile, which only reads and does not rest`, {
            remedy: `To end it: slotsync cancel ${run.id}`,
          });
        }
        const paused = await setPaused(db, true, run?.id);
        if (options.json) printJson({ paused });
        else if (paused.length === 0)
          printLine(run ? `Run ${run.id} is paused already.` : 'No run is under way.');
        for (const each of options.json ? [] : paused)
          printLine(`Run ${each} is paused: what is in work is finished. To go on: slotsync resume ${each}`);
        return EXIT.done;
      }),
    );
}
