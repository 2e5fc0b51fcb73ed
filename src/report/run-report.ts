// How a run is watched and told: progress while it goes, then what happened and what to do about it.
import { setTimeout as sleep } from 'node:timers/promises';
import { SlotsyncError } from '../errors.js';
import { countVerdicts } from '../state/bookings/read-reservations.js';
import type { State } from '../state/database.js';
import { countUnsettled } from '../state/records/count-records.js';
import { listFailures } from '../state/records/failures.js';
import { listRuns, readProgress, readRun, sumOutcomes, type Run } from '../state/runs/read-runs.js';
import type { RunRange } from '../state/schema.js';
import { EXIT, exitCodeOfFailure } from '../commands/command.js';
import { describeFailure, nextStepOfRun } from './failure-report.js';
import { formatDuration, plural, printLine, table } from './format.js';
import { createProgress } from './progress.js';

const LOOK_EVERY_MS = 200;
const NAMED_FAILURES = 5;

/**
 * Waits until the run has ended, or `stopped` says so. Shows progress on standard error, with the share of the quota
 * that `readUse` tells, 0 to 1.
 */
export async function waitForRun(
  state: State,
  id: number,
  stopped: () => boolean,
  readUse: () => Promise<number | undefined> = async () => undefined,
): Promise<Run> {
  const progress = createProgress(`run ${id}`);
  try {
    while (true) {
      const run = await readRun(state.db, id);
      if (!run) throw new SlotsyncError('run_lost', `run ${id} is gone from the state`);
      const { done, total } = await readProgress(state.db, id);
      const stands = run.pausedAt ? `paused; to go on: slotsync resume ${id}` : undefined;
      progress.update(done, total, { quotaUse: await readUse(), stands });
      if (run.finishedAt || stopped()) return run;
      await sleep(LOOK_EVERY_MS);
    }
  } finally {
    progress.stop();
  }
}

export function exitCodeOfRun({ status, errorCode }: Run): number {
  switch (status) {
    case 'succeeded':
      return EXIT.done;
    case 'held':
      return EXIT.held;
    case 'failed':
      return exitCodeOfFailure(errorCode);
    default:
      return EXIT.failed;
  }
}

export function runToJson(run: Run) {
  return { ...run, seconds: secondsOf(run) };
}

/** The run's table, what it could not do and why, and what happens next. */
export async function printRun(state: State, run: Run): Promise<void> {
  const counts = run.finishedAt ? run.counts : await sumOutcomes(state.db, run.id);
  const rows = run.streams.flatMap((stream) => {
    const plan = run.plan[stream];
    if (!plan) return [];
    const got = counts[stream];
    const outcomes = [got?.synced ?? 0, got?.deferred ?? 0, got?.failed ?? 0, got?.dead ?? 0];
    return [[stream, plan.create, plan.update, plan.retire, plan.retry, plan.unchanged, ...outcomes]];
  });
  if (rows.length > 0) {
    const headings = [
      'stream',
      'create',
      'update',
      'retire',
      'retry',
      'unchanged',
      'synced',
      'waiting',
      'failed',
      'dead',
    ];
    printLine(table(headings, rows));
    printLine();
  }
  if (run.range) printLine(`Asked for: ${describeRange(run.range)}.\n`);
  for (const [stream, holds] of Object.entries(run.holds)) {
    for (const { reason } of Object.values(holds)) printLine(`Held: ${stream}: ${reason}\n`);
  }
  if (run.errorMessage !== null) {
    const next =
      run.kind === 'reconcile'
        ? 'the next one reads everything again: slotsync reconcile'
        : nextStepOfRun(run.errorCode);
    printLine(`Failed: ${run.errorMessage}\n  → ${next}\n`);
  }
  if (run.kind === 'reconcile') {
    const { verdicts, events } = await countVerdicts(state.db, run.id);
    const judged = Object.values(verdicts).reduce((sum, count) => sum + count, 0);
    printLine(`Bookings it judged last of all: ${judged}. Verdicts it changed: ${events}.\n`);
  }
  await printFailures(state, run);
  printLine(`Run ${run.id} ${run.status}${run.finishedAt ? ` in ${formatDuration(secondsOf(run))}` : ''}.`);
}

/** What a run was asked for beside its streams; keys by their number only. */
export function describeRange({ keys, from, to, where, limit, force }: RunRange): string {
  return [
    ...(keys ? [plural(keys.length, 'key')] : []),
    ...(from === undefined ? [] : [`from ${from}`]),
    ...(to === undefined ? [] : [`before ${to}`]),
    ...(where === undefined ? [] : [`where ${where}`]),
    ...(limit === undefined ? [] : [`at most ${plural(limit, 'record')}`]),
    ...(force ? ['what is unchanged too'] : []),
  ].join(', ');
}

async function printFailures(state: State, run: Run): Promise<void> {
  const failures = await listFailures(state.db, { runId: run.id, limit: NAMED_FAILURES });
  for (const failure of failures) printLine(`${describeFailure(failure)}\n`);
  const [newest] = await listRuns(state.db, 1);
  if (newest?.id !== run.id) return;
  const unsettled = await countUnsettled(state.db);
  if (unsettled > failures.length) {
    printLine(
      `${plural(unsettled, 'record')} in all not at the service as the mirror has them: slotsync failures`,
    );
  }
}

function secondsOf({ requestedAt, finishedAt }: Run): number {
  return ((finishedAt ?? new Date()).getTime() - requestedAt.getTime()) / 1000;
}
