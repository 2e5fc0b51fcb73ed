import type { Command } from 'commander';
import { UsageError } from '../errors.js';
import { retryRecords } from '../state/records/retry-records.js';
import { common, EXIT, withApp, type CommonOptions } from './command.js';
import { plural, printJson, printLine } from '../report/format.js';

export function addRetry(program: Command): void {
  common(program.command('retry'))
    .argument('[stream]', 'the stream of the records')
    .argument('[keys...]', 'local keys (default: every dead or failed record of the stream)')
    .description(
      'let records that were given up go again with the next run, though their rows did not change',
    )
    .option('--all', 'of every stream')
    .action((stream: string | undefined, keys: string[], options: CommonOptions & { all?: boolean }) =>
      withApp({ needs: ['state'] }, async (app) => {
        if (stream === undefined && !options.all) {
          throw new UsageError('name a stream and its keys, or --all', {
            remedy: 'slotsync failures shows what there is.',
          });
        }
        if (stream !== undefined && options.all) throw new UsageError('either a stream or --all, not both');
        const { db } = await app.state();
        const retried = await retryRecords(db, { stream, keys });
        const found = new Set(retried.map(({ localKey }) => localKey));
        const missing = keys.filter((key) => !found.has(key));
        if (options.json) printJson({ retried, missing });
        else {
          for (const key of missing)
            printLine(`${stream} '${key}' is neither dead nor failed; left as it is.`);
          printLine(`${plural(retried.length, 'record')} will go with the next run: slotsync sync`);
        }
        return missing.length > 0 ? EXIT.failed : EXIT.done;
      }),
    );
}
