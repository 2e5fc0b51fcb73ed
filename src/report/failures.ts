// Why records are not in sync, one by one and by cause, and what happens next.
import { isGivenUpByCode, recordRemedy } from '../error-catalogue.js';
import { formatDuration, formatMinute, formatNumber, plural } from '../format.js';
import type { Cause } from '../readings/causes.js';
import type { Chain } from '../readings/chains.js';
import type { FailureInChain, HeldRecord } from '../readings/failures.js';
import type { Failure } from '../state/records/list-failures.js';
import type { Restored } from '../state/databases.js';
import type { RecordKey } from '../state/records/outcome-types.js';
import type { Knowledge } from '../state/records/unsent-records.js';
import { describeHeld, reasonWithoutCommand } from './holds.js';
import { lines } from './print.js';

/** `chain` and the others are undefined when they were not looked up. */
type FailedRecord = Pick<Failure, 'stream' | 'localKey' | 'errorCode'> &
  Partial<Pick<FailureInChain, 'status' | 'isInInbox' | 'isConfigured' | 'chain'>>;

/** A cause in words. */
export interface CauseInWords {
  /** `departments '3' is dead (refused_400) → 36 records wait for it (35 of courses, 1 of rooms)`. */
  headline: string;
  /** Why, as one of its records says it. */
  reason: string | undefined;
  /** `since 2026-11-22 07:12 CET (3 h)`. */
  since: string;
  /** What happens next, and what an operator does. */
  next: string;
}

/** Keys named in one line. */
const MOST_NAMED = 3;

/** Times are shown in the time zone. */
export function describeCause(
  cause: Cause,
  { timeZone, now }: { timeZone: string; now: Date },
): CauseInWords {
  const { status, since, attempts } = cause;
  const ago = formatDuration(Math.max(1, (now.getTime() - since.getTime()) / 1000));
  // Each attempt at a failed record notes its time anew.
  const tried = status === 'failed' && attempts > 1 ? ` or earlier, ${plural(attempts, 'attempt')}` : '';
  return {
    headline: headlineOf(cause),
    reason: reasonOf(cause),
    since: `since ${formatMinute(since, timeZone)} (${ago})${tried}`,
    next: nextOfCause(cause),
  };
}

/** The cause with its reason and what happens next. */
export function describeCauseWhole(cause: Cause, times: { timeZone: string; now: Date }): string {
  const { headline, reason, since, next } = describeCause(cause, times);
  return lines(`${headline}, ${since}`, reason && `  ${reason}`, `  → ${next}`).join('\n');
}

/** What it is, and how many records wait for it, in one line. */
export function headlineOf(cause: Cause): string {
  const { records, waiting, waitingByStream } = cause;
  if (waiting === 0) return whatOf(cause);
  const byStream = Object.entries(waitingByStream).toSorted(([x, a], [y, b]) => b - a || (x < y ? -1 : 1));
  const [[stream] = ['']] = byStream;
  const isOne = byStream.length === 1;
  const each = byStream.map(([name, count]) => `${formatNumber(count)} of ${name}`).join(', ');
  const who = `${plural(waiting, 'record')}${isOne ? ` of ${stream}` : ''}`;
  const wait = `${waiting === 1 ? 'waits' : 'wait'} for ${records === 1 ? 'it' : 'them'}`;
  return `${whatOf(cause)} → ${who} ${wait}${isOne ? '' : ` (${each})`}`;
}

function whatOf({ stream, status, code, records, keys, runId, inInbox }: Cause): string {
  const [key = ''] = keys;
  const isOne = records === 1;
  const named = keys.slice(0, MOST_NAMED).map((one) => `'${one}'`);
  const more = records > named.length ? ', …' : '';
  const subject = isOne ? `${stream} '${key}'` : `${plural(records, 'record')} of ${stream}`;
  const examples = isOne ? '' : `: ${named.join(', ')}${more}`;
  const are = isOne ? 'is' : 'are';
  const why = code === null ? '' : ` (${code})`;
  switch (status) {
    case 'held':
      return `${describeHeld({ count: records, operation: code as never, stream })} ${are} held in run ${runId}: ${named.join(', ')}${more}`;
    case 'absent':
      return isOne
        ? `${subject} has no record`
        : `${plural(records, 'key')} of ${stream} have no record${examples}`;
    case 'cycle':
      return `${subject} ${isOne ? 'refers to itself' : `are part of a circular reference${examples}`}`;
    case 'synced':
      return `${subject} ${isOne ? 'was' : 'were'} accepted meanwhile${examples}`;
    case 'failed':
      return inInbox === records
        ? `${subject} ${are} in the inbox to be sent again${why}${examples}`
        : `${subject} failed${why}${examples}`;
    case 'dead':
    case 'deferred':
    case 'pending':
    case 'retired':
      return `${subject} ${are} ${status}${why}${examples}`;
  }
}

function reasonOf({ status, message, messages, records, keys: [key] }: Cause): string | undefined {
  if (status === 'absent')
    return `${records === 1 ? 'its row is' : 'their rows are'} missing in the mirror, or no run has sent ${records === 1 ? 'it' : 'them'} yet`;
  if (status === 'retired') return `${records === 1 ? 'its row is' : 'their rows are'} gone from the mirror`;
  if (message === null) return undefined;
  if (status === 'held') return reasonWithoutCommand(message);
  if (messages <= 1) return message;
  return `${formatNumber(messages)} different reasons; that of '${key}': ${message}`;
}

/** What tells the command that helps. */
type NamedCause = Pick<
  Cause,
  | ('stream' | 'status' | 'code' | 'records' | 'keys' | 'runId' | 'approvable' | 'waitingByStream')
  | ('inInbox' | 'isConfigured')
>;

function nextOfCause(cause: NamedCause): string {
  const { stream, status, code, records, approvable } = cause;
  const command = commandOfCause(cause);
  if (cause.isConfigured === false)
    return (
      `${stream} is not in the configuration, so nothing of it is sent or retired. Put the stream back, and the next run ` +
      `goes on with it. To delete what is stored of ${records === 1 ? 'the record' : 'one record'}, and leave its object at the service as it is: ${command}`
    );
  switch (status) {
    case 'held':
      return approvable
        ? `If this is intended: ${command}`
        : 'No approval releases it: the reason says what does';
    case 'absent':
      return `Add the row, or correct those that refer to it, and the next run sends them. To see what is known of it: ${command}`;
    case 'cycle':
      return `Correct a row of the circular reference, so that it refers to none of the others. To see one: ${command}`;
    case 'synced':
      return `Action: none. What waits is sent automatically by the next run: ${command}`;
    case 'retired':
      return `Restore the row, or correct those that refer to it, and the next run sends them. To see what is known of it: ${command}`;
    case 'pending':
      return `Action: none while a process works on its run: ${records === 1 ? 'it is' : 'they are'} sent automatically then. Whether one does: ${command}`;
    case 'failed':
      // It was refused, and is sent once more: after an operator's retry, or because nothing was accepted beside it.
      if (cause.inInbox > 0) return describeSentAgain(cause);
      if (isGivenUpByCode(code))
        return `Action: none. ${records === 1 ? 'It is' : 'They are'} sent again automatically by the next run: ${command}`;
      return recordRemedy(code, (option) => retryCommandOf(cause, option));
    case 'dead':
    case 'deferred':
      return recordRemedy(code, (option) => retryCommandOf(cause, option));
  }
}

function describeSentAgain(cause: NamedCause): string {
  const { inInbox, records } = cause;
  const isAll = inInbox === records;
  const which = isAll
    ? records === 1
      ? 'It is'
      : 'They are'
    : `${formatNumber(inInbox)} of them ${inInbox === 1 ? 'is' : 'are'}`;
  const others = isAll ? '' : ' and the others';
  return `Action: none. ${which} in the inbox: a worker sends ${records === 1 ? 'it' : 'them'} again automatically. To send ${records === 1 ? 'it' : `them${others}`} now: ${commandOfCause(cause)}`;
}

/** Nothing happens to it until an operator acts. */
export const needsOperator = ({ status, code, isConfigured }: Cause) =>
  isConfigured === false ||
  ['dead', 'absent', 'cycle'].includes(status) ||
  (status === 'failed' && code === 'external_id_shared');

/** The command that helps, as a shell takes it. */
export function commandOfCause(cause: NamedCause): string {
  const {
    stream,
    status,
    code,
    keys: [key = ''],
    runId,
    waitingByStream,
    isConfigured,
  } = cause;
  if (isConfigured === false) return commandFor('slotsync forget', stream, key);
  switch (status) {
    case 'held':
      return approveCommand({ runId, stream, operation: code });
    case 'absent':
    case 'cycle':
    case 'retired':
      return commandFor('slotsync explain', stream, key);
    case 'synced':
      return ['slotsync sync', ...Object.keys(waitingByStream)].join(' ');
    case 'pending':
      return 'slotsync status';
    case 'failed':
    case 'deferred':
      return `slotsync sync ${stream}`;
    case 'dead':
      return retryCommandOf(cause);
  }
}

/** The command that approves one part of what a run holds. */
export function approveCommand({ runId, stream, operation }: HeldPart): string {
  return `slotsync approve ${runId} --stream ${stream} --operation ${operation}`;
}

interface HeldPart {
  runId: number | null;
  stream: string;
  operation: string | null;
}

/** An operator's retry sends its records again. */
export const isRetryable = ({ status, isConfigured }: Cause) =>
  isConfigured !== false && (status === 'dead' || status === 'failed');

/** The command that sends the records of a cause again, all of them and no others. */
function retryCommandOf(
  { stream, status, code, records, keys: [localKey = ''] }: NamedCause,
  option?: string,
): string {
  if (records === 1) return retryCommand({ stream, localKey }, option);
  // A retry with --retire-former chooses its records itself.
  const choice = option ?? lines(`--status ${status}`, code !== null && `--code ${code}`).join(' ');
  return `slotsync retry ${stream} ${choice}`;
}

/** One failure: which record, why, what it waits for up to the end of that chain, and what happens next. */
export function describeFailure(failure: FailureInChain): string {
  const known = failure.externalId === null ? '' : ` (${failure.externalId})`;
  const { chain } = failure;
  return lines(
    `${failure.stream} '${failure.localKey}'${known}: ${failure.status}, ${failure.errorMessage ?? 'its batch is not finished'}`,
    chain && `  It waits for ${describeChain(chain)}`,
    `  → ${nextStep(failure)}`,
  ).join('\n');
}

/** `rooms 'A', which waits for departments '3', which is dead (refused_400): the name is too long`. */
export function describeChain({ via, between, end }: Chain): string {
  const more = between - via.length;
  const on = via.map(({ stream, localKey }) => `${stream} '${localKey}', which waits for `).join('');
  const through = more > 0 ? `${formatNumber(more)} more, the last of which waits for ` : '';
  return `${on}${through}${end.stream} '${end.localKey}', which ${describeEnd(end)}`;
}

function describeEnd({ status, code, message, runId }: Chain['end']): string {
  const why = lines(code !== null && ` (${code})`, message !== null && `: ${message}`).join('');
  switch (status) {
    case 'held':
      return `is held in run ${runId} (${code})`;
    case 'absent':
      return 'has no record: its row is missing in the mirror, or no run has sent it yet';
    case 'cycle':
      return 'is part of a circular reference';
    case 'synced':
      return 'was accepted meanwhile';
    case 'failed':
      return `failed${why}`;
    case 'retired':
    case 'pending':
      return `is ${status}`;
    case 'dead':
    case 'deferred':
      return `is ${status}${why}`;
  }
}

/** One record that waits for an operator's approval. */
export function describeHeldRecord({ stream, localKey, runId, operation }: HeldRecord): string {
  return `${stream} '${localKey}': held in run ${runId} (${operation})`;
}

/** `2 records of rooms are held for approval`: the records of these causes that no approval was given for. */
export function describeAwaitingApproval(causes: readonly Cause[]): string | undefined {
  const count = causes.reduce((sum, { status, records }) => sum + (status === 'held' ? records : 0), 0);
  return count === 0
    ? undefined
    : `${plural(count, 'record')} ${count === 1 ? 'is' : 'are'} held for approval`;
}

/** `1 record of rooms is not in sync`. */
export function describeUnsettled(count: number, stream?: string): string {
  return `${recordsOf(count, stream)} ${count === 1 ? 'is' : 'are'} not in sync`;
}

export const recordsOf = (count: number, stream?: string) =>
  `${plural(count, 'record')}${stream === undefined ? '' : ` of ${stream}`}`;

const RESTORED_REMEDY = 'slotsync verify --repair';

/** Of a state that was restored: what that means, and the command. */
export function describeRestored({ since, why }: Restored, timeZone: string): string {
  const noticed = since === null ? '' : `, noticed ${formatMinute(since, timeZone)}`;
  return `The state ${why}${noticed}. What was sent since its backup is not known, so no run counts as succeeded. To compare and send again what differs: ${RESTORED_REMEDY}`;
}

/** What is known where no record is out of sync and none is held: only what was planned and sent is in sync. */
export function describeSettled(known: Knowledge, stream?: string): string {
  const { hasRecords, isPlanned, restored } = known;
  if (restored) return `What was sent since the backup of the state is not known: ${RESTORED_REMEDY}`;
  const of = stream === undefined ? '' : ` of ${stream}`;
  const unsent = describeUnsent(known, stream);
  if (unsent !== undefined) return hasRecords ? unsent : `No record${of} yet. ${unsent}`;
  if (hasRecords) return `Every record${of} is in sync as it was last read.`;
  const name = stream === undefined ? '' : ` ${stream}`;
  return isPlanned
    ? `No record${of} yet: no run has sent one. What the last one did: slotsync runs`
    : `Nothing is known${of} yet: no run has planned ${stream === undefined ? 'anything' : 'it'}. To see what would be sent: slotsync plan${name}, then slotsync sync${name}`;
}

/** Records that a run has planned and not sent, whatever their records say: those say what was accepted last. */
export function describeUnsent({ unsent }: Knowledge, stream?: string): string | undefined {
  const [latest] = unsent;
  if (!latest) return undefined;
  const records = unsent.reduce((sum, one) => sum + one.records, 0);
  const run = unsent.length === 1 ? `run ${latest.runId}` : `${unsent.length} runs`;
  return latest.isUnderWay
    ? `${recordsOf(records, stream)} in ${run} ${records === 1 ? 'is' : 'are'} not sent yet: slotsync runs ${latest.runId}`
    : `${recordsOf(records, stream)} in ${run} ${records === 1 ? 'was' : 'were'} not sent, and not planned again since: slotsync plan${stream === undefined ? '' : ` ${stream}`}`;
}

/** What happens next to a record: it is sent automatically, or an operator acts, and with which command. */
export function nextStep(failure: FailedRecord): string {
  const { stream, localKey, errorCode, status = 'dead', isInInbox, isConfigured = null, chain } = failure;
  const one = { records: 1, runId: null, approvable: true, waitingByStream: { [stream]: 1 } };
  if (!chain || isConfigured === false) {
    const inInbox = isInInbox ? 1 : 0;
    return nextOfCause({ ...one, stream, status, code: errorCode, keys: [localKey], inInbox, isConfigured });
  }
  const { end } = chain;
  const next = nextOfCause({
    ...one,
    ...end,
    isConfigured: end.isConfigured ?? null,
    keys: [end.localKey],
    inInbox: 0,
  });
  if (end.status === 'synced' || end.status === 'cycle') return next;
  return `It is sent automatically once ${end.stream} '${end.localKey}' is accepted. Of that one: ${next}`;
}

/** The command that sends a record again, as a shell takes it. */
export function retryCommand({ stream, localKey }: RecordKey, option?: string): string {
  return commandFor('slotsync retry', stream, localKey, option);
}

/** A command about one record, as a shell takes it. A key that begins with - would be read as an option. */
export function commandFor(command: string, stream: string, localKey: string, option?: string): string {
  const key = quote(localKey);
  const words = localKey.startsWith('-') ? [option, stream, '--', key] : [stream, key, option];
  return lines(command, ...words).join(' ');
}

/** What to do about objects that records had before their external ids changed. Nothing when there are none. */
export function describeFormerObjects(count: number, stream?: string): string[] {
  if (count === 0) return [];
  const are = count === 1 ? 'is' : 'are';
  return [
    `${plural(count, 'former object')} of records whose external id changed ${are} not retired: ` +
      `slotsync retry ${stream ?? '--all'} --retire-former`,
  ];
}

export function quote(key: string): string {
  return /^[\w.@-]+$/.test(key) ? key : `'${key.replaceAll("'", `'\\''`)}'`;
}
