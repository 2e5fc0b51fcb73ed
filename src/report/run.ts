// Runs: the list, and one run with what it did, what it could not do and why, and what happens next.
import { remedyFor } from '../error-catalogue.js';
import { listCauses } from '../readings/causes.js';
import { readSoFar } from '../readings/runs.js';
import { countVerdicts } from '../state/bookings/read-reservations.js';
import type { State } from '../state/database.js';
import { countUnsettled } from '../state/records/count-records.js';
import { countDriftEvents } from '../state/drift/read-drift.js';
import type { EndedBadly } from '../state/runs/ended-badly.js';
import { listApprovalsOfRun } from '../state/runs/approvals.js';
import { listRuns, onlyReads, type Run } from '../state/runs/read-runs.js';
import type { RunRange } from '../state/schema.js';
import { describeCauseWhole, describeUnsettled } from './failures.js';
import { formatDuration, formatNumber, formatMinute, plural } from '../format.js';
import { table } from './table.js';
import { describeSamples, describeUse } from './holds.js';
import { lines, printLine } from './print.js';

/** Failures and keys named one by one. */
const MAX_NAMED = 5;
const OUTCOMES = ['synced', 'deferred', 'failed', 'dead'] as const;
const PLANNED = ['create', 'update', 'retire', 'moved', 'retry', 'unchanged'] as const;

export function runToJson(run: Run) {
  return { ...run, seconds: secondsOf(run) };
}

export function runsTable(runs: readonly Run[], timeZone: string): string {
  return table(
    ['run', 'kind', 'started', 'took', 'status', ...OUTCOMES],
    runs.map((run) => [
      run.id,
      run.kind,
      formatMinute(run.requestedAt, timeZone),
      run.finishedAt ? formatDuration(secondsOf(run)) : '–',
      run.pausedAt && !run.finishedAt ? 'paused' : run.status,
      ...OUTCOMES.map((outcome) =>
        Object.values(run.counts).reduce((total, counts) => total + counts[outcome], 0),
      ),
    ]),
  );
}

/** The run's table, what it could not do and why, and what happens next. */
export async function printRun(state: State, run: Run, timeZone: string): Promise<void> {
  const { counts } = await readSoFar(state.db, run);
  const columns = run.range?.repair ? (['repair'] as const) : PLANNED;
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
  if (run.status !== 'planning') {
    for (const approval of await listApprovalsOfRun(state.db, run.id))
      printLine(`${describeUse(approval)}\n`);
  }
  if (run.errorMessage !== null) {
    const remedy = remedyFor(onlyReads(run) ? 'interrupted' : run.errorCode);
    const ended = run.status === 'cancelled' ? 'Cancelled' : 'Failed';
    const what = run.errorCode === 'hold_rejected' ? 'Not sent' : ended;
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
  await printFailures(state, run, timeZone);
  const took = run.finishedAt ? ` in ${formatDuration(secondsOf(run))}` : '';
  printLine(`Run ${run.id} ${run.status}${took}, started ${formatMinute(run.requestedAt, timeZone)}.`);
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

/** The causes of what the run left behind. A cause is counted whole, with what other runs left. */
async function printFailures(state: State, run: Run, timeZone: string): Promise<void> {
  const times = { timeZone, now: new Date() };
  // What it holds is named with the run.
  const causes = (await listCauses(state.db, { runId: run.id })).filter(({ status }) => status !== 'held');
  for (const cause of causes.slice(0, MAX_NAMED)) printLine(`${describeCauseWhole(cause, times)}\n`);
  const more = causes.length - MAX_NAMED;
  if (more > 0) printLine(`… and ${plural(more, 'more cause')}: slotsync failures\n`);
  const [newest] = await listRuns(state.db, 1);
  if (newest?.id !== run.id) return;
  const unsettled = await countUnsettled(state.db);
  if (unsettled > 0) printLine(`${describeUnsettled(unsettled)}: slotsync failures`);
}

function secondsOf({ requestedAt, finishedAt }: Run): number {
  return ((finishedAt ?? new Date()).getTime() - requestedAt.getTime()) / 1000;
}

/** Runs that failed as a whole, once each: no record says so. */
export function failedRuns(endedBadly: readonly EndedBadly[]): EndedBadly[] {
  const failed = endedBadly.filter(({ status }) => status === 'failed');
  return [...new Map(failed.map((one) => [one.runId, one])).values()];
}
