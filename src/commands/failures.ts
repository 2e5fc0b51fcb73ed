import type { App } from '../app.js';
import { openCsvFile } from '../csv-file.js';
import { UsageError } from '../errors.js';
import { plural } from '../format.js';
import { listCauses } from '../readings/causes.js';
import { eachFailure, eachHeld } from '../readings/failures.js';
import {
  CAUSE_COLUMNS,
  causeToCsv,
  causeToJson,
  FAILURE_COLUMNS,
  failureToCsv,
  failureToJson,
  heldToCsv,
  heldToJson,
} from '../report/failure-files.js';
import {
  describeAwaitingApproval,
  describeCauseWhole,
  describeFailure,
  describeFormerObjects,
  describeHeldRecord,
  describeUnsettled,
} from '../report/failures.js';
import { lines, printJson, printLine } from '../report/print.js';
import { describeDriftLeft } from '../report/verify.js';
import type { Queries } from '../state/database.js';
import { countDrift } from '../state/drift/read-drift.js';
import { countUnsettled } from '../state/records/count-records.js';
import type { FailureFilter } from '../state/records/failure-filter.js';
import { countFormerObjects } from '../state/records/former-objects.js';
import type { CommonOptions } from './command.js';
import { readSince } from './read-time.js';
import { requireKnownCode } from './require-known-code.js';
import { requireKnownStream } from './require-known-stream.js';
import { readWholeNumber } from './work-run.js';

interface FailuresOptions extends CommonOptions, Pick<FailureFilter, 'stream' | 'status' | 'code'> {
  since?: string;
  all?: boolean;
  limit?: string;
  out?: string;
}

type Show = Awaited<ReturnType<typeof prepare>>;

/** Causes shown unless `--limit` says otherwise. With `--all` every record is. */
const MOST_CAUSES = 50;

export async function failures(app: App, name: string | undefined, options: FailuresOptions): Promise<void> {
  const show = await prepare(app, name, options);
  await (options.all ? showRecords(show) : showCauses(show));
}

async function prepare(app: App, name: string | undefined, options: FailuresOptions) {
  const { status, code, json = false, out } = options;
  if (name !== undefined && options.stream !== undefined && name !== options.stream)
    throw new UsageError(`either ${name} or --stream ${options.stream}, not both`);
  const stream = name ?? options.stream;
  const limit = options.limit === undefined ? undefined : readWholeNumber(options.limit, '--limit takes');
  const now = new Date();
  const since = options.since === undefined ? undefined : readSince(options.since, '--since', now);
  const state = await app.state();
  await requireKnownStream(app, state, stream);
  await requireKnownCode(state, code);
  const { db } = state;
  const filter: FailureFilter = { stream, status, code, since };
  return { db, filter, limit, json, out, times: { timeZone: await app.timeZone(), now } };
}

async function showCauses({ db, filter, limit = MOST_CAUSES, json, out, times }: Show): Promise<void> {
  const file = out === undefined ? undefined : await openCsvFile(out, CAUSE_COLUMNS);
  const causes = await listCauses(db, filter);
  const shown = causes.slice(0, limit);
  await file?.write(shown.map((cause) => causeToCsv(cause, times)));
  await file?.close();
  const total = await countUnsettled(db, filter);
  const others = await countOthers(db, filter.stream);
  if (json) {
    return printJson({ total, causes: shown.map((cause) => causeToJson(cause, times)), ...others });
  }
  if (!file) for (const cause of shown) printLine(`${describeCauseWhole(cause, times)}\n`);
  const held = describeAwaitingApproval(causes);
  const left = shown.length < causes.length ? ` (the first ${shown.length} shown)` : '';
  const unsettled = causes.filter(({ status }) => status !== 'held').length;
  const of = total === 0 ? '' : `, of ${plural(unsettled, 'cause')}${left}`;
  for (const line of lines(
    (total > 0 || held === undefined) && `${describeNumber(total, filter)}${of}.`,
    held && `${held}.`,
    describeOthers(others, filter.stream),
    total + causes.length > 0 && !file && 'To list each record: slotsync failures --all',
    out !== undefined && `Written to ${out}.`,
  ))
    printLine(line);
}

async function showRecords({ db, filter, limit, json, out }: Show): Promise<void> {
  const file = out === undefined ? undefined : await openCsvFile(out, FAILURE_COLUMNS);
  const document = { failures: [] as object[], held: [] as object[] };
  let shown = 0;
  try {
    for await (const page of eachFailure(db, filter, limit)) {
      shown += page.length;
      await file?.write(page.map(failureToCsv));
      if (json) document.failures.push(...page.map(failureToJson));
      else if (!file) for (const failure of page) printLine(`${describeFailure(failure)}\n`);
    }
    for await (const page of eachHeld(db, filter, limit === undefined ? undefined : limit - shown)) {
      await file?.write(page.map(heldToCsv));
      if (json) document.held.push(...page.map(heldToJson));
      else if (!file) for (const held of page) printLine(describeHeldRecord(held));
    }
    await file?.close();
  } catch (error) {
    await file?.discard();
    throw error;
  }
  const total = await countUnsettled(db, filter);
  const others = await countOthers(db, filter.stream);
  if (json) return printJson({ total, ...document, ...others });
  const held = describeAwaitingApproval(await listCauses(db, { ...filter, status: filter.status ?? 'held' }));
  const left = shown < total ? ` (the first ${shown} shown)` : '';
  for (const line of lines(
    (total > 0 || held === undefined) && `${describeNumber(total, filter)}${left}.`,
    held && `${held}: slotsync failures --status held`,
    describeOthers(others, filter.stream),
    out !== undefined && `Written to ${out}.`,
  ))
    printLine(line);
}

/** `total`: those that the filter names. */
function describeNumber(total: number, { status, code, since }: FailureFilter): string {
  const isNarrowed = [status, code, since].some((part) => part !== undefined);
  return total === 0 && isNarrowed ? 'No record that is not in sync matches' : describeUnsettled(total);
}

/** What else is wrong with records that are in sync as they were last read. */
async function countOthers(db: Queries, stream: string | undefined) {
  const drift = (await countDrift(db))
    // An object without a record was never accepted: nothing of it failed.
    .filter((one) => one.kind !== 'extra' && one.stream === (stream ?? one.stream))
    .reduce((sum, { count }) => sum + count, 0);
  return { formerObjects: await countFormerObjects(db, stream), drift };
}

const describeOthers = ({ formerObjects, drift }: Awaited<ReturnType<typeof countOthers>>, stream?: string) =>
  lines(describeFormerObjects(formerObjects, stream), describeDriftLeft(drift));
