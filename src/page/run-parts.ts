// What several pages show of runs: the list, and the progress of one with what may be done about it.
import { formatDuration, formatMinute, formatNumber, plural } from '../format.js';
import { html, type Html } from '../html.js';
import { onlyReads, type Run } from '../state/runs/read-runs.js';
import { action, actNow, command, link, minute, pathOf, status, table, time } from './parts.js';
import type { RunUnderWay } from './sources.js';
import type { View } from './view.js';

const OUTCOMES = ['synced', 'deferred', 'failed', 'dead'] as const;

export function runsTable(runs: readonly Run[], view: View): Html {
  if (runs.length === 0) return html`<p>No run yet. Start one with ${command('slotsync sync')}</p>`;
  const rows = runs.map((run) => [
    link(pathOf('runs', run.id), String(run.id)),
    run.kind,
    status(run.pausedAt && !run.finishedAt ? 'paused' : run.status),
    minute(run.requestedAt, view),
    run.finishedAt ? took(run) : '–',
    ...OUTCOMES.map((outcome) => Object.values(run.counts).reduce((sum, counts) => sum + counts[outcome], 0)),
  ]);
  return table(
    'Runs, newest first',
    ['run', 'kind', 'status', 'started', 'took', ...OUTCOMES.map((name) => `#${name}`)],
    rows,
  );
}

export const took = ({ requestedAt, finishedAt }: Run): string =>
  formatDuration(((finishedAt ?? new Date()).getTime() - requestedAt.getTime()) / 1000);

/** How far it is, and when it will be done. */
export function runProgress({ run, progress, secondsLeft }: RunUnderWay, view: View): Html {
  if (run.status === 'planning') return html`<p>Planned since ${time(run.requestedAt, view)}.</p>`;
  if (progress.total === 0) return html`<p>Started ${time(run.requestedAt, view)}.</p>`;
  const { done, total } = progress;
  const percent = Math.floor((done / total) * 100);
  const end = secondsLeft === undefined ? undefined : new Date(view.now.getTime() + secondsLeft * 1000);
  const left = end
    ? html` Done about <b>${formatMinute(end, view.timeZone)}</b>, in ${formatDuration(Math.max(1, secondsLeft ?? 0))}.`
    : '';
  const paused = run.pausedAt ? html` Paused since ${time(run.pausedAt, view)}.` : '';
  return html`<progress max="${total}" value="${done}" aria-label="Run ${run.id}">${percent} %</progress>
<p><b>${formatNumber(done)}</b> of ${plural(total, 'record')}, ${percent} %.${left}${paused}</p>`;
}

/** Pause, resume and cancel. */
export function runActions(run: Run, view: View): Html {
  if (run.finishedAt) return html``;
  const about = `run ${run.id}`;
  const of = (verb: string) => ({
    href: pathOf('runs', run.id, verb),
    typed: `slotsync ${verb} ${run.id}`,
    about,
  });
  const pausing = run.pausedAt ? { ...of('resume'), label: 'Resume' } : { ...of('pause'), label: 'Pause' };
  return html`<div class="actions">${onlyReads(run) ? '' : actNow(view, pausing)}${action(view, { ...of('cancel'), label: 'Cancel …' })}</div>`;
}
