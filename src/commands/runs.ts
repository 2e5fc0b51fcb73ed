import type { App } from '../app.js';
import { UsageError } from '../errors.js';
import { listRunsSoFar, readSoFar } from '../readings/runs.js';
import { print, printJson } from '../report/print.js';
import { printRun, runsTable, runToJson } from '../report/run.js';
import { listApprovalsOfRun } from '../state/runs/approvals.js';
import { findRun } from '../state/runs/find-run.js';
import { LISTED_KINDS } from '../state/runs/read-runs.js';
import { RUN_KINDS, type RunKind } from '../state/schema.js';
import type { CommonOptions } from './command.js';
import { readRunNumber } from './find-run.js';
import { readWholeNumber } from './work-run.js';

interface RunsOptions extends CommonOptions {
  limit: string;
  kind?: string;
  all?: boolean;
}

export async function runs(app: App, id: string | undefined, options: RunsOptions): Promise<void> {
  const state = await app.state();
  if (id !== undefined) {
    const run = await findRun(state.db, readRunNumber(id));
    if (options.json) {
      const approvals = await listApprovalsOfRun(state.db, run.id);
      printJson({ run: runToJson(await readSoFar(state.db, run)), approvals });
    } else await printRun(state, run, await app.timeZone());
    return;
  }
  const limit = readWholeNumber(options.limit, '--limit takes');
  const listed = await listRunsSoFar(state.db, limit, readKinds(options));
  const { kind } = options;
  const none =
    kind === undefined ? 'No run yet. Start one with: slotsync sync' : `No run of kind ${kind} yet.`;
  print(options, { runs: listed.map(runToJson) }, [
    listed.length === 0 ? none : runsTable(listed, await app.timeZone()),
  ]);
}

function readKinds({ kind, all }: RunsOptions): readonly RunKind[] {
  if (kind === undefined) return all ? RUN_KINDS : LISTED_KINDS;
  const known = RUN_KINDS.find((each) => each === kind);
  if (known) return [known];
  throw new UsageError(`--kind takes one of ${RUN_KINDS.join(', ')}, not '${kind}'`);
}
