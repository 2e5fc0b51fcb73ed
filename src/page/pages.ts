// The pages: each reads its facts, and renders the document that is made from them.
import { actionsDocument } from '../documents/actions.js';
import { bookingsDocument } from '../documents/bookings.js';
import { linkToRecord, section, text, withQuery } from '../documents/document.js';
import { driftDocument } from '../documents/drift.js';
import { failuresDocument } from '../documents/failures.js';
import { reportDocument } from '../documents/report.js';
import { runDocument, runsDocument } from '../documents/runs.js';
import { situationDocument } from '../documents/situation.js';
import { listFailuresInChains, readFailuresFacts } from '../situation/failures.js';
import { readReport } from '../situation/report.js';
import { listRunsSoFar, readRunFacts } from '../situation/run-facts.js';
import { listVerified } from '../situation/situation.js';
import { listActions } from '../state/actions.js';
import {
  countDiscrepancies,
  listAllDiscrepancies,
  listDiscrepantWeek,
} from '../state/bookings/read-reservations.js';
import { readClock } from '../state/database.js';
import { countDrift, listDrift } from '../state/drift.js';
import { listRecordedStreams } from '../state/records/read/count-records.js';
import { findRecords } from '../state/records/read/record-details.js';
import { LISTED_KINDS, readRun } from '../state/runs/read-runs.js';
import { RUN_KINDS } from '../state/schema.js';
import { dayOf, lines } from '../text/format.js';
import { html } from '../text/html.js';
import { parseTime } from '../time/zoned-time.js';
import { PageNotFound, type Page } from './html-page.js';

const MOST = 100;
const MOST_RUNS = 50;
const MOST_CAUSES = 50;
const MOST_RECORDS = 50;
const WEEK_MS = 7 * 24 * 60 * 60 * 1000;

const nowPage: Page = async (sources) =>
  situationDocument({ ...(await sources.now()), history: await sources.history() });

const runsPage: Page = async (sources, { query, address }) => {
  const isAll = query.get('all') !== null;
  const kinds = isAll ? RUN_KINDS : LISTED_KINDS;
  const runs = await sources.read(address, (db) => listRunsSoFar(db, MOST_RUNS, kinds));
  const { lead = [], ...document } = runsDocument(runs);
  const other = isAll
    ? { text: 'Without incremental runs', href: '/runs' }
    : { text: 'Also incremental runs', href: '/runs?all' };
  return { ...document, lead: [...lead, text`${other}`] };
};

const runPage: Page = async (sources, { params, address }) => {
  const id = Number(params['run']);
  const read = await sources.read(address, async (db) => {
    const run = Number.isSafeInteger(id) ? await readRun(db, id) : undefined;
    return run && readRunFacts(db, run, await sources.configured());
  });
  if (!read) throw new PageNotFound(`There is no run ${params['run'] ?? ''}.`);
  const { secondsLeft, now } = await sources.now();
  return runDocument({ ...read, secondsLeft: secondsLeft.get(id) }, now);
};

const failuresPage: Page = async (sources, { query, address }) => {
  const stream = query.get('stream') || undefined;
  const { facts, records, streams, now } = await sources.read(address, async (db) => {
    const configured = await sources.configured();
    return {
      facts: await readFailuresFacts(db, { stream }, { configured }),
      records: await listFailuresInChains(db, { stream, limit: MOST_RECORDS }, configured),
      streams: await listRecordedStreams(db),
      now: await readClock(db),
    };
  });
  const filters = [undefined, ...streams].map(
    (name) =>
      html`<li><a href="${withQuery('/failures', { stream: name })}"${name === stream && html` aria-current="true"`}>${name ?? 'all'}</a></li>`,
  );
  return {
    ...failuresDocument(facts, { most: MOST_CAUSES, now, records }),
    more: html`<nav aria-label="Streams" class="filter"><ul>${filters}</ul></nav>`,
  };
};

const searchPage: Page = async (sources, { query, address }) => {
  const wanted = query.get('key')?.trim() ?? '';
  const found = await sources.read(address, (db) => findRecords(db, wanted, MOST_RECORDS));
  const rows = found.map(({ stream, localKey, externalId, status }) => [
    linkToRecord(stream, localKey),
    externalId ?? '–',
    text`${{ status }}`,
  ]);
  return {
    title: 'Records',
    lead: lines(`Records whose key or external id is ${wanted}:`, found.length === 0 && 'None in the state.'),
    sections: [section('found', 'Found', { table: { headings: ['record', 'external id', 'status'], rows } })],
  };
};

const driftPage: Page = async (sources, { address }) => {
  const verified = listVerified(await sources.now());
  const { counts, listed } = await sources.read(address, async (db) => ({
    counts: await countDrift(db),
    listed: await listDrift(db, MOST),
  }));
  return driftDocument(counts, verified, listed);
};

/** Page of the bookings that disagree, as of the last reconcile: a calendar of one week, and a list. */
const bookingsPage: Page = async (sources, { query, address }) => {
  const timeZone = await sources.timeZone();
  const asked = query.get('week') ?? '';
  const day = parseTime(asked) === undefined ? undefined : asked.slice(0, 10);
  const { counts, listed, week } = await sources.read(address, async (db) => ({
    counts: await countDiscrepancies(db),
    listed: await listAllDiscrepancies(db, MOST),
    week: await listDiscrepantWeek(db, { day, timeZone, limit: MOST }),
  }));
  const weekAway = (words: string, weeks: number) => {
    const monday = dayOf(new Date(Date.parse(week.monday) + weeks * WEEK_MS), 'UTC');
    return { text: words, href: withQuery('/bookings', { week: monday }) };
  };
  const { lead = [], ...document } = bookingsDocument(counts, listed, timeZone, week);
  const weeks = text`${weekAway('Week before', -1)} · ${weekAway('Week after', 1)}`;
  return { ...document, lead: [...lead, weeks] };
};

/** Page of the report: since the last nightly sync was due, or of the run that the query names. */
const reportPage: Page = async (sources, { query, address }) => {
  const number = query.get('run');
  const { requestsPerSecond, configured } = sources;
  const facts = await sources.read(address, async (db) => {
    const id = Number(number);
    const run = number !== null && Number.isSafeInteger(id) ? await readRun(db, id) : undefined;
    return number !== null && !run
      ? undefined
      : readReport(db, { run }, { requestsPerSecond, streams: await configured() });
  });
  if (!facts) throw new PageNotFound(`There is no run ${number ?? ''}.`);
  const { lead = [], ...document } = reportDocument(facts);
  const command = number === null ? 'slotsync report --html' : `slotsync report ${number} --html`;
  return { ...document, lead: [...lead, text`To mail or keep it: ${{ command }}`] };
};

const actionsPage: Page = async (sources, { address }) =>
  actionsDocument(await sources.read(address, (db) => listActions(db, { limit: MOST })));

/** Pages by path, except pages of a single record. `isLive`: the browser updates an open page automatically. */
export const PAGES: Readonly<Record<string, { page: Page; isLive: boolean }>> = {
  '/': { page: nowPage, isLive: true },
  '/runs': { page: runsPage, isLive: true },
  '/runs/:run': { page: runPage, isLive: true },
  '/failures': { page: failuresPage, isLive: true },
  '/records': { page: searchPage, isLive: false },
  '/drift': { page: driftPage, isLive: true },
  '/bookings': { page: bookingsPage, isLive: true },
  '/report': { page: reportPage, isLive: false },
  '/actions': { page: actionsPage, isLive: true },
};
