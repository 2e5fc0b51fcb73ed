import type { App } from '../app/app.js';
import { describeApproval, describeKeys } from '../documents/holds.js';
import { printLine } from '../render/print.js';
import { chooseGates, type GateChoice } from '../state/gates/answers.js';
import type { Gate } from '../state/gates/gates.js';
import type { Waiting } from '../state/locks.js';
import { approve as approveGates, requireStarted } from '../sync/operator/approve.js';
import type { ReasonOption } from './command.js';
import { readRunNumber } from './find-run.js';
import { beginAndWork, readRunOptions, type RunOptions } from './work-run.js';

type ApproveOptions = RunOptions & GateChoice & ReasonOption & { exactly?: boolean };

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
  const { stream, operation, gate, exactly = false } = options;
  const choice = { runId: readRunNumber(runText), stream, operation, gate };
  await chooseGates(state.db, choice.runId, choice);
  const timeZone = await app.timeZone();
  const approvals: Gate[] = [];
  async function start(waiting: Waiting) {
    const approved = await approveGates({ ...deps, waiting }, { ...choice, exactly });
    if (runOptions.detach || approved.run.pausedAt) requireStarted(approved);
    for (const approval of approved.approvals) approvals.push(approval);
    if (options.json) return approved;
    for (const approval of approved.approvals) {
      printLine(describeApproval(approval, timeZone));
      printLine(describeKeys(approval));
    }
    return approved;
  }
  return beginAndWork(app, start, runOptions, { resumeCommand: 'slotsync sync', extraJson: { approvals } });
}
