import type { App } from '../app/app.js';
import { describeApproval, describeApprovedRun, describeKeys } from '../documents/holds.js';
import { printLine } from '../render/print.js';
import type { Approval } from '../state/runs/approvals.js';
import type { Waiting } from '../state/locks.js';
import { chooseHolds, type HoldChoice } from '../state/runs/choose-holds.js';
import { approveHolds, requireStarted } from '../sync/operator/approve-holds.js';
import { lines } from '../text/format.js';
import type { ReasonOption } from './command.js';
import { readRunNumber } from './find-run.js';
import { beginAndWork, readRunOptions, type RunOptions } from './work-run.js';

type ApproveOptions = RunOptions & HoldChoice & ReasonOption & { exactly?: boolean };

export async function approve(app: App, runText: string, options: ApproveOptions): Promise<number> {
  const runOptions = readRunOptions(options);
  const configuration = await app.configuration();
  const state = await app.confirmedState();
  const deps = {
    configuration,
    mirror: await app.mirror(),
    state,
    requireQueue: app.queue,
    actor: await app.actor(options.reason),
  };
  const { stream, operation, exactly = false } = options;
  const choice = { runId: readRunNumber(runText), stream, operation };
  await chooseHolds(state.db, choice.runId, choice);
  const timeZone = await app.timeZone();
  const approvals: Approval[] = [];
  async function start(waiting: Waiting) {
    const approved = await approveHolds({ ...deps, waiting }, { ...choice, exactly });
    if (runOptions.detach || approved.run.pausedAt) requireStarted(approved);
    approvals.push(...approved.approvals);
    if (options.json || !approved.started) return approved;
    for (const approval of approved.approvals) printLine(describeApproval(approval, timeZone));
    for (const hold of approved.holds)
      for (const line of lines(describeKeys(hold), describeApprovedRun(hold))) printLine(line);
    return approved;
  }
  return beginAndWork(app, start, runOptions, { resumeCommand: 'slotsync sync', extraJson: { approvals } });
}
