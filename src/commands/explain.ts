import type { Command } from 'commander';
import { selectStreams, type App } from '../app.js';
import { SlotsyncError } from '../errors.js';
import type { Verdict } from '../state/schema.js';
import { NO_RESERVATIONS } from '../streams/bookings.js';
import { explainBooking, type BookingExplained } from '../sync/explain-booking.js';
import { explainRecord, type RecordExplained } from '../sync/explain-record.js';
import { describeBooking, describePeriod, VERDICT_WORDS } from '../report/booking-report.js';
import { common, EXIT, withApp, type CommonOptions } from './command.js';
import { nextStep } from '../report/failure-report.js';
import { formatTime, plural, printJson, printLine } from '../report/format.js';

/** What bookings are called where a stream is named, unless a stream is called so. */
const BOOKINGS = 'reservations';

export function addExplain(program: Command): void {
  common(program.command('explain'))
    .argument('<stream>', `a stream, or '${BOOKINGS}'`)
    .argument('<key>', 'local key; of a booking also its external id, or # and its number there')
    .description('everything about one record or booking: both sides, what was accepted, what happens next')
    .action((stream: string, key: string, options: CommonOptions) =>
      withApp({ needs: ['mirror', 'state', 'api'], configPath: options.config }, (app) =>
        explain(app, stream, key, options),
      ),
    );
}

async function explain(app: App, name: string, key: string, options: CommonOptions): Promise<number> {
  const configuration = await app.configuration();
  const deps = {
    mirror: await app.mirror(),
    destination: await app.destination(),
    state: await app.confirmedState(),
  };
  const isBooking = name === BOOKINGS && !configuration.streams.some((stream) => stream.name === name);
  if (isBooking) {
    const { reservations = NO_RESERVATIONS } = configuration;
    const explained = await explainBooking(deps, reservations, key);
    requireFound(
      explained.here ?? explained.known ?? explained.reservations[0] ?? explained.events[0],
      `no booking '${key}' is here, there or in the state`,
    );
    if (options.json) printJson(explained);
    else printBooking(explained, reservations.bookings?.timezone ?? 'UTC');
    return EXIT.done;
  }
  const [stream] = selectStreams(configuration, [name]);
  if (!stream) return EXIT.usage;
  const explained = await explainRecord(deps, stream, key);
  requireFound(explained.row ?? explained.record, `no row and no record of ${name} has the key '${key}'`);
  if (options.json) printJson({ ...explained, next: nextOf(explained) });
  else printRecord(explained);
  return EXIT.done;
}

function requireFound(found: unknown, message: string): void {
  if (found !== undefined) return;
  throw new SlotsyncError('not_found', message, {});
}

function printRecord(explained: RecordExplained): void {
  const { stream, key, row, object, problem, record, there, changes, batches } = explained;
  printLine(`${stream} '${key}'\n`);
  printLine(row ? 'Row now' : 'Row now: gone');
  for (const [column, value] of Object.entries(row ?? {})) printLine(`  ${column}: ${show(value)}`);
  if (object) {
    printLine(`\nObject it becomes: ${object.extId}, type ${object.typeId}`);
    for (const { fieldId, values } of object.fields)
      printLine(`  ${fieldId}: ${values.map(show).join(', ')}`);
  }
  if (problem !== undefined) printLine(`\nObject it becomes: none, ${problem}`);
  printLine(`\nRecord: ${record ? describeRecord(record) : 'none; it was never sent'}`);
  if (record?.errorMessage) printLine(`  ${record.errorCode}: ${record.errorMessage}`);
  printLine(
    there
      ? `\nAt the service: number ${there.id}, ${there.active ? 'active' : 'inactive'}`
      : '\nAt the service: nothing with this external id',
  );
  for (const { fieldId, values } of there?.fields ?? [])
    printLine(`  ${fieldId}: ${values.map(show).join(', ')}`);
  if (object) {
    printLine(changes.length === 0 ? '\nA write would change nothing.' : '\nA write would change');
    for (const { field, old, new: next } of changes)
      printLine(
        `  ${field}: ${old.map(show).join(', ') || '(nothing)'} → ${next.map(show).join(', ') || '(nothing)'}`,
      );
  }
  if (batches.length > 0) printLine('\nRuns that touched it');
  for (const { runId, kind, batchId, operation, state, errorCode, at } of batches) {
    const what = operation === null ? state : `${operation} ${state}`;
    printLine(
      `  run ${runId} (${kind}), batch ${batchId}: ${what}${errorCode === null ? '' : `, ${errorCode}`}, ${formatTime(new Date(at))}`,
    );
  }
  printLine(`\nNext: ${nextOf(explained)}`);
}

function describeRecord(record: NonNullable<RecordExplained['record']>): string {
  const { status, externalId, syncedAt, attempts, inDoubt, runId } = record;
  return [
    status,
    ...(externalId === null ? [] : [`as ${externalId}`]),
    ...(syncedAt === null ? ['never accepted'] : [`accepted ${formatTime(syncedAt)}`]),
    ...(attempts > 0 ? [plural(attempts, 'attempt')] : []),
    ...(inDoubt ? ['an answer to a write is not known'] : []),
    ...(runId === null ? [] : [`last touched by run ${runId}`]),
  ].join(', ');
}

function nextOf({
  stream,
  key,
  row,
  record,
  problem,
  changes,
  isAccepted,
  waitingChanges,
}: RecordExplained): string {
  if (waitingChanges > 0) return 'it stands in the inbox: a worker looks at it';
  if (record && record.status !== 'synced' && record.status !== 'retired') {
    return nextStep({
      ...record,
      stream,
      localKey: key,
      waitsFor: toReference(record.waitsFor),
      parentStatus: null,
    });
  }
  if (!row)
    return record?.status === 'retired'
      ? 'nothing: it is retired'
      : `the next run decides: slotsync sync ${stream}`;
  if (problem !== undefined) return `the next run says so: slotsync sync ${stream}`;
  if (!record || record.status === 'retired') return `the next run creates it: slotsync sync ${stream}`;
  if (!isAccepted || record.inDoubt) return `the next run sends it: slotsync sync ${stream}`;
  return changes.length === 0
    ? 'nothing: the service holds what was accepted'
    : 'somebody changed it there; a run sends it again only when its row changes';
}

function toReference(waitsFor: string | null): { stream: string; localKey: string } | null {
  if (waitsFor === null) return null;
  const [stream = '', localKey = ''] = JSON.parse(waitsFor) as string[];
  return { stream, localKey };
}

function printBooking(explained: BookingExplained, timezone: string): void {
  const { key, here, reservations, cancellations, known, events, requests } = explained;
  const period = (begin: number | undefined, end: number | undefined) =>
    describePeriod(toText(begin), toText(end), timezone);
  printLine(`booking ${key}, times in ${timezone}\n`);
  printLine(
    here
      ? `Here: ${here.isCancelled ? 'cancelled, ' : ''}${period(here.begin, here.end)}, as ${here.externalId ?? 'nothing'}`
      : 'Here: no booking with this key',
  );
  for (const { stream, localKey } of here?.references ?? []) printLine(`  ${stream} '${localKey}'`);
  for (const { fieldId, values } of here?.fields ?? [])
    printLine(`  ${fieldId}: ${values.map(show).join(', ')}`);
  if (reservations.length === 0) printLine('There: no reservation');
  for (const { id, extId, begin, end, status, objects, fields } of reservations) {
    printLine(
      `There: number ${id}, ${extId ?? 'no external id'}, ${period(begin, end)}, ${status.join(', ')}`,
    );
    for (const { typeId, objectId } of objects) printLine(`  ${typeId} ${objectId}`);
    for (const { fieldId, values } of fields) printLine(`  ${fieldId}: ${values.map(show).join(', ')}`);
  }
  for (const { id, begin, end, cancelledAt, reservationId } of cancellations) {
    const when = cancelledAt === undefined ? '' : ` at ${formatTime(new Date(cancelledAt))}`;
    printLine(
      `There: cancellation ${id} of reservation ${reservationId ?? 'unknown'}${when}, ${period(begin, end)}`,
    );
  }
  printLine('\nAsked just now');
  for (const { asked, results } of requests) printLine(`  ${asked}: ${plural(results, 'result')}`);
  if (events.length > 0) printLine('\nWhat became of it, latest first');
  for (const { at, from, to, runId } of events)
    printLine(`  ${formatTime(new Date(at))}  ${from ?? 'not known'} → ${to ?? 'gone'}, run ${runId ?? '–'}`);
  if (!known) {
    printLine('\nNot judged yet: slotsync reconcile');
    return;
  }
  printLine(`\nVerdict of run ${known.runId ?? '–'}: ${known.verdict}, ${VERDICT_WORDS[known.verdict]}`);
  printLine(`  ${describeBooking(known, timezone)}`);
  printLine(`Next: ${nextOfVerdict(known.verdict)}`);
}

function nextOfVerdict(verdict: Verdict): string {
  switch (verdict) {
    case 'agrees':
    case 'agrees_cancelled':
    case 'restored_there':
    case 'not_compared':
      return 'nothing; every reconcile looks at it again';
    case 'unknown_here':
      return 'a person decides: add it here, or remove it there; then: slotsync reconcile';
    case 'missing_there':
    case 'cancelled_here':
      return 'a person corrects it there, since bookings are only read; then: slotsync reconcile';
    case 'differs':
    case 'cancelled_there':
      return 'a person decides which side is right; once both say the same: slotsync reconcile';
  }
}

const toText = (time: number | undefined) => (time === undefined ? null : new Date(time).toISOString());

function show(value: unknown): string {
  if (value === null || value === undefined) return '(nothing)';
  return typeof value === 'bigint' ? String(value) : JSON.stringify(value);
}
