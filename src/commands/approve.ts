import type { Command } from 'commander';
import { selectStreams, type App } from '../app.js';
import { UsageError } from '../errors.js';
import { recordApprovals } from '../state/runs/approvals.js';
import type { RunHold } from '../state/runs/holds.js';
import type { Run } from '../state/runs/read-runs.js';
import { startRun } from '../state/runs/start-run.js';
import { common, withApp, type CommonOptions } from './command.js';
import { chooseHolds, describeApproval, type HoldOptions } from './holds.js';
import { printLine } from '../report/format.js';
import { queueRun, readConcurrency, requireSources, workRun } from './work-run.js';

interface ApproveOptions extends CommonOptions, HoldOptions {
  detach?: boolean;
  concurrency?: string;
}

export function addApprove(program: Command): void {
  common(program.command('approve'))
    .argument('<run>', 'number of the run that holds something')
    .description('let what a run holds for approval go, up to the number it names, and sync its streams')
    .option('--stream <name>', 'only of this stream')
    .option('--operation <operation>', 'only create, update or retire')
    .option('--detach', 'only queue the run that does it; workers do it')
    .option('--concurrency <batches>', 'batches in work at once', '12')
    .action((run: string, options: ApproveOptions) =>
      withApp({ needs: ['mirror', 'state', 'api'], configPath: options.config }, (app) =>
        approve(app, run, options),
      ),
    );
}

async function approve(app: App, runText: string, options: ApproveOptions): Promise<number> {
  const configuration = await app.configuration();
  const state = await app.confirmedState();
  const { run, holds } = await chooseHolds(state, runText, options);
  for (const hold of holds) requireApprovable(hold);
  const streams = selectStreams(
    configuration,
    holds.map(({ stream }) => stream),
  );
  await requireSources(app, streams);
  await app.producer(); // nothing is approved that cannot be queued

  const words = holds.map(({ runId, stream, operation, count }) => ({
    runId,
    stream,
    operation,
    allowed: count,
  }));
  const approvals = await recordApprovals(state.db, words, configuration.approvalHours);
  if (!options.json) for (const approval of approvals) printLine(describeApproval(approval));
  const names = streams.map(({ name }) => name);
  const request = { ...againOf(run), startedBy: 'command', streams: names } as const;
  const extraJson = { approvals };
  if (options.detach) return queueRun(app, request, { json: options.json, extraJson });
  return workRun(app, {
    begin: async () => {
      const { run: begun, started } = await startRun(state.db, request);
      return { run: begun, started, isOurs: started };
    },
    concurrency: readConcurrency(options.concurrency),
    json: options.json,
    resumeCommand: 'slotsync sync',
    extraJson,
  });
}

/** Throws UsageError when there is nothing an approval could do. */
function requireApprovable({ stream, reason, approvable }: RunHold): void {
  if (!approvable) throw new UsageError(`${stream}: ${reason}`);
}

/** The run that does what another held: the same again. Single keys do not tell how many there are in all. */
function againOf({ kind, lane, range }: Run) {
  if (kind === 'incremental') return { kind: 'sync', lane: 'sync' } as const;
  return { kind, lane, range: range ?? undefined };
}
