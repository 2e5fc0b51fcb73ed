// Runs: the list, and one run with what it did, what it could not do and why, and what happens next.
import { remedyFor } from '../error-catalogue.js';
import { countVerdicts } from '../state/bookings/read-reservations.js';
import type { State } from '../state/database.js';
import { countUnsettled } from '../state/records/count-records.js';
import { listFailures } from '../state/records/list-failures.js';
import { countDriftEvents } from '../state/drift/read-drift.js';
import { listRuns, onlyReads, sumOutcomes, type Run } from '../state/runs/read-runs.js';
import type { RunRange } from '../state/schema.js';
import { describeFailure, describeUnsettled } from './failures.js';
import { formatDuration, formatNumber, formatTime, plural, table } from './format.js';
import { describeSamples } from './holds.js';
import { lines, printLine } from './print.js';

/** Failures and keys named one by one. */
const MAX_NAMED = 5;
const OUTCOMES = ['synced', 'deferred', 'failed', 'dead'] as const;
const PLANNED = ['create', 'update', 'retire', 'moved', 'retry', 'unchanged'] as const;

/** The columns of a plan's table. `moved` is rare, and stands there only when some are. */
export function columnsOfPlan<Name extends string>(
  names: readonly Name[],
  counts: readonly { moved?: number }[],
): Name[] {
  return names.filter((name) => name !== 'moved' || counts.some(({ moved = 0 }) => moved > 0));
}

export function runToJson(run: Run) {
  return { ...run, seconds: secondsOf(run) };
}

export function runsTable(runs: readonly Run[]): string {
  return table(
    ['run', 'kind', 'started', 'took', 'status', ...OUTCOMES],
    runs.map((run) => [
      run.id,
      run.kind,
      formatTime(run.requestedAt),
      run.finishedAt ? formatDuration(secondsOf(run)) : '–',
      run.pausedAt && !run.finishedAt ? 'paused' : run.status,
      ...OUTCOMES.map((outcome) =>
        Object.values(run.counts).reduce((total, counts) => total + counts[outcome], 0),
      ),
    ]),
  );
}

/** The run's table, what it could not do and why, and what happens next. */
export async function printRun(state: State, run: Run): Promise<void> {
  const counts = run.finishedAt ? run.counts : await sumOutcomes(state.db, run.id);
  const columns = run.range?.repair ? (['repair'] as const) : columnsOfPlan(PLANNED, Object.values(run.plan));
  const rows = run.streams.flatMap((stream) => {
    const planned = run.plan[stream];
    if (!planned) return [];
    const outcomes = OUTCOMES.map((outcome) => counts[stream]?.[outcome] ?? 0);
    return [[stream, ...columns.map((operation) => planned[operation] ?? 0), ...outcomes]];
  });
  if (rows.length > 0) printLine(`${table(['stream', ...columns, ...OUTCOMES], rows)}\n`);
  const equal = Object.values(counts).reduce((sum, { unchanged }) => sum + unchanged, 0);
  if (equal > 0) printLine(`${plural(equal, 'record')} needed no write.\n`);
  if (run.range) printLine(`Asked for: ${describeRange(run.range)}.\n`);
  for (const [stream, holds] of Object.entries(run.holds)) {
    for (const hold of Object.values(holds))
      printLine([`Held: ${stream}: ${hold.reason}`, ...describeSamples(hold), ''].join('\n'));
  }
  if (run.errorMessage !== null) {
    const remedy = remedyFor(onlyReads(run) ? 'interrupted' : run.errorCode);
    const what = run.errorCode === 'hold_rejected' ? 'Not sent' : 'Failed';
    printLine(`${what}: ${run.errorMessage}\n  → ${remedy}\n`);
  }
  if (run.kind === 'reconcile') {
    const { verdicts, events } = await countVerdicts(state.db, run.id);
    const compared = Object.values(verdicts).reduce((sum, count) => sum + count, 0);
    printLine(`Bookings compared last by this run: ${compared}. Verdicts it changed: ${events}.\n`);
  }
  if (run.kind === 'verify') {
    const { found, mended } = await countDriftEvents(state.db, run.id);
    printLine(`Drift: ${found} found, ${mended} resolved. What drifts now: slotsync status\n`);
  }
  await printFailures(state, run);
  printLine(`Run ${run.id} ${run.status}${run.finishedAt ? ` in ${formatDuration(secondsOf(run))}` : ''}.`);
}

/** What a run was requested for beside its streams; keys by their number only. */
function describeRange(range: RunRange): string {
  const { keys, from, to, where, limit, force, repair, verified, sample, extras, adopt } = range;
  return lines(
    keys && plural(keys.length, 'key'),
    from !== undefined && `from ${from}`,
    to !== undefined && `before ${to}`,
    where !== undefined && `where ${where}`,
    limit !== undefined && `at most ${plural(limit, 'record')}`,
    force && 'unchanged and dead records too',
    repair && (verified === undefined ? 'what drifts' : `what run ${verified} saw drift`),
    sample !== undefined && `a sample of ${plural(sample, 'record')} of each stream`,
    extras && 'objects without a record too',
    adopt && 'records of objects that have none',
  ).join(', ');
}

/** `2 of 40 keys have neither row nor record: X1, X2`. */
export function describeUnknownKeys(unknown: readonly string[], requested: number): string {
  const named = unknown.slice(0, MAX_NAMED).join(', ');
  const more = unknown.length > MAX_NAMED ? ', …' : '';
  const verb = unknown.length === 1 ? 'has' : 'have';
  return `${formatNumber(unknown.length)} of ${plural(requested, 'key')} ${verb} neither row nor record: ${named}${more}`;
}

async function printFailures(state: State, run: Run): Promise<void> {
  const failures = await listFailures(state.db, { runId: run.id, limit: MAX_NAMED });
  for (const failure of failures) printLine(`${describeFailure(failure)}\n`);
  const [newest] = await listRuns(state.db, 1);
  if (newest?.id !== run.id) return;
  const unsettled = await countUnsettled(state.db);
  if (unsettled > failures.length) printLine(`${describeUnsettled(unsettled)}: slotsync failures`);
}

function secondsOf({ requestedAt, finishedAt }: Run): number {
  return ((finishedAt ?? new Date()).getTime() - requestedAt.getTime()) / 1000;
}
