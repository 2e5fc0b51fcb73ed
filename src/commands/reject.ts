import type { App } from '../app.js';
import { describeHeld } from '../report/holds.js';
import { print } from '../report/print.js';
import { runToJson } from '../report/run.js';
import type { HoldChoice } from '../state/runs/choose-holds.js';
import { rejectHolds } from '../state/runs/decide-holds.js';
import { readRun } from '../state/runs/read-runs.js';
import type { CommonOptions } from './command.js';
import { readRunNumber } from './find-run.js';

export async function reject(app: App, runText: string, options: CommonOptions & HoldChoice): Promise<void> {
  const state = await app.state();
  const { run, holds } = await rejectHolds(state.db, readRunNumber(runText), options);
  const after = (await readRun(state.db, run.id)) ?? run;
  const rejected = holds.map(({ stream, operation, count }) => ({ stream, operation, count }));
  print(options, { run: runToJson(after), rejected }, [
    ...holds.map((hold) => `Rejected: ${describeHeld(hold)}, held in run ${run.id}.`),
    'The next run plans them again, and holds them again unless the mirror has changed.',
    `Run ${run.id} ${after.status}.`,
  ]);
}
