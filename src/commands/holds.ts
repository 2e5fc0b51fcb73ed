// What a person may decide about, as `approve` and `reject` name it and `status` shows it.
import { UsageError } from '../errors.js';
import type { State } from '../state/database.js';
import type { Approval } from '../state/runs/approvals.js';
import { readHolds, type RunHold } from '../state/runs/holds.js';
import { readRun, type Run } from '../state/runs/read-runs.js';
import { LIMITED_OPERATIONS } from '../state/schema.js';
import { formatNumber, formatTime, plural } from '../report/format.js';
import { wholeNumberOf } from './runs.js';

export interface HoldOptions {
  stream?: string;
  operation?: string;
}

/** The holds of a run that a command names and that still stand. Throws UsageError when there is none such. */
export async function chooseHolds(
  state: State,
  runText: string,
  { stream, operation }: HoldOptions,
): Promise<{ run: Run; holds: RunHold[] }> {
  const runId = wholeNumberOf(runText, 'a run');
  if (operation !== undefined && !LIMITED_OPERATIONS.some((known) => known === operation)) {
    throw new UsageError(`--operation takes ${LIMITED_OPERATIONS.join(', ')}, not '${operation}'`);
  }
  const run = await readRun(state.db, runId);
  if (!run) throw new UsageError(`there is no run ${runId}; slotsync status shows what waits`);
  const all = await readHolds(state.db, runId);
  if (all.length === 0) throw new UsageError(`run ${runId} holds nothing; slotsync status shows what waits`);
  const holds = all.filter(
    (hold) =>
      (stream === undefined || hold.stream === stream) &&
      (operation === undefined || hold.operation === operation),
  );
  if (holds.length === 0) {
    const asked = [operation, stream].filter((name) => name !== undefined).join(' of ');
    const there = all.map((hold) => `${hold.operation} of ${hold.stream}`).join(', ');
    throw new UsageError(`run ${runId} does not hold ${asked}; it holds: ${there}`);
  }
  const standing = holds.filter(({ plannedAnewBy }) => plannedAnewBy === null);
  const [gone] = holds;
  if (standing.length === 0 && gone) {
    throw new UsageError(
      `run ${gone.plannedAnewBy} has planned ${gone.stream} anew since run ${runId}; slotsync status shows what waits`,
    );
  }
  return { run, holds: standing };
}

const NOUNS = { create: 'creation', update: 'update', retire: 'retirement' } as const;

/** `12 retirements of rooms`. */
export function describeHeld({ count, operation, stream }: Pick<RunHold, 'count' | 'operation' | 'stream'>) {
  return `${plural(count, NOUNS[operation])} of ${stream}`;
}

/** What a person has approved and no run has used yet. */
export function describeApproval({ allowed, operation, stream, expiresAt, runId }: Approval): string {
  const held = describeHeld({ count: allowed, operation, stream });
  return `Approved: up to ${held} until ${formatTime(expiresAt)} UTC (held in run ${runId}).`;
}

/** The holds as lines: each stream and operation once, the latest word on it first. */
export function describeHolds(holds: readonly RunHold[]): string[] {
  const latest = new Map<string, RunHold[]>();
  for (const hold of holds) {
    const name = `${hold.kind === 'incremental'} ${hold.operation} ${hold.stream}`;
    latest.set(name, [...(latest.get(name) ?? []), hold]);
  }
  return [...latest.values()].flatMap(([hold, ...others]) => {
    if (!hold) return [];
    const more =
      others.length === 0
        ? ''
        : `\n  and ${formatNumber(others.length)} more of ${others.length === 1 ? 'an earlier run' : 'earlier runs'}`;
    return [`Held in run ${hold.runId}: ${hold.stream}: ${hold.reason}${more}`];
  });
}
