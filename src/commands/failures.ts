import type { App } from '../app.js';
import { openCsvFile } from '../csv-file.js';
import { UsageError } from '../errors.js';
import { formatNumber, plural } from '../format.js';
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
  describeSettled,
  describeUnsent,
  describeUnsettled,
  quote,
  recordsOf,
} from '../report/failures.js';
import { lines, printJson, printLine } from '../report/print.js';
import { describeDriftLeft } from '../report/verify.js';
import type { Queries } from '../state/database.js';
import { countDrift, isDrift } from '../state/drift/read-drift.js';
import { countUnsettled } from '../state/records/count-records.js';
import type { FailureFilter } from '../state/records/failure-filter.js';
import { countFormerObjects } from '../state/records/change-hands.js';
import { readKnowledge } from '../state/records/unsent-records.js';
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
  const configured = await app.configuration().then(
    ({ streams }) => streams.map((one) => one.name),
    () => undefined,
  );
  const times = { timeZone: await app.timeZone(), now };
  return { db, filter, chosen: describeChoice({ ...options, stream }), configured, limit, json, out, times };
}

async function showCauses(show: Show): Promise<void> {
  const { db, filter, configured, limit = MOST_CAUSES, json, out, times } = show;
  const file = out === undefined ? undefined : await openCsvFile(out, CAUSE_COLUMNS);
  const causes = await listCauses(db, filter, configured);
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
  const of = `, of ${plural(unsettled, 'cause')}${left}${show.chosen.narrows ? '; each is counted whole' : ''}`;
  const all = lines('slotsync failures', show.chosen.words, '--all').join(' ');
  for (const line of lines(
    (total > 0 || held === undefined) && (await describeNumber(show, total, of)),
    held && `${held}.`,
    total + causes.length > 0 && describeUnsent(await readKnowledge(db, filter.stream), filter.stream),
    describeOthers(others, filter.stream),
    total + causes.length > 0 && !file && `To list each record: ${all}`,
    out !== undefined && `Written to ${out}.`,
  ))
    printLine(line);
}

async function showRecords(show: Show): Promise<void> {
  const { db, filter, configured, limit, json, out } = show;
  const file = out === undefined ? undefined : await openCsvFile(out, FAILURE_COLUMNS);
  const document = { failures: [] as object[], held: [] as object[] };
  let shown = 0;
  try {
    for await (const page of eachFailure(db, filter, limit, configured)) {
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
    (total > 0 || held === undefined) && (await describeNumber(show, total, left)),
    held && `${held}: ${lines('slotsync failures', filter.stream, '--status held').join(' ')}`,
    describeOthers(others, filter.stream),
    out !== undefined && `Written to ${out}.`,
  ))
    printLine(line);
}

/** The filter as it was given. `narrows`: what of it chooses among the records of a stream. */
function describeChoice({ stream, status, code, since }: FailuresOptions & { stream?: string | undefined }) {
  const narrows = lines(
    status !== undefined && `--status ${status}`,
    code !== undefined && `--code ${code}`,
    since !== undefined && `--since ${quote(since)}`,
  ).join(' ');
  return { narrows, words: lines(stream, narrows !== '' && narrows).join(' ') || undefined };
}

/** `total`: those that the filter names; `of`: what else is said of them, where there are any. */
async function describeNumber({ db, filter, chosen }: Show, total: number, of: string): Promise<string> {
  const { stream, status } = filter;
  const { narrows } = chosen;
  if (status === 'held' && total === 0) return 'No record is held for approval.';
  const all = narrows === '' ? total : await countUnsettled(db, { stream });
  if (all === 0) return describeSettled(await readKnowledge(db, stream), stream);
  if (narrows === '') return `${describeUnsettled(total, stream)}${of}.`;
  if (total === 0) return `${describeUnsettled(all, stream)}, and none of them matches ${narrows}.`;
  return `${formatNumber(total)} of ${recordsOf(all, stream)} not in sync ${total === 1 ? 'matches' : 'match'} ${narrows}${of}.`;
}

/** What else is wrong with records that are in sync as they were last read. */
async function countOthers(db: Queries, stream: string | undefined) {
  const drift = (await countDrift(db))
    // An object without a record was never accepted: nothing of it failed.
    .filter((one) => one.kind !== 'extra' && isDrift(one.kind) && one.stream === (stream ?? one.stream))
    .reduce((sum, { count }) => sum + count, 0);
  return { formerObjects: await countFormerObjects(db, stream), drift };
}

const describeOthers = ({ formerObjects, drift }: Awaited<ReturnType<typeof countOthers>>, stream?: string) =>
  lines(describeFormerObjects(formerObjects, stream), describeDriftLeft(drift));
