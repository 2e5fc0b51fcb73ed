import type { Command } from 'commander';
import { readRun } from '../state/runs/read-runs.js';
import { rejectHolds } from '../state/runs/holds.js';
import { common, EXIT, withApp, type CommonOptions } from './command.js';
import { chooseHolds, describeHeld, type HoldOptions } from './holds.js';
import { printJson, printLine } from '../report/format.js';
import { runToJson } from '../report/run-report.js';

export function addReject(program: Command): void {
  common(program.command('reject'))
    .argument('<run>', 'number of the run that holds something')
    .description('give up what a run holds for approval; nothing of it is sent')
    .option('--stream <name>', 'only of this stream')
    .option('--operation <operation>', 'only create, update or retire')
    .action((runText: string, options: CommonOptions & HoldOptions) =>
      withApp({ needs: ['state'] }, async (app) => {
        const state = await app.state();
        const { run, holds } = await chooseHolds(state, runText, options);
        await rejectHolds(state.db, run.id, holds);
        const after = (await readRun(state.db, run.id)) ?? run;
        if (options.json) {
          const rejected = holds.map(({ stream, operation, count }) => ({ stream, operation, count }));
          printJson({ run: runToJson(after), rejected });
          return EXIT.done;
        }
        for (const hold of holds) printLine(`Rejected: ${describeHeld(hold)}, held in run ${run.id}.`);
        printLine(
          'The next run plans them again, and holds them again while the mirror says the same: correct it there.',
        );
        printLine(`Run ${run.id} ${after.status}.`);
        return EXIT.done;
      }),
    );
}
