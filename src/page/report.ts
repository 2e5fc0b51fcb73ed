// The report, of the time since the last nightly sync was due, or of one run.
import { reportDocument } from '../documents/report.js';
import { readReport } from '../situation/report.js';
import { readRun } from '../state/runs/read-runs.js';
import { html } from '../text/html.js';
import { command } from './parts.js';
import { renderDocument } from './render-document.js';
import { PageNotFound, type Page } from './view.js';

export const reportPage: Page = async (sources, { query, address }) => {
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
  const typed = number === null ? 'slotsync report --html' : `slotsync report ${number} --html`;
  return (view) =>
    renderDocument(reportDocument(facts), view, html`<p>To mail or keep it: ${command(typed)}</p>`);
};
