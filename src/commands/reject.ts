import type { App } from '../app/app.js';
import { describeHeld } from '../documents/holds.js';
import { print } from '../render/print.js';
import { rejectGates, type GateChoice } from '../state/gates/answers.js';
import type { CommonOptions, ReasonOption } from './command.js';
import { readRunNumber } from './find-run.js';

type RejectOptions = CommonOptions & GateChoice & ReasonOption;

export async function reject(app: App, runText: string, options: RejectOptions): Promise<void> {
  const { db } = await app.state();
  const actor = await app.actor(options.reason);
  const runId = readRunNumber(runText);
  const gates = await rejectGates(db, runId, options, actor);
  const rejected = gates.map(({ stream, operation, reason, count }) => ({
    stream,
    operation,
    reason,
    count,
  }));
  print(options, { runId, rejected }, [
    ...gates.map((gate) => `Rejected: ${describeHeld(gate)}, held in run ${runId}.`),
    `${gates.length === 1 ? 'The gate stays closed, and is quiet until its' : 'The gates stay closed, and are quiet until their'} records change.`,
  ]);
}
