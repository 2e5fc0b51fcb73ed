// Why a run holds an operation, as an operator reads it.
import type { Run } from '../../src/state/runs/read-runs.js';
import type { HoldOperation } from '../../src/state/schema.js';
import { describeReasonAndCommand } from '../../src/sync/limits/hold-reason.js';

/** Undefined: the run does not hold it. */
export function reasonHeld(run: Run, stream: string, operation: HoldOperation): string | undefined {
  const hold = run.holds[stream]?.[operation];
  return hold && describeReasonAndCommand({ ...hold, stream, operation, runId: run.id });
}
