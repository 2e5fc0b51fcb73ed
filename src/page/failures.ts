// Why records are not in sync, by root cause, and the records one by one.
import { errorEntry } from '../error-catalogue.js';
import { formatNumber, plural } from '../format.js';
import { html, type Html } from '../html.js';
import type { Cause } from '../readings/causes.js';
import { listFailuresInChains, type FailureInChain } from '../readings/failures.js';
import {
  commandOfCause,
  describeAwaitingApproval,
  describeCause,
  describeSettled,
  isRetryable,
  nextStep,
} from '../report/failures.js';
import { countUnsettled, listRecordedStreams } from '../state/records/count-records.js';
import { readKnowledge, type Knowledge } from '../state/records/unsent-records.js';
import { action, ago, link, pathOf, status, table, withQuery } from './parts.js';
import type { Page, Section, View } from './view.js';

const MOST_RECORDS = 50;

export const failuresPage: Page = async (sources, { query, address }) => {
  const stream = query.get('stream') || undefined;
  const causes = (await sources.causes()).filter(
    (cause) => stream === undefined || cause.stream === stream || stream in cause.waitingByStream,
  );
  const { listed, total, known, streams } = await sources.read(address, async (db) => ({
    listed: await listFailuresInChains(db, { stream, limit: MOST_RECORDS }, await sources.configured()),
    total: await countUnsettled(db, { stream }),
    known: await readKnowledge(db, stream),
    streams: await listRecordedStreams(db),
  }));
  return (view) => ({
    title: stream === undefined ? 'Failures' : `Failures of ${stream}`,
    lead: html`<p>${total === 0 ? saidOfNone(causes, known, stream) : html`<b>${formatNumber(total)}</b> ${total === 1 ? 'record is' : 'records are'} not in sync.`}</p>
<nav aria-label="Streams" class="filter"><ul><li><a href="/failures"${stream === undefined ? html` aria-current="true"` : ''}>all</a></li>${streams.map((name) => html`<li><a href="${withQuery('/failures', { stream: name })}"${name === stream ? html` aria-current="true"` : ''}>${name}</a></li>`)}</ul></nav>`,
    sections: [causesSection(causes, view), recordsSection(listed, total, view)],
  });
};

/** What is held is in sync only as it was last read: its row has changed since. */
function saidOfNone(causes: readonly Cause[], known: Knowledge, stream: string | undefined): string {
  const held = describeAwaitingApproval(causes);
  return held === undefined ? describeSettled(known, stream) : `${held}.`;
}

function causesSection(causes: readonly Cause[], view: View): Section {
  const body =
    causes.length === 0
      ? html`<p>None.</p>`
      : html`<ul class="items">${causes.map((cause) => html`<li>${renderCause(cause, view)}</li>`)}</ul>`;
  return { id: 'causes', title: 'Causes, those that most records wait for first', body };
}

function renderCause(cause: Cause, view: View): Html {
  const { stream, status: of, code, records, keys } = cause;
  const { headline, reason, since, next } = describeCause(cause, view);
  const shown = keys.map(
    (key, at) => html`${at > 0 ? ', ' : ''}${link(pathOf('records', stream, key), key)}`,
  );
  const about = `${plural(records, 'record')} of ${stream}`;
  const asks = withQuery('/failures/retry', { stream, status: of, code });
  return html`<h3>${status(of)} ${headline}</h3>
${reason === undefined ? '' : html`<p>${reason}</p>`}
<p>${shown}${records > keys.length ? ', …' : ''}; ${since}</p>
<p>${next}</p>
${isRetryable(cause) ? html`<div class="actions">${action(view, { href: asks, label: 'Retry …', typed: commandOfCause(cause), about })}</div>` : ''}`;
}

function recordsSection(listed: readonly FailureInChain[], total: number, view: View): Section {
  const isEmpty = listed.length === 0;
  const more =
    total > listed.length ? html`<p>The first ${listed.length} of ${formatNumber(total)}.</p>` : '';
  const body = isEmpty ? html`` : html`${more}${failuresTable('Records that are not in sync', listed, view)}`;
  return { id: 'records', title: 'Records', body, isEmpty };
}

export function failuresTable(caption: string, listed: readonly FailureInChain[], view: View): Html {
  const rows = listed.map((failure) => [
    link(pathOf('records', failure.stream, failure.localKey), `${failure.stream} ${failure.localKey}`),
    status(failure.status),
    failure.errorMessage ?? (failure.errorCode === null ? '' : errorEntry(failure.errorCode).meaning),
    nextStep(failure),
    ago(failure.updatedAt, view),
  ]);
  return table(caption, ['record', 'status', 'why', 'next', 'for'], rows);
}
