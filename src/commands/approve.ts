import type { App } from '../app.js';
import { selectStreams } from '../config-file.js';
import { UsageError } from '../errors.js';
import { requireSources } from '../mirror/require-sources.js';
import { describeApproval } from '../report/holds.js';
import { printLine } from '../report/print.js';
import { recordApprovals } from '../state/runs/approvals.js';
import type { Run } from '../state/runs/read-runs.js';
import { chooseHolds, type HoldOptions } from './choose-holds.js';
import { readRunOptions, startAndWork, type RunOptions } from './work-run.js';

export async function approve(app: App, runText: string, options: RunOptions & HoldOptions): Promise<number> {
  const runOptions = readRunOptions(options);
  const configuration = await app.configuration();
  const state = await app.confirmedState();
  const { run, holds } = await chooseHolds(state, runText, options);
  const final = holds.find(({ approvable }) => !approvable);
  if (final) throw new UsageError(`${final.stream}: ${final.reason}`);
  const streams = selectStreams(
    configuration,
    holds.map(({ stream }) => stream),
  );
  await requireSources(await app.mirror(), { streams });
  await app.queue(); // nothing is approved that cannot be queued

  const allowed = holds.map(({ count: allowed, runId, stream, operation }) => ({
    runId,
    stream,
    operation,
    allowed,
  }));
  const approvals = await recordApprovals(state.db, allowed, configuration.approvalHours);
  if (!options.json) for (const approval of approvals) printLine(describeApproval(approval));
  const work = { resumeCommand: 'slotsync sync', extraJson: { approvals } };
  return startAndWork(app, streams, sameAgain(run), runOptions, work);
}

/** The run that does what this one held. After single keys, the whole stream: limits are counted over all of it. */
function sameAgain({ kind, lane, range }: Run) {
  if (kind === 'incremental') return { kind: 'sync', lane: 'sync' } as const;
  return { kind, lane, range: range ?? undefined };
}
