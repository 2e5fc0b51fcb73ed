// The holds that an operator names to approve or reject them: of a run, of one stream, of one operation.
import { UsageError } from '../../errors/errors.js';
import type { Queries } from '../database.js';
import { HOLD_OPERATIONS } from '../schema.js';
import { readHolds, type RunHold } from './holds.js';
import { readRun, type Run } from './read-runs.js';

export interface HoldChoice {
  stream?: string | undefined;
  operation?: string | undefined;
}

/** The holds that nobody has answered and no later run has planned again. Throws UsageError when there is no such hold. */
export async function chooseHolds(
  db: Queries,
  runId: number,
  { stream, operation }: HoldChoice,
): Promise<{ run: Run; holds: RunHold[] }> {
  if (operation !== undefined && !HOLD_OPERATIONS.some((known) => known === operation)) {
    throw new UsageError(`--operation takes ${HOLD_OPERATIONS.join(', ')}, not '${operation}'`);
  }
  const run = await readRun(db, runId);
  if (!run) throw new UsageError(`there is no run ${runId}; slotsync status shows what is held`);
  const all = await readHolds(db, runId);
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
  const open = current.filter(({ approvedFor }) => approvedFor === null);
  const [approved] = current;
  if (open.length === 0 && approved) {
    throw new UsageError(
      `${approved.operation} of ${approved.stream}, held in run ${runId}, is approved already: run ${approved.approvedFor} does it; to stop that: slotsync cancel ${approved.approvedFor}`,
    );
  }
  const [outdated] = holds;
  if (open.length === 0 && outdated) {
    throw new UsageError(
      `run ${outdated.plannedAnewBy} has planned ${outdated.stream} again since run ${runId}; slotsync status shows what is held`,
    );
  }
  return { run, holds: open };
}
