// The morning's report, of the time since the last nightly sync was due, or of one run.
import { html } from '../html.js';
import { readReport } from '../readings/report.js';
import { composeReport, type ReportSection } from '../report/morning-report.js';
import { readRun } from '../state/runs/read-runs.js';
import { command, table } from './parts.js';
import { PageNotFound, type Page, type Section } from './view.js';

export const reportPage: Page = async (sources, { query, address }) => {
  const given = query.get('run');
  const { requestsPerSecond, configured } = sources;
  const reading = await sources.read(address, async (db) => {
    const id = Number(given);
    const run = given !== null && Number.isSafeInteger(id) ? await readRun(db, id) : undefined;
    return given !== null && !run
      ? undefined
      : readReport({ db }, { run }, { requestsPerSecond, configuredStreams: configured });
  });
  if (!reading) throw new PageNotFound(`There is no run ${given ?? ''}.`);
  return ({ timeZone }) => {
    const { title, about, sections } = composeReport(reading, timeZone);
    const typed = given === null ? 'slotsync report --html' : `slotsync report ${given} --html`;
    return {
      title,
      lead: html`${about.map((line) => html`<p>${line}</p>`)}<p>To mail or keep it: ${command(typed)}</p>`,
      sections: sections.map(renderReportSection),
    };
  };
};

function renderReportSection(
  { title, paragraphs, points, table: shown }: ReportSection,
  at: number,
): Section {
  const numeric = shown?.headings.map(
    (_, column) => shown.rows.length > 0 && shown.rows.every((row) => typeof row[column] === 'number'),
  );
  const columns = shown?.headings.map((name, column) => (numeric?.[column] ? `#${name}` : name)) ?? [];
  const body = html`${paragraphs.map((line) => html`<p>${line}</p>`)}${
    points.length > 0 &&
    html`<ul class="items">${points.map(
      ({ text, details = [], commands = [] }) =>
        html`<li><p><b>${text}</b></p>${details.map((line) => html`<p>${line}</p>`)}${commands.map((line) => html`<p>${command(line)}</p>`)}</li>`,
    )}</ul>`
  }${shown && table(title, columns, shown.rows)}`;
  return { id: `part-${at + 1}`, title, body };
}
