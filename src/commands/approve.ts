import type { App } from '../app.js';
import { describeApproval } from '../report/holds.js';
import { printLine } from '../report/print.js';
import type { HoldChoice } from '../state/runs/choose-holds.js';
import { approveHolds } from '../sync/approve-holds.js';
import { readRunNumber } from './find-run.js';
import { readRunOptions, startAndWork, type RunOptions } from './work-run.js';

export async function approve(app: App, runText: string, options: RunOptions & HoldChoice): Promise<number> {
  const runOptions = readRunOptions(options);
  const configuration = await app.configuration();
  const state = await app.confirmedState();
  const deps = { configuration, mirror: await app.mirror(), state, requireQueue: app.queue };
  const { stream, operation } = options;
  const choice = { runId: readRunNumber(runText), stream, operation };
  const { approvals, streams, request } = await approveHolds(deps, choice);
  const timeZone = await app.timeZone();
  if (!options.json) for (const approval of approvals) printLine(describeApproval(approval, timeZone));
  const work = { resumeCommand: 'slotsync sync', extraJson: { approvals } };
  return startAndWork(app, streams, request, runOptions, work);
}
