import type { App } from '../app/app.js';
import type { Document } from '../documents/document.js';
import { reportDocument } from '../documents/report.js';
import { UsageError } from '../errors/errors.js';
import { openOutputFile } from '../files/text-file.js';
import { documentToHtml } from '../render/html.js';
import { printJson, printLine, printLines } from '../render/print.js';
import { documentToText } from '../render/text.js';
import { readReport } from '../situation/report.js';
import { readClock } from '../state/database.js';
import { findRun } from '../state/runs/read-runs.js';
import { visible } from '../text/visible-text.js';
import type { CommonOptions } from './command.js';
import { readSince } from './read-options.js';

interface ReportOptions extends CommonOptions {
  since?: string;
  text?: boolean;
  html?: boolean;
  out?: string;
}

const FORMATS = {
  text: (document: Document, timeZone: string) => documentToText(document, { timeZone }),
  html: documentToHtml,
} as const;

export async function report(app: App, id: number | undefined, options: ReportOptions): Promise<void> {
  const render = chooseFormat(options);
  if (id !== undefined && options.since !== undefined)
    throw new UsageError('a run has its own period: leave out --since');
  const { db } = await app.state();
  const now = await readClock(db);
  const timeZone = await app.timeZone();
  const since = readSince(options.since, now, timeZone);
  const run = id === undefined ? undefined : await findRun(db, id);
  const { requestsPerSecond } = app.settings;
  // Opens the file first, so that a file error is reported before the state is queried.
  const file = options.out === undefined ? undefined : await openOutputFile(options.out);
  const loadStreams = async () => (await app.configuration()).streams;
  const facts = await readReport(db, { since, run }, { requestsPerSecond, loadStreams, now });
  const text = options.json ? JSON.stringify(facts, null, 2) : render(reportDocument(facts), timeZone);
  if (!file) return options.json ? printJson(facts) : printLines(text.trimEnd().split('\n'));
  await file.write(`${visible(text).trimEnd()}\n`);
  await file.close();
  printLine(`Written to ${options.out}.`);
}

function chooseFormat(options: ReportOptions): (document: Document, timeZone: string) => string {
  const asked = (['text', 'html', 'json'] as const).filter((name) => options[name]);
  if (asked.length > 1) throw new UsageError(`choose one of ${asked.map((name) => `--${name}`).join(', ')}`);
  const [format = 'text'] = asked;
  return FORMATS[format === 'json' ? 'text' : format];
}
