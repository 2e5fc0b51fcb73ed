// Why a gate keeps back what a run would send, as an operator reads it.
import type { Run } from '../../src/state/runs/read-runs.js';
import { describeReasonAndCommand } from '../../src/sync/limits/hold-reason.js';

/** Undefined: the run does not hold it. */
export function reasonHeld(run: Run, stream: string, name: string): string | undefined {
  const hold = run.holds[stream]?.[name];
  return hold && describeReasonAndCommand({ ...hold, stream, runId: run.id });
}
