import type { App } from '../app.js';
import { UsageError } from '../errors.js';
import { openOutputFile } from '../output-file.js';
import { readReport } from '../readings/report.js';
import { reportToHtml } from '../report/morning-html.js';
import { reportToMarkdown } from '../report/morning-markdown.js';
import { composeReport, type MorningReport } from '../report/morning-report.js';
import { reportToText } from '../report/morning-text.js';
import { printJson, printLine } from '../report/print.js';
import { findRun } from '../state/runs/find-run.js';
import { visible } from '../visible-text.js';
import type { CommonOptions } from './command.js';
import { readRunNumber } from './find-run.js';
import { readSince } from './read-time.js';

interface ReportOptions extends CommonOptions {
  since?: string;
  text?: boolean;
  markdown?: boolean;
  html?: boolean;
  out?: string;
}

const FORMATS = { text: reportToText, markdown: reportToMarkdown, html: reportToHtml } as const;

export async function report(app: App, id: string | undefined, options: ReportOptions): Promise<void> {
  const render = chooseFormat(options);
  if (id !== undefined && options.since !== undefined)
    throw new UsageError('a run has its own period: leave out --since');
  const now = new Date();
  const since = options.since === undefined ? undefined : readSince(options.since, '--since', now);
  const state = await app.state();
  const run = id === undefined ? undefined : await findRun(state.db, readRunNumber(id));
  const { requestsPerSecond } = app.settings;
  // Opened first: a file that cannot be written is reported before anything is read.
  const file = options.out === undefined ? undefined : await openOutputFile(options.out);
  const configuredStreams = async () => (await app.configuration()).streams.map(({ name }) => name);
  const reading = await readReport(state, { since, run }, { requestsPerSecond, configuredStreams, now });
  const text = options.json
    ? JSON.stringify(reading, null, 2)
    : render(composeReport(reading, await app.timeZone()));
  if (!file) return options.json ? printJson(reading) : printLine(text.trimEnd());
  await file.write(`${visible(text).trimEnd()}\n`);
  await file.close();
  printLine(`Written to ${options.out}.`);
}

/** Throws UsageError when several forms are asked for. */
function chooseFormat(options: ReportOptions): (report: MorningReport) => string {
  const asked = (['text', 'markdown', 'html', 'json'] as const).filter((name) => options[name]);
  if (asked.length > 1) throw new UsageError(`choose one of ${asked.map((name) => `--${name}`).join(', ')}`);
  const [format = 'text'] = asked;
  return format === 'json' ? reportToText : FORMATS[format];
}
