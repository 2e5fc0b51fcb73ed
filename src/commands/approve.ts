// `approve` and `reject`: an operator's answers to the changes that a run holds.
import type { App } from '../app/app.js';
import { describeApproval, describeKeys, describeHeld } from '../documents/holds.js';
import { printLines, print } from '../render/print.js';
import { chooseGates, type GateChoice, rejectGates } from '../state/gates/answers.js';
import type { Gate } from '../state/gates/gates.js';
import type { Waiting } from '../state/locks.js';
import { approve as approveGates, requireStarted } from '../sync/operator/approve.js';
import type { ReasonOption, CommonOptions } from './command.js';
import { beginAndWork, type RunOptions } from './work-run.js';

type ApproveOptions = RunOptions & GateChoice & ReasonOption & { exactly?: boolean };

export async function approve(app: App, runId: number, options: ApproveOptions): Promise<number> {
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
  const choice = { runId, stream, operation, gate };
  await chooseGates(state.db, runId, choice);
  const timeZone = await app.timeZone();
  const approvals: Gate[] = [];
  async function start(waiting: Waiting) {
    const approved = await approveGates({ ...deps, waiting }, { ...choice, exactly });
    if (options.detach || approved.run.pausedAt) requireStarted(approved);
    for (const approval of approved.approvals) {
      approvals.push(approval);
      if (!options.json) printLines([describeApproval(approval, timeZone), describeKeys(approval)]);
    }
    return approved;
  }
  return beginAndWork(app, start, options, { resumeCommand: 'slotsync sync', extraJson: { approvals } });
}

type RejectOptions = CommonOptions & GateChoice & ReasonOption;

export async function reject(app: App, runId: number, options: RejectOptions): Promise<void> {
  const { db } = await app.state();
  const actor = await app.actor(options.reason);
  const gates = await rejectGates(db, runId, options, actor);
  const rejected = gates.map(({ stream, operation, reason, count }) => ({
    stream,
    operation,
    reason,
    count,
  }));
  print(options, { runId, rejected }, [
    ...gates.map((gate) => `Rejected: ${describeHeld(gate)}, held in run ${runId}.`),
    `${gates.length === 1 ? 'The gate stays closed and causes no alert until its' : 'The gates stay closed and cause no alert until their'} records change.`,
  ]);
}
