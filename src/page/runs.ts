// The latest runs, and one run: what it planned and did, what it holds, and what it could not do and why.
import { remedyFor } from '../error-catalogue.js';
import { formatNumber, plural } from '../format.js';
import { html, type Html } from '../html.js';
import { listRunsSoFar, readSoFar } from '../readings/runs.js';
import { listFailuresInChains, type FailureInChain } from '../readings/failures.js';
import { countVerdicts } from '../state/bookings/read-reservations.js';
import { countDriftEvents } from '../state/drift/read-drift.js';
import { readHolds } from '../state/runs/holds.js';
import { LISTED_KINDS, onlyReads, readProgress, readRun, type Run } from '../state/runs/read-runs.js';
import { RUN_KINDS } from '../state/schema.js';
import { failuresTable } from './failures.js';
import { renderHold } from './hold-parts.js';
import { command, facts, link, status, table, time } from './parts.js';
import { runActions, runProgress, runsTable, took } from './run-parts.js';
import { PageNotFound, type Page, type Section, type View } from './view.js';

const MOST_RUNS = 50;
const MOST_FAILURES = 20;

export const runsPage: Page = async (sources, { query, address }) => {
  const isAll = query.get('all') !== null;
  const kinds = isAll ? RUN_KINDS : LISTED_KINDS;
  const runs = await sources.read(address, (db) => listRunsSoFar(db, MOST_RUNS, kinds));
  return (view) => ({
    title: 'Runs',
    lead: html`<p>${isAll ? link('/runs', 'Without incremental runs') : link('/runs?all', 'Also incremental runs')}</p>`,
    sections: [{ id: 'runs', title: `The latest ${MOST_RUNS}`, body: runsTable(runs, view) }],
  });
};

export const runPage: Page = async (sources, { params, address }) => {
  const id = Number(params['run']);
  const read = await sources.read(address, async (db) => {
    const run = Number.isSafeInteger(id) ? await readRun(db, id) : undefined;
    if (!run) return undefined;
    return {
      run: await readSoFar(db, run),
      progress: await readProgress(db, id),
      holds: await readHolds(db, id),
      failures: await listFailuresInChains(
        db,
        { runId: id, limit: MOST_FAILURES },
        await sources.configured(),
      ),
      verdicts: run.kind === 'reconcile' ? await countVerdicts(db, id) : undefined,
      drift: run.kind === 'verify' ? await countDriftEvents(db, id) : undefined,
    };
  });
  if (!read) throw new PageNotFound(`There is no run ${params['run'] ?? ''}.`);
  const { unfinished } = await sources.now();
  const secondsLeft = unfinished.find(({ run }) => run.id === id)?.secondsLeft;
  return (view) => ({
    title: `Run ${id}`,
    sections: [
      summary({ ...read, secondsLeft }, view),
      outcomes(read.run),
      holds(read, view),
      failures(read, view),
    ],
  });
};

interface RunReading {
  run: Run;
  holds: Awaited<ReturnType<typeof readHolds>>;
  failures: readonly FailureInChain[];
  progress: Awaited<ReturnType<typeof readProgress>>;
  verdicts: Awaited<ReturnType<typeof countVerdicts>> | undefined;
  drift: Awaited<ReturnType<typeof countDriftEvents>> | undefined;
}

function summary(
  { run, progress, verdicts, drift, secondsLeft }: RunReading & { secondsLeft: number | undefined },
  view: View,
): Section {
  const compared = Object.values(verdicts?.verdicts ?? {}).reduce((sum, count) => sum + count, 0);
  const body = html`${facts([
    ['Status', status(run.pausedAt && !run.finishedAt ? 'paused' : run.status)],
    ['Kind', `${run.kind}, started by a ${run.startedBy}`],
    ['Streams', run.streams.join(', ')],
    ['Requested', time(run.requestedAt, view)],
    ['Finished', run.finishedAt ? html`${time(run.finishedAt, view)}, after ${took(run)}` : 'not yet'],
    verdicts && [
      'Bookings',
      `${formatNumber(compared)} compared last by this run; it changed ${plural(verdicts.events, 'verdict')}`,
    ],
    drift && ['Drift', `${formatNumber(drift.found)} found, ${formatNumber(drift.mended)} resolved`],
  ])}
${run.finishedAt ? '' : html`${runProgress({ run, progress, secondsLeft }, view)}${runActions(run, view)}`}
${describeError(run)}`;
  return { id: 'summary', title: 'Summary', body };
}

function describeError(run: Run): Html {
  if (run.errorMessage === null) return html``;
  const remedy = remedyFor(onlyReads(run) ? 'interrupted' : run.errorCode);
  return html`<p>${run.errorCode === 'hold_rejected' ? 'Not sent' : 'Failed'}: ${run.errorMessage}</p><p>${remedy}</p>`;
}

const PLANNED = ['create', 'update', 'retire', 'moved', 'retry', 'repair', 'unchanged'] as const;
const OUTCOMES = ['synced', 'unchanged', 'deferred', 'failed', 'dead'] as const;

/** Columns without any number are left out. */
function outcomes({ streams, plan, counts }: Run): Section {
  const planned = PLANNED.filter((name) => streams.some((stream) => (plan[stream]?.[name] ?? 0) > 0));
  const done = OUTCOMES.filter((name) => streams.some((stream) => (counts[stream]?.[name] ?? 0) > 0));
  const rows = streams.map((stream) => [
    stream,
    ...planned.map((name) => plan[stream]?.[name] ?? 0),
    ...done.map((name) => counts[stream]?.[name] ?? 0),
  ]);
  const columns = [
    'stream',
    ...planned.map((name) => `#planned: ${name}`),
    ...done.map((name) => `#${name}`),
  ];
  const isEmpty = planned.length + done.length === 0;
  return {
    id: 'outcomes',
    title: 'Planned and done',
    isEmpty,
    body: isEmpty ? html`` : table('Records by stream', columns, rows),
  };
}

function holds({ holds: held }: RunReading, view: View): Section {
  const isEmpty = held.length === 0;
  const body = html`<ul class="items">${held.map((hold) => html`<li>${renderHold(hold, view)}</li>`)}</ul>`;
  return { id: 'holds', title: 'Held for approval', isEmpty, isUrgent: !isEmpty, body };
}

function failures({ run, failures: listed }: RunReading, view: View): Section {
  const isEmpty = listed.length === 0;
  const body = isEmpty
    ? html``
    : html`${failuresTable(`Records of run ${run.id} that are not in sync`, listed, view)}<p>${link('/failures', 'Failures by cause')}, or ${command(`slotsync runs ${run.id}`)}</p>`;
  return { id: 'failures', title: 'Not in sync', isEmpty, body };
}
