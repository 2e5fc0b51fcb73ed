// The report as it is mailed: one document, as text and as HTML. It is read when it is sent, so what is sent again says how things
// are then, and no key of it stays in the state.
import { reportDocument } from '../documents/report.js';
import { documentToHtml } from '../render/html.js';
import { documentToText } from '../render/text.js';
import { readReport } from '../situation/report.js';
import type { State } from '../state/database.js';
import { readRun } from '../state/runs/read-runs.js';
import { visible } from '../text/visible-text.js';

interface ReportDeps {
  state: State;
  streams: readonly string[];
  requestsPerSecond: number;
  timeZone: string;
}

/** The report since a nightly run started. */
export async function composeReport(
  { state, streams, requestsPerSecond, timeZone }: ReportDeps,
  runId: number,
): Promise<{ text: string; html: string }> {
  const nightly = await readRun(state.db, runId);
  const document = reportDocument(await readReport(state.db, { nightly }, { requestsPerSecond, streams }));
  return {
    text: visible(documentToText(document, { timeZone })),
    html: visible(documentToHtml(document, timeZone)),
  };
}
