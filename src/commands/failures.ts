import type { Command } from 'commander';
import { UsageError } from '../errors.js';
import { countUnsettled } from '../state/records/count-records.js';
import { listFailures } from '../state/records/failures.js';
import { common, EXIT, withApp, type CommonOptions } from './command.js';
import { describeFailure, nextStep } from '../report/failure-report.js';
import { plural, printJson, printLine } from '../report/format.js';

export function addFailures(program: Command): void {
  common(program.command('failures'))
    .argument('[stream]', 'only of this stream')
    .description('the records that are not at the service as the mirror has them, why, and what happens next')
    .option('--limit <records>', 'most records to show', '50')
    .action((stream: string | undefined, options: CommonOptions & { limit: string }) =>
      withApp({ needs: ['state'] }, async (app) => {
        const limit = Number(options.limit);
        if (!Number.isInteger(limit) || limit < 1)
          throw new UsageError(`--limit takes a whole number, not '${options.limit}'`);
        const { db } = await app.state();
        const failures = await listFailures(db, { stream, limit });
        const total = await countUnsettled(db, stream);
        if (options.json) {
          printJson({
            total,
            failures: failures.map((failure) => ({ ...failure, next: nextStep(failure) })),
          });
          return EXIT.done;
        }
        for (const failure of failures) printLine(`${describeFailure(failure)}\n`);
        const shown = failures.length < total ? ` (the first ${failures.length} shown)` : '';
        printLine(
          total === 0
            ? 'Every record is at the service as it was last read.'
            : `${plural(total, 'record')} in all${shown}.`,
        );
        return EXIT.done;
      }),
    );
}
