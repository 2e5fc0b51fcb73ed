// The holds that `approve` and `reject` name: of a run, of one stream, of one operation.
import { UsageError } from '../errors.js';
import type { State } from '../state/database.js';
import { readHolds, type RunHold } from '../state/runs/holds.js';
import { readRun, type Run } from '../state/runs/read-runs.js';
import { LIMITED_OPERATIONS } from '../state/schema.js';
import { readWholeNumber } from './work-run.js';

export interface HoldOptions {
  stream?: string;
  operation?: string;
}

/** The holds that no later run has planned again. Throws UsageError when there are none. */
export async function chooseHolds(
  state: State,
  runText: string,
  { stream, operation }: HoldOptions,
): Promise<{ run: Run; holds: RunHold[] }> {
  const runId = readWholeNumber(runText, 'a run is');
  if (operation !== undefined && !LIMITED_OPERATIONS.some((known) => known === operation)) {
    throw new UsageError(`--operation takes ${LIMITED_OPERATIONS.join(', ')}, not '${operation}'`);
  }
  const run = await readRun(state.db, runId);
  if (!run) throw new UsageError(`there is no run ${runId}; slotsync status shows what is held`);
  const all = await readHolds(state.db, runId);
  if (all.length === 0)
    throw new UsageError(`run ${runId} holds nothing; slotsync status shows what is held`);
  const holds = all.filter(
    (hold) => hold.stream === (stream ?? hold.stream) && hold.operation === (operation ?? hold.operation),
  );
  if (holds.length === 0) {
    const requested = [operation, stream].filter((name) => name !== undefined).join(' of ');
    const held = all.map((hold) => `${hold.operation} of ${hold.stream}`).join(', ');
    throw new UsageError(`run ${runId} does not hold ${requested}; it holds: ${held}`);
  }
  const current = holds.filter(({ plannedAnewBy }) => plannedAnewBy === null);
  const [outdated] = holds;
  if (current.length === 0 && outdated) {
    throw new UsageError(
      `run ${outdated.plannedAnewBy} has planned ${outdated.stream} again since run ${runId}; slotsync status shows what is held`,
    );
  }
  return { run, holds: current };
}
