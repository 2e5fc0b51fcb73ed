import type { App } from '../app/app.js';
import { describeHeld } from '../documents/holds.js';
import { print } from '../render/print.js';
import { runToJson } from '../documents/runs.js';
import type { HoldChoice } from '../state/runs/choose-holds.js';
import { rejectHolds } from '../state/runs/decide-holds.js';
import { readRun } from '../state/runs/read-runs.js';
import type { CommonOptions, ReasonOption } from './command.js';
import { readRunNumber } from './find-run.js';

type RejectOptions = CommonOptions & HoldChoice & ReasonOption;

export async function reject(app: App, runText: string, options: RejectOptions): Promise<void> {
  const state = await app.state();
  const actor = await app.actor(options.reason);
  const { run, holds } = await rejectHolds(state.db, readRunNumber(runText), options, actor);
  const after = (await readRun(state.db, run.id)) ?? run;
  const rejected = holds.map(({ stream, operation, count }) => ({ stream, operation, count }));
  print(options, { run: runToJson(after), rejected }, [
    ...holds.map((hold) => `Rejected: ${describeHeld(hold)}, held in run ${run.id}.`),
    'The next run plans them again, and holds them again unless the mirror has changed.',
    `Run ${run.id} ${after.status}.`,
  ]);
}
