// What `explain` prints: one record, or one booking, in the mirror, at the service and in the state, and what happens
// next.
import type { FoundObject } from '../destination/destination.js';
import type { Chain } from '../readings/chains.js';
import type { Stream } from '../streams/stream.js';
import type { BookingExplained } from '../sync/explain-booking.js';
import type { RecordExplained } from '../sync/explain-record.js';
import { describeBooking, describePeriod, nextOfVerdict, VERDICT_MEANINGS } from './bookings.js';
import { commandFor, describeChain, nextStep, retryCommand } from './failures.js';
import { formatTime, plural } from '../format.js';
import { lines } from './print.js';
import { describeChange, describeFields, formatValue } from './values.js';
import { DRIFT_MEANINGS, describeDriftFields } from './verify.js';

/** `chain`: what it waits for, up to the end. */
type Explained = RecordExplained & { chain?: Chain | undefined };

/** Times are shown in the time zone. */
export function describeRecordExplained(explained: Explained, timeZone: string): string[] {
  const { stream, key, row, object, problem, record, chain, there, changes, batches } = explained;
  return lines(
    `${stream} '${key}'\n`,
    row ? 'Row now' : 'Row now: none',
    Object.entries(row ?? {}).map(([column, value]) => `  ${column}: ${formatValue(value)}`),
    object && `\nObject it becomes: ${object.extId}, type ${object.typeId}`,
    object && describeFields(object.fields),
    problem !== undefined && `\nObject it becomes: none, ${problem}`,
    `\nRecord: ${record ? describeRecord(record, timeZone) : 'none; it was never sent'}`,
    record && describeDoubt(record, timeZone).map((line) => `  ${line}`),
    describeLink(explained, timeZone),
    !!record?.errorMessage && `  ${record.errorCode}: ${record.errorMessage}`,
    chain && `  it waits for ${describeChain(chain)}`,
    `\nAt the service: ${describeThere(explained)}`,
    describeFields(there?.fields ?? []),
    describeDrift(explained, timeZone),
    describeFormer(explained),
    object && (changes.length === 0 ? '\nA write would change nothing.' : '\nA write would change'),
    object && changes.map((change) => `  ${describeChange(change)}`),
    batches.length > 0 && '\nRuns that included it',
    batches.map(({ runId, kind, batchId, operation, state, errorCode, at }) => {
      const what = operation === null ? state : `${operation} ${state}`;
      const failure = errorCode === null ? '' : `, ${errorCode}`;
      return `  run ${runId} (${kind}), batch ${batchId}: ${what}${failure}, ${formatTime(new Date(at), timeZone)}`;
    }),
    `\nNext: ${nextOfRecord(explained)}`,
  );
}

function describeThere({ there, externalId }: RecordExplained): string {
  if (there) return `number ${there.id}, ${there.active ? 'active' : 'inactive'}`;
  if (externalId === undefined) return 'not looked up, because the row gives no external id';
  return `no object has the external id ${externalId}`;
}

function describeRecord(record: NonNullable<RecordExplained['record']>, timeZone: string): string {
  const { status, externalId, attempts, runId } = record;
  return lines(
    status,
    externalId !== null && `as ${externalId}`,
    describeAcceptance(record, timeZone),
    attempts > 0 && plural(attempts, 'attempt'),
    runId !== null && `last changed by run ${runId}`,
  ).join(', ');
}

function describeAcceptance(
  { syncedAt, status, objectHash }: NonNullable<RecordExplained['record']>,
  timeZone: string,
): string {
  if (syncedAt !== null) return `accepted ${formatTime(syncedAt, timeZone)}`;
  return objectHash !== null && status === 'synced' ? 'found equal, never written' : 'never accepted';
}

/** Why the object is looked at again, and when. */
function describeDoubt(record: NonNullable<RecordExplained['record']>, timeZone: string): string[] {
  const { status, inDoubt, checkAfter, refusedHash } = record;
  const isRefused = status === 'failed' && refusedHash !== null;
  const at = formatTime(checkAfter, timeZone);
  return lines(
    inDoubt &&
      'in doubt: the service may hold something other than what was accepted last; it is asked again',
    checkAfter !== null && isRefused && `the service refused it alone: it is sent once more after ${at}`,
    checkAfter !== null &&
      !isRefused &&
      `a write whose answer was lost may still be carried out: the service is asked again after ${at}`,
  );
}

/** Which object it is linked to, how that came about, and how it is undone. */
function describeLink({ stream, key, link }: RecordExplained, timeZone: string): string[] {
  if (!link) return [];
  const by = {
    match: link.fields === null ? 'by an operator’s match' : `by a match of ${link.fields.join(', ')}`,
    rename: 'by a rename',
  }[link.linkedBy];
  const name = link.assignsId
    ? `the object with number ${link.destinationId}, which gets the external id ${link.externalId}`
    : link.externalId;
  const undo = commandFor('slotsync match --unlink', stream, key);
  return [
    `\nLink: to ${name}, ${by}, ${formatTime(new Date(link.linkedAt), timeZone)}`,
    `  to undo it: ${undo}`,
  ];
}

/** What a verify has said of its object. What stands there now is shown beside it. */
function describeDrift({ stream, drift }: RecordExplained, timeZone: string): string[] {
  if (!drift) return [];
  const { kind, fields, seenAt } = drift;
  return [
    `\nDrift: it ${DRIFT_MEANINGS[kind]}, seen ${formatTime(new Date(seenAt), timeZone)}`,
    ...describeDriftFields(Object.entries(fields ?? {})),
    kind === 'stored_otherwise'
      ? `  a repair leaves it out until a value changes: correct the mapping, or the object at the service`
      : `  to repair it: slotsync verify ${stream} --repair`,
  ];
}

/** An object of the service that no row and no record of the stream stands for. */
export function describeUnowned({ name, type }: Stream, object: FoundObject): string[] {
  const { id, extId, typeId, active, fields } = object;
  const known = extId === undefined ? 'no external id' : `external id ${extId}`;
  return lines(
    `At the service: number ${id}, ${known}, type ${typeId}, ${active ? 'active' : 'inactive'}`,
    describeFields(fields),
    `\nNo row and no record of ${name} stands for it.`,
    typeId === type
      ? `Next: to link a row to it: slotsync match ${name}`
      : `Next: no action: ${name} has objects of type ${type}`,
  );
}

/** The objects it had before its external id changed. */
function describeFormer({ stream, key, former }: RecordExplained): string[] {
  const command = retryCommand({ stream, localKey: key }, '--retire-former');
  return former.flatMap(({ externalId, there, isUndecided }) => {
    const at = there ? `number ${there.id}, ${there.active ? 'active' : 'inactive'}` : 'not at the service';
    return lines(
      `\nFormer object ${externalId}: ${at}`,
      there?.active && `  to retire it: ${isUndecided ? command : `slotsync sync ${stream}`}`,
    );
  });
}

export function nextOfRecord(explained: Explained): string {
  const { stream, key, row, record, chain, there, problem, isWaiting, changes, isAccepted, waitingChanges } =
    explained;
  const [latest] = explained.batches;
  const held = latest?.state === 'held' ? latest : undefined;
  const nextRun = (does: string) => `the next run ${does}: slotsync sync ${stream}`;
  if (waitingChanges > 0) return 'it is in the inbox; a worker processes it';
  if (record && record.status !== 'synced' && record.status !== 'retired') {
    return nextStep({ ...record, stream, localKey: key, chain, isInInbox: false });
  }
  if (!row && record?.status === 'retired') return 'no action: it is retired';
  if (held && !isAccepted)
    return `it is held in run ${held.runId}; why, and what releases it: slotsync runs ${held.runId}`;
  if (!row) return nextRun('decides');
  if (isWaiting) return 'it is sent by the run after the record that it refers to is accepted: slotsync sync';
  if (problem !== undefined) return nextRun('reports the same');
  if (!record || record.status === 'retired') return nextRun('creates it');
  if (!isAccepted || record.inDoubt) return nextRun('sends it');
  if (changes.length === 0) return 'no action: the service holds what was accepted';
  if (explained.drift?.kind === 'stored_otherwise')
    return 'no action: the service stores something else than it accepts';
  const how = there ? 'it was changed at the service' : 'its object is missing at the service';
  return `${how}; it is sent again when its row changes, or by: slotsync verify ${stream} --repair`;
}

export function describeBookingExplained(explained: BookingExplained, timeZone: string): string[] {
  const { key, here, reservations, cancellations, known, events, requests } = explained;
  const period = (begin: number | undefined, end: number | undefined) =>
    describePeriod(toText(begin), toText(end), timeZone);
  return lines(
    `booking ${key}, times in ${timeZone}\n`,
    here
      ? `In the mirror: ${here.isCancelled ? 'cancelled, ' : ''}${period(here.begin, here.end)}, as ${here.externalId ?? 'nothing'}`
      : 'In the mirror: no booking with this key',
    here?.references.map(({ stream, localKey }) => `  ${stream} '${localKey}'`),
    describeFields(here?.fields ?? []),
    reservations.length === 0 && 'At the service: no reservation',
    reservations.flatMap(({ id, extId, begin, end, status, objects, fields }) => [
      `At the service: number ${id}, ${extId ?? 'no external id'}, ${period(begin, end)}, ${status.join(', ')}`,
      ...objects.map(({ typeId, objectId }) => `  ${typeId} ${objectId}`),
      ...describeFields(fields),
    ]),
    cancellations.map(({ id, begin, end, cancelledAt, reservationId }) => {
      const when = cancelledAt === undefined ? '' : ` at ${formatTime(new Date(cancelledAt), timeZone)}`;
      return `At the service: cancellation ${id} of reservation ${reservationId ?? 'unknown'}${when}, ${period(begin, end)}`;
    }),
    '\nRequests just now',
    requests.map(({ asked, results }) => `  ${asked}: ${plural(results, 'result')}`),
    events.length > 0 && '\nVerdicts, latest first',
    events.map(
      ({ at, from, to, runId }) =>
        `  ${formatTime(new Date(at), timeZone)}  ${from ?? 'not known'} → ${to ?? 'removed'}, run ${runId ?? '–'}`,
    ),
    known
      ? [
          `\nVerdict of run ${known.runId ?? '–'}: ${known.verdict}, ${VERDICT_MEANINGS[known.verdict]}`,
          `  ${describeBooking(known, timeZone)}`,
          `Next: ${nextOfVerdict(known.verdict)}`,
        ]
      : '\nNot compared yet: slotsync reconcile',
  );
}

const toText = (time: number | undefined) => (time === undefined ? null : new Date(time).toISOString());
