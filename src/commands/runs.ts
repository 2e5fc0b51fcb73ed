import type { Command } from 'commander';
import { UsageError } from '../errors.js';
import { listRuns, readRun, type Run } from '../state/runs.js';
import { common, EXIT, withApp, type CommonOptions } from './command.js';
import { formatDuration, formatTime, printJson, printLine, table } from './print.js';
import { printRun, runToJson } from './run-report.js';

export function addRuns(program: Command): void {
  common(program.command('runs'))
    .argument('[run]', 'number of one run, for its details')
    .description('the latest runs and what became of them')
    .option('--limit <runs>', 'most runs to show', '20')
    .action((id: string | undefined, options: CommonOptions & { limit: string }) =>
      withApp({ needs: ['state'] }, async (app) => {
        const state = await app.state();
        if (id !== undefined) {
          const run = await readRun(state.db, wholeNumber(id, 'a run'));
          if (!run) throw new UsageError(`there is no run ${id}`, { remedy: 'slotsync runs lists them.' });
          if (options.json) printJson({ run: runToJson(run) });
          else await printRun(state, run);
          return EXIT.done;
        }
        const runs = await listRuns(state.db, wholeNumber(options.limit, '--limit'));
        if (options.json) printJson({ runs: runs.map(runToJson) });
        else if (runs.length === 0) printLine('No run yet. Start one with: slotsync sync');
        else printLine(runsTable(runs));
        return EXIT.done;
      }),
    );
}

export function runsTable(runs: readonly Run[]): string {
  const headings = ['run', 'kind', 'started', 'took', 'status', 'synced', 'waiting', 'failed', 'dead'];
  return table(
    headings,
    runs.map((run) => {
      const sum = (outcome: 'synced' | 'deferred' | 'failed' | 'dead') =>
        Object.values(run.counts).reduce((total, counts) => total + counts[outcome], 0);
      const seconds = run.finishedAt
        ? (run.finishedAt.getTime() - run.requestedAt.getTime()) / 1000
        : undefined;
      const took = seconds === undefined ? '–' : formatDuration(seconds);
      return [
        run.id,
        run.kind,
        formatTime(run.requestedAt),
        took,
        run.status,
        sum('synced'),
        sum('deferred'),
        sum('failed'),
        sum('dead'),
      ];
    }),
  );
}

function wholeNumber(text: string, what: string): number {
  const value = Number(text);
  if (Number.isSafeInteger(value) && value > 0) return value;
  throw new UsageError(`${what} is a whole number, not '${text}'`);
}
