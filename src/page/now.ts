// The first page: what needs a person, what is under way, and whether anything is sent.
import { LANES, type Lane } from '../destination/quota/quota-rules.js';
import { errorEntry, remedyFor } from '../error-catalogue.js';
import { formatDuration, formatNumber, formatTime, plural } from '../format.js';
import { html, type Html } from '../html.js';
import type { Cause } from '../readings/causes.js';
import { describeFormer, describeWaitingRun } from '../report/configurations.js';
import { describeRestored, headlineOf, needsOperator } from '../report/failures.js';
import { failedRuns } from '../report/run.js';
import { resumesAlone } from '../report/status.js';
import { requestLine } from './chart.js';
import { renderHold } from './hold-parts.js';
import { ago, command, facts, link, minute, pathOf, status, table, time, withQuery } from './parts.js';
import { runActions, runProgress, runsTable } from './run-parts.js';
import type { Sources } from './sources.js';
import type { Page, Section, View } from './view.js';

type Now = Awaited<ReturnType<Sources['now']>>;
type Hour = Awaited<ReturnType<Sources['hour']>>;

export const nowPage: Page = async (sources) => {
  const [now, hour, causes] = [await sources.now(), await sources.hour(), await sources.causes()];
  return (view) => ({
    title: 'Now',
    lead: now.binding
      ? html`<p>Organization <b>${now.binding.organizationId}</b> at ${now.binding.baseUrl}</p>`
      : html`<p>Not bound to a service yet; the first sync binds it.</p>`,
    sections: [
      attention(now, causes, view),
      underWay(now, view),
      requests(now, hour, view),
      service(now, view),
      inbox(now, view),
      records(now, view),
      processes(now, view),
      latest(now, view),
    ],
  });
};

/** What a person decides or corrects; each with what to do about it. */
function attention(now: Now, causes: readonly Cause[], view: View): Section {
  const stuck = causes.filter(needsOperator);
  const drifting = now.verified.filter(({ repairable }) => repairable > 0);
  const failed = failedRuns(now.endedBadly);
  const { restored } = now.known;
  const items: Html[] = [
    ...(restored
      ? [
          html`<h3>${status('failed')} The state was restored</h3><p>${describeRestored(restored, view.timeZone)}</p>`,
        ]
      : []),
    ...now.sendingStopped.map(
      ({ stoppedSince, errorCode, errorMessage, command: of, host }) =>
        html`<h3>${status('stopped')} Nothing is sent since ${time(stoppedSince, view)}</h3>
<p>${errorCode}: ${errorMessage} (${of} on ${host}).${resumesAlone(errorCode) ? ' It is tried again at widening gaps, and sending resumes automatically.' : ''}</p>
<p>${errorEntry(errorCode).remedy}</p>`,
    ),
    ...failed.map(
      ({ runId, kind, errorCode }) =>
        html`<h3>${status('failed')} ${link(pathOf('runs', runId), `Run ${runId}`)} (${kind}) failed: ${errorCode ?? 'unknown'}</h3>
<p>${remedyFor(errorCode)}</p>`,
    ),
    ...now.holds.map((hold) => renderHold(hold, view)),
    ...now.leftRuns.map(
      (id) =>
        html`<h3>${status('paused')} Run ${id} is unfinished, and no process is known to work on it</h3><p>Start ${command('slotsync worker')}</p>`,
    ),
    ...now.configurations.waiting.map((run) => html`<h3>${status('paused')} ${describeWaitingRun(run)}</h3>`),
    ...now.configurations.former.map(
      (one) => html`<h3>${status('stopped')} ${describeFormer(one, { ...view, now: new Date() })}</h3>`,
    ),
    ...(now.orphanedClaims.records > 0
      ? [
          html`<h3>${status('paused')} ${plural(now.orphanedClaims.records, 'record')} claimed by a process that is gone</h3>
<p>Others may write them after ${formatTime(now.orphanedClaims.until, view.timeZone)} at the latest, by themselves.</p>`,
        ]
      : []),
    ...stuck.map(
      (cause) => html`<h3>${status(cause.status)} ${headlineOf(cause)}</h3>
<p>${cause.message === null ? '' : html`${cause.message}. `}${link('/failures', 'What to do about it')}</p>`,
    ),
    ...drifting.map(
      ({ stream, repairable }) =>
        html`<h3>${status('changed')} ${plural(repairable, 'object')} of ${stream} ${repairable === 1 ? 'differs' : 'differ'} at the service</h3>
<p>${link('/drift', 'Drift')}</p>`,
    ),
    ...(now.inbox.unknown ?? []).map(
      (stream) =>
        html`<h3>${status('pending')} Keys of ${stream} wait in the inbox, and the stream is not configured</h3><p>No worker takes them.</p>`,
    ),
  ];
  const body =
    items.length === 0
      ? html`<p>Nothing.</p>`
      : html`<ul class="items">${items.map((item) => html`<li>${item}</li>`)}</ul>`;
  return { id: 'attention', title: 'Needs a person', body, isUrgent: items.length > 0 };
}

function underWay({ unfinished }: Now, view: View): Section {
  const body =
    unfinished.length === 0
      ? html`<p>No run is under way.</p>`
      : html`<ul class="items">${unfinished.map(
          (
            one,
          ) => html`<li><h3>${link(pathOf('runs', one.run.id), `Run ${one.run.id}`)}: ${one.run.kind} of ${one.run.streams.join(', ')} ${status(one.run.pausedAt ? 'paused' : one.run.status)}</h3>
${runProgress(one, view)}${runActions(one.run, view)}</li>`,
        )}</ul>`;
  return { id: 'under-way', title: 'Under way', body };
}

function requests({ quota }: Now, { minutes, totals }: Hour, view: View): Section {
  const fastest = totals.fastestAt ? `, at ${formatTime(totals.fastestAt, view.timeZone)}` : '';
  const said = `${plural(totals.requests, 'request')} in the last hour, at most ${formatNumber(totals.fastest)} in one second${fastest}; ${formatNumber(totals.throttled)} refused with 429.`;
  const body = html`${renderQuota(quota)}<figure>${requestLine(minutes, said)}<figcaption>${said}</figcaption></figure>`;
  return { id: 'requests', title: 'Requests and quota', body };
}

function renderQuota(quota: Now['quota']): Html {
  if (!quota) return html``;
  if ('unknown' in quota)
    return html`<p>${status('stopped')} The store of the quota does not answer (${quota.unknown}); nothing is sent until it does.</p>`;
  const { allowed, rate, held, cooling, lanes, waiting, pausedMs, usedByOthers } = quota;
  const slots = html`<b>${held + cooling}</b> of ${rate}${allowed < rate ? `, reduced to ${allowed} after 429 answers` : ''}`;
  const laneOf = (lane: Lane) => {
    const waits = waiting[lane];
    return `${lane} ${lanes[lane]}${waits > 0 ? ` (${plural(waits, 'process', 'processes')} waiting)` : ''}`;
  };
  return facts([
    ['Slots in use', slots],
    ['Requests under way by lane', LANES.map(laneOf).join(', ')],
    pausedMs > 0 && ['Paused', `for ${formatDuration(pausedMs / 1000)} after a 429`],
    usedByOthers > 0 && ['Other clients', `about ${usedByOthers} of ${rate}`],
  ]);
}

const ANSWERS: Readonly<Record<string, string>> = {
  unreachable: 'none, it could not be reached',
  lost: 'none, it was lost after sending',
};

function service({ binding, nightly }: Now, view: View): Section {
  const { answeredAt = null, answer = null, succeededAt = null } = binding ?? {};
  const body = facts([
    [
      'Last answer',
      answeredAt ? html`${ANSWERS[answer ?? ''] ?? `HTTP ${answer}`}, ${time(answeredAt, view)}` : 'none yet',
    ],
    ['Last success', succeededAt ? time(succeededAt, view) : 'none yet'],
    nightly && ['Next nightly sync', html`${minute(nightly.nextDue, view)}, if a worker is running`],
    nightly && ['Last one due', minute(nightly.lastDue, view)],
  ]);
  return { id: 'service', title: 'Service and schedule', body };
}

const STATUSES = ['synced', 'deferred', 'failed', 'dead', 'pending', 'retired'] as const;

/** A record says what the service accepted; only a verify says what it holds. */
function records({ records: counts, verified }: Now, view: View): Section {
  if (counts.length === 0)
    return { id: 'records', title: 'Records', body: html`<p>No record yet: ${command('slotsync sync')}</p>` };
  const shown = STATUSES.filter(
    (of) => of === 'synced' || counts.some((row) => row.status === of && row.count > 0),
  );
  const streams = [...new Set(counts.map(({ stream }) => stream))];
  const countOf = (stream: string, of: string) =>
    counts.find((row) => row.stream === stream && row.status === of)?.count ?? 0;
  const rows = streams.map((stream) => {
    const seen = verified.find((one) => one.stream === stream);
    return [
      stream,
      ...shown.map((of) => {
        const count = countOf(stream, of);
        const isListed = count > 0 && of !== 'synced' && of !== 'retired';
        return isListed ? link(withQuery('/failures', { stream }), formatNumber(count)) : count;
      }),
      seen?.verifiedAt ? minute(seen.verifiedAt, view) : 'never',
      seen?.verifiedAt ? seen.drift : '–',
    ];
  });
  const body = table(
    'Records by stream and status',
    ['stream', ...shown.map((of) => `#${of}`), 'last verified', '#drift'],
    rows,
  );
  return { id: 'records', title: 'Records', body };
}

function inbox({ inbox: { streams, reservations } }: Now, view: View): Section {
  const rows = streams.map(({ stream, waiting, inFlight, later, oldestSeconds }) => [
    stream,
    waiting,
    inFlight,
    later,
    formatDuration(oldestSeconds),
  ]);
  const body = html`${
    rows.length === 0
      ? html`<p>Empty.</p>`
      : table(
          'Keys in the inbox',
          ['stream', '#waiting', '#in progress', '#to be tried again', 'oldest'],
          rows,
        )
  }${reservations ? html`<p>Bookings: changes at the service are read up to ${time(new Date(reservations.readUpTo * 1000), view)}.</p>` : ''}`;
  return { id: 'inbox', title: 'Inbox of changes', body };
}

function processes({ processes: all }: Now, view: View): Section {
  const rows = all.map((one) => [
    one.command,
    one.host,
    String(one.pid),
    status(!one.isAlive ? 'not seen' : one.stoppedSince ? 'stopped' : 'working'),
    minute(one.startedAt, view),
    one.isAlive ? '' : html`last seen ${ago(one.seenAt, view)} ago`,
  ]);
  const body =
    rows.length === 0
      ? html`<p>None is at work. Start ${command('slotsync worker')}</p>`
      : table('Processes', ['command', 'host', 'process', 'status', 'started', ''], rows);
  return { id: 'processes', title: 'Processes at work', body };
}

function latest({ runs }: Now, view: View): Section {
  const body = html`${runsTable(runs, view)}<p>${link('/runs', 'All runs')}</p>`;
  return { id: 'runs', title: 'Latest runs', body };
}
