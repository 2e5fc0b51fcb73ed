// Documents of runs: the list of runs, and one run with its plan, outcomes, holds, failures and next steps.
import { remedyFor } from '../errors/error-catalogue.js';
import type { RunFacts } from '../situation/run-facts.js';
import { withReasons } from '../sync/limits/hold-reason.js';
import { onlyReads, type Run } from '../state/runs/read-runs.js';
import type { Hold, RunRange } from '../state/schema.js';
import { counted, formatDuration, formatNumber, lines, plural, present, sum } from '../text/format.js';
import {
  addressOfRun,
  countsByStream,
  linkToRun,
  section,
  text,
  type Action,
  type Document,
  type Point,
  type Section,
  type Table,
  type Text,
} from './document.js';
import { actionsSection } from './actions.js';
import { causesSection, statusInWords } from './causes.js';
import { describeRenamed, describeUnsettled } from './failures.js';
import { nameOfGate, waitsForOperator } from '../state/gates/gates.js';
import { gateToPoint, holdToPoint } from './holds.js';

const MOST_NAMED = 5;
const OUTCOMES = ['synced', 'deferred', 'failed', 'dead'] as const;
const PLANNED = {
  create: 'to create',
  update: 'to update',
  retire: 'to deactivate',
  moved: 'moved',
  retry: 'to retry',
  repair: 'to repair',
  unchanged: 'unchanged',
  left_out: 'left out',
  excepted: 'excepted',
} as const;

export function runToJson(run: Run) {
  const holds = Object.fromEntries(
    Object.entries(run.holds).map(([stream, held]) => [stream, withReasons(held, { stream, runId: run.id })]),
  );
  return { ...run, holds, seconds: secondsOf(run) };
}

export function runsTable(runs: readonly Run[]): Table {
  return {
    headings: ['run', 'kind', 'started', 'took', 'status', ...OUTCOMES.map(statusInWords)],
    rows: runs.map((run) => [
      linkToRunNumber(run.id),
      run.kind,
      text`${{ minute: run.requestedAt }}`,
      run.finishedAt ? formatDuration(secondsOf(run)) : '–',
      text`${{ status: statusOf(run) }}`,
      ...OUTCOMES.map((outcome) => sum(Object.values(run.counts).map((counts) => counts[outcome]))),
    ]),
  };
}

export const linkToRunNumber = (id: number): Text => ({
  parts: [{ text: String(id), href: addressOfRun(id) }],
});

/** `kind` is the kind of run that the list is limited to. If undefined, runs of all kinds are listed. */
export function runsDocument(runs: readonly Run[], kind?: string): Document {
  const none =
    kind === undefined ? 'No run yet. Start one with: slotsync sync' : `No run of kind ${kind} yet.`;
  return {
    title: 'Runs',
    lead: runs.length === 0 ? [none] : [],
    sections: [section('runs', 'Latest runs', { table: runsTable(runs) })],
  };
}

/** `secondsLeft` is the estimated number of seconds until the run is done. */
export function runDocument(facts: RunFacts & { secondsLeft?: number | undefined }, now: Date): Document {
  const { run, gates, causes, unsettled, renamed } = facts;
  const took = run.finishedAt && ` in ${formatDuration(secondsOf(run))}`;
  return {
    title: `Run ${run.id}`,
    lead: [
      text`Run ${String(run.id)} ${{ status: statusOf(run) }}${took}, started ${{ minute: run.requestedAt }}.`,
    ],
    sections: [
      summary(facts, now),
      timelineSection(facts, now),
      outcomes(run),
      section('holds', titleOfHolds(gates), {
        isUrgent: gates.some(waitsForOperator),
        points: [
          gates.map(gateToPoint),
          openedHolds(facts).map(([stream, hold]) => holdToPoint(stream, hold)),
        ],
      }),
      actionsSection(facts.actions),
      section('renamed', 'Rows whose key may have changed', {
        points: renamed.map((pair) => ({ text: describeRenamed(pair) })),
      }),
      {
        ...causesSection(causes, { most: MOST_NAMED, now }),
        id: 'failures',
        title: 'Not in sync',
        paragraphs: unsettled
          ? [text`${describeUnsettled(unsettled)}: ${{ command: 'slotsync failures' }}`]
          : [],
      },
    ],
  };
}

function titleOfHolds(gates: RunFacts['gates']): string {
  if (gates.some(waitsForOperator)) return 'Held for approval';
  if (gates.length === 0) return 'Was held';
  return gates.every(({ reason }) => reason === 'frozen') ? 'Held by a freeze' : 'Held';
}

/** Returns holds of the run that no longer exist: the gate has opened, or belongs to a later run. */
function openedHolds({ run, gates }: RunFacts): [stream: string, hold: Hold][] {
  return Object.entries(run.holds).flatMap(([stream, holds]) =>
    Object.entries(holds).flatMap(([name, hold]): [string, Hold][] => {
      const isClosed = gates.some((gate) => gate.stream === stream && nameOfGate(gate) === name);
      return isClosed ? [] : [[stream, hold]];
    }),
  );
}

function summary(facts: RunFacts & { secondsLeft?: number | undefined }, now: Date): Section {
  const { run, verdicts, drift } = facts;
  const compared = sum(Object.values(verdicts?.verdicts ?? {}));
  return section('summary', 'Summary', {
    facts: [
      ['Kind', `${run.kind}, started by a ${run.startedBy}`],
      ['Streams', run.streams.join(', ')],
      run.kind === 'repair' && !run.range && ['Asked for', 'what drifts'],
      run.range && ['Asked for', describeRange(run.range)],
      verdicts && [
        'Bookings',
        `${formatNumber(compared)} compared last by this run; it changed ${plural(verdicts.events, 'verdict')}`,
      ],
      drift && [
        'Drift',
        `${formatNumber(drift.found)} found, ${formatNumber(drift.mended)} resolved. What drifts now: slotsync status`,
      ],
    ],
    points: [run.finishedAt === null && underWayToPoint(facts, now), errorToPoint(run)],
  });
}

/** List entry of an unfinished run: its progress, the estimated end, and buttons to pause, resume or cancel it. */
export function underWayToPoint(
  { run, progress, secondsLeft }: Pick<RunFacts, 'run' | 'progress'> & { secondsLeft?: number | undefined },
  now: Date,
): Point {
  const { done, total } = progress;
  const isCounted = run.status !== 'planning' && total > 0;
  const end = secondsLeft === undefined ? undefined : new Date(now.getTime() + secondsLeft * 1000);
  return {
    text: text`${linkToRun(run.id)}: ${{ status: statusOf(run) }}`,
    details: present<Text>(
      isCounted &&
        text`${formatNumber(done)} of ${plural(total, 'record')}, ${String(Math.floor((done / total) * 100))} %.${end && text` Done about ${{ minute: end }}, in ${formatDuration(Math.max(1, secondsLeft ?? 0))}.`}`,
      run.status === 'planning' &&
        (run.planner === null
          ? 'Waiting for a process to plan the run.'
          : text`Planning since ${run.requestedAt}.`),
      run.pausedAt && text`Paused at ${run.pausedAt}.`,
    ),
    progress: isCounted ? progress : undefined,
    commands: present<Action>(
      !onlyReads(run) &&
        (run.pausedAt ? actionOnRun(run, 'resume', 'Resume') : actionOnRun(run, 'pause', 'Pause')),
      actionOnRun(run, 'cancel', 'Cancel …'),
    ),
  };
}

export const actionOnRun = ({ id }: Run, verb: 'pause' | 'resume' | 'cancel', label: string): Action => ({
  command: `slotsync ${verb} ${id}`,
  href: `${addressOfRun(id)}/${verb}`,
  label,
  about: `run ${id}`,
  isImmediate: verb !== 'cancel',
});

function errorToPoint(run: Run): Point | undefined {
  if (run.errorMessage === null) return undefined;
  const ended = run.status === 'cancelled' ? 'Cancelled' : 'Failed';
  return {
    text: `${ended}: ${run.errorMessage}`,
    next: remedyFor(onlyReads(run) ? 'interrupted' : run.errorCode),
  };
}

/** Graph of planned, settled and held records. Old runs have no graph, because their batches were deleted. */
function timelineSection({ run, timeline, gates }: RunFacts, now: Date): Section {
  const { planned = 0, done = 0 } = timeline.points.at(-1) ?? {};
  if (planned === 0) return section('timeline', 'Timeline');
  const held = sum(gates.map(({ count }) => count));
  const isDone = done === planned && held === 0;
  const says = `${formatNumber(done)} of ${plural(planned, 'planned record')} sent or settled, ${formatNumber(planned - done)} waiting, ${formatNumber(held)} held.`;
  return section('timeline', 'Timeline', {
    paragraphs: [!isDone && says],
    graphs: [
      {
        isOnlyDrawn: isDone,
        title: 'Records over the time of the run: settled (area), planned (dotted), with held (dashed)',
        says,
        unit: 'records',
        points: timeline.points.map((point) => ({ label: '', value: point.done })),
        peaks: timeline.points.map((point) => point.planned),
        limit: held > 0 ? { value: planned + held, name: `${formatNumber(held)} held` } : undefined,
        ends: [text`${{ near: run.requestedAt, now }}`, text`${{ near: run.finishedAt ?? now, now }}`],
      },
    ],
  });
}

function outcomes({ streams, plan, counts }: Run): Section {
  const planned = Object.keys(PLANNED) as (keyof typeof PLANNED)[];
  const rows = streams.map((stream) => ({ stream, planned: plan[stream], done: counts[stream] }));
  const equal = sum(Object.values(counts).map(({ unchanged }) => unchanged));
  type Row = (typeof rows)[number];
  return section('outcomes', 'Planned and done', {
    paragraphs: [equal > 0 && `${plural(equal, 'record')} needed no write.`],
    table: countsByStream(rows, [
      ...planned.map((name) => [PLANNED[name], (row: Row) => row.planned?.[name] ?? 0] as const),
      ...OUTCOMES.map((name) => [statusInWords(name), (row: Row) => row.done?.[name] ?? 0] as const),
    ]),
  });
}

/** Describes the range of a run, such as a condition. Keys are only counted, not named. */
function describeRange(range: RunRange): string {
  const { keys, from, to, where, limit, force, verified, sample, extras, adopt } = range;
  return lines(
    keys && plural(keys.length, 'key'),
    from !== undefined && `from ${from}`,
    to !== undefined && `before ${to}`,
    where !== undefined && `where ${where}`,
    limit !== undefined && `at most ${plural(limit, 'record')}`,
    force && 'with unchanged and given up records',
    verified !== undefined && `drift found by run ${verified}`,
    sample !== undefined && `a sample of ${plural(sample, 'record')} of each stream`,
    extras && 'with objects that have no record',
    adopt && 'rebuild of records',
  ).join(', ');
}

/** Returns text such as `2 of 40 keys have neither row nor record: X1, X2`. */
export function describeUnknownKeys(unknown: readonly string[], requested: number): string {
  const named = unknown.slice(0, MOST_NAMED).join(', ');
  const more = unknown.length > MOST_NAMED ? ', …' : '';
  return counted`${unknown.length} of ${plural(requested, 'key')} {has|have} neither row nor record: ${named}${more}`;
}

const statusOf = ({ pausedAt, finishedAt, status }: Run): string =>
  pausedAt && !finishedAt ? 'paused' : status;

function secondsOf({ requestedAt, finishedAt }: Run): number {
  return ((finishedAt ?? new Date()).getTime() - requestedAt.getTime()) / 1000;
}
