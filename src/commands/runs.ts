import type { Command } from 'commander';
import { UsageError } from '../errors.js';
import type { Queries } from '../state/database.js';
import { LISTED_KINDS, listRuns, readRun, type Run } from '../state/runs/read-runs.js';
import { RUN_KINDS, type RunKind } from '../state/schema.js';
import { common, EXIT, withApp, type CommonOptions } from './command.js';
import { formatDuration, formatTime, printJson, printLine, table } from '../report/format.js';
import { printRun, runToJson } from '../report/run-report.js';

interface RunsOptions extends CommonOptions {
  limit: string;
  kind?: string;
  all?: boolean;
}

export function addRuns(program: Command): void {
  common(program.command('runs'))
    .argument('[run]', 'number of one run, for its details')
    .description('the latest runs and what became of them')
    .option('--limit <runs>', 'most runs to show', '20')
    .option('--kind <kind>', `only runs of this kind: ${RUN_KINDS.join(', ')}`)
    .option('--all', 'incremental runs too')
    .action((id: string | undefined, options: RunsOptions) =>
      withApp({ needs: ['state'] }, async (app) => {
        const state = await app.state();
        if (id !== undefined) {
          const run = await requireRun(state.db, id);
          if (options.json) printJson({ run: runToJson(run) });
          else await printRun(state, run);
          return EXIT.done;
        }
        const runs = await listRuns(state.db, wholeNumberOf(options.limit, '--limit'), readKinds(options));
        if (options.json) printJson({ runs: runs.map(runToJson) });
        else if (runs.length === 0) printLine(describeNone(options));
        else printLine(runsTable(runs));
        return EXIT.done;
      }),
    );
}

async function requireRun(db: Queries, id: string): Promise<Run> {
  const run = await readRun(db, wholeNumberOf(id, 'a run'));
  if (run) return run;
  throw new UsageError(`there is no run ${id}`, { remedy: 'slotsync runs --all lists them.' });
}

/** The run of this number. Throws UsageError unless it is there and under way. */
export async function requireUnfinished(db: Queries, id: string): Promise<Run> {
  const run = await requireRun(db, id);
  if (run.finishedAt === null) return run;
  throw new UsageError(`run ${run.id} has ended (${run.status}); nothing was done`);
}

function readKinds({ kind, all }: RunsOptions): readonly RunKind[] {
  if (kind === undefined) return all ? RUN_KINDS : LISTED_KINDS;
  const known = RUN_KINDS.find((each) => each === kind);
  if (known) return [known];
  throw new UsageError(`--kind takes one of ${RUN_KINDS.join(', ')}, not '${kind}'`);
}

function describeNone({ kind }: RunsOptions): string {
  return kind === undefined ? 'No run yet. Start one with: slotsync sync' : `No ${kind} run yet.`;
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
        run.pausedAt && !run.finishedAt ? 'paused' : run.status,
        sum('synced'),
        sum('deferred'),
        sum('failed'),
        sum('dead'),
      ];
    }),
  );
}

/** Throws UsageError for anything but a whole number from 1 on. */
export function wholeNumberOf(text: string, what: string): number {
  const value = Number(text);
  if (Number.isSafeInteger(value) && value > 0) return value;
  throw new UsageError(`${what} is a whole number, not '${text}'`);
}
