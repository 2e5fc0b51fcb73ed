// The latest runs, and one run.
import { runDocument, runsDocument } from '../documents/runs.js';
import { listRunsSoFar } from '../situation/runs.js';
import { readRunFacts } from '../situation/run-facts.js';
import { LISTED_KINDS, readRun } from '../state/runs/read-runs.js';
import { RUN_KINDS } from '../state/schema.js';
import { html } from '../text/html.js';
import { link } from './parts.js';
import { renderDocument } from './render-document.js';
import { PageNotFound, type Page } from './view.js';

const MOST_RUNS = 50;

export const runsPage: Page = async (sources, { query, address }) => {
  const isAll = query.get('all') !== null;
  const kinds = isAll ? RUN_KINDS : LISTED_KINDS;
  const runs = await sources.read(address, (db) => listRunsSoFar(db, MOST_RUNS, kinds));
  const other = isAll
    ? link('/runs', 'Without incremental runs')
    : link('/runs?all', 'Also incremental runs');
  return (view) => renderDocument(runsDocument(runs), view, html`<p>${other}</p>`);
};

export const runPage: Page = async (sources, { params, address }) => {
  const id = Number(params['run']);
  const read = await sources.read(address, async (db) => {
    const run = Number.isSafeInteger(id) ? await readRun(db, id) : undefined;
    return run && readRunFacts(db, run, await sources.configured());
  });
  if (!read) throw new PageNotFound(`There is no run ${params['run'] ?? ''}.`);
  const secondsLeft = (await sources.now()).secondsLeft.get(id);
  return (view) => renderDocument(runDocument({ ...read, secondsLeft }, view.now), view);
};
