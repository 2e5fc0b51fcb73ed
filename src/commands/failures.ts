import type { App } from '../app/app.js';
import { failuresDocument, failuresLead, failureToPoint, heldToPoint } from '../documents/failures.js';
import { quote } from '../situation/commands.js';
import {
  CAUSE_COLUMNS,
  causeToCsv,
  causeToJson,
  FAILURE_COLUMNS,
  failureToCsv,
  failureToJson,
  heldToCsv,
  heldToJson,
} from '../documents/failures.js';
import type { Point } from '../documents/document.js';
import { UsageError } from '../errors/errors.js';
import { openCsvFile } from '../files/csv-file.js';
import { printContent, printDocument } from '../render/print-document.js';
import { eachFailure, eachHeld, readFailuresFacts } from '../situation/failures.js';
import { readClock } from '../state/database.js';
import type { FailureFilter } from '../state/records/read/failures.js';
import { lines } from '../text/format.js';
import type { CommonOptions } from './command.js';
import { readSince } from './read-options.js';
import { namesOfConfigured, requireKnownCode, requireKnownStream } from './require-known.js';

interface FailuresOptions extends CommonOptions, Pick<FailureFilter, 'stream' | 'status' | 'code'> {
  since?: string;
  all?: boolean;
  limit?: number;
  out?: string;
}

type Show = Awaited<ReturnType<typeof prepare>>;

/** Default maximum number of causes that are shown. With `--all`, all records are shown by default. */
const MOST_CAUSES = 50;

export async function failures(app: App, name: string | undefined, options: FailuresOptions): Promise<void> {
  const show = await prepare(app, name, options);
  await (options.all ? showRecords(show) : showCauses(show));
}

async function prepare(app: App, name: string | undefined, options: FailuresOptions) {
  const { status, code, limit, json = false, out } = options;
  if (name !== undefined && options.stream !== undefined && name !== options.stream)
    throw new UsageError(`either ${name} or --stream ${options.stream}, not both`);
  const stream = name ?? options.stream;
  const state = await app.state();
  const now = await readClock(state.db);
  const timeZone = await app.timeZone();
  const since = readSince(options.since, now, timeZone);
  await requireKnownStream(app, state, stream);
  await requireKnownCode(state, code);
  const { db } = state;
  const filter: FailureFilter = { stream, status, code, since };
  const configured = await namesOfConfigured(app);
  const narrows = describeChoice(options);
  const read = () => readFailuresFacts(db, filter, { narrows, configured });
  return { db, filter, narrows, read, configured, limit, json, out, now, timeZone };
}

async function showCauses({ filter, narrows, read, limit = MOST_CAUSES, ...show }: Show): Promise<void> {
  const { json, out, now, timeZone } = show;
  const file = out === undefined ? undefined : await openCsvFile(out, CAUSE_COLUMNS);
  const facts = await read();
  const { total, causes, formerObjects, renamed, drift, exceptions } = facts;
  const shown = causes.slice(0, limit);
  await file?.write(shown.map(causeToCsv));
  await file?.close();
  const { lead = [], sections } = failuresDocument(facts, { most: limit, now });
  const all = lines('slotsync failures', filter.stream, narrows !== '' && narrows, '--all').join(' ');
  const about = [
    ...lead,
    ...lines(
      total + causes.length > 0 && !file && `To list each record: ${all}`,
      out !== undefined && `Written to ${out}.`,
    ),
  ];
  printDocument(
    { lead: about, sections: file ? [] : sections },
    { json, timeZone },
    { total, causes: shown.map(causeToJson), formerObjects, renamed, drift, exceptions },
  );
}

/** Reads and prints the records in pages, because all of them may not fit in memory. */
async function showRecords(show: Show): Promise<void> {
  const { db, filter, read, configured, limit, json, out, timeZone } = show;
  const file = out === undefined ? undefined : await openCsvFile(out, FAILURE_COLUMNS);
  const document = { failures: [] as object[], held: [] as object[] };
  const print = (points: readonly Point[]) => !json && !file && printContent({ points }, timeZone);
  let shown = 0;
  for await (const page of eachFailure(db, filter, limit, configured)) {
    shown += page.length;
    await file?.write(page.map(failureToCsv));
    for (const failure of json ? page : []) document.failures.push(failureToJson(failure));
    print(page.map(failureToPoint));
  }
  for await (const page of eachHeld(db, filter, limit === undefined ? undefined : limit - shown)) {
    await file?.write(page.map(heldToCsv));
    for (const held of json ? page : []) document.held.push(heldToJson(held));
    print(page.map(heldToPoint));
  }
  await file?.close();
  const facts = await read();
  const { total, formerObjects, renamed, drift, exceptions } = facts;
  const lead = failuresLead(facts, shown < total ? ` (the first ${shown} shown)` : '');
  if (out !== undefined) lead.push(`Written to ${out}.`);
  printDocument(
    { lead, sections: [] },
    { json, timeZone },
    { total, ...document, formerObjects, renamed, drift, exceptions },
  );
}

/** Returns the options that select records within a stream, as the user typed them. */
function describeChoice({ status, code, since }: FailuresOptions): string {
  return lines(
    status !== undefined && `--status ${status}`,
    code !== undefined && `--code ${code}`,
    since !== undefined && `--since ${quote(since)}`,
  ).join(' ');
}
