// Records that are not in sync, by cause and one by one: why, what waits for them, and what happens next.
import { isGivenUpByCode, recordRemedy } from '../errors/error-catalogue.js';
import { formatDuration, formatNumber, plural, present, lines } from '../text/format.js';
import { causeOf, type Cause } from '../situation/causes.js';
import type { Chain, Holder } from '../situation/chains.js';
import type { FailureInChain, FailuresFacts, HeldRecord } from '../situation/failures.js';
import type { Failure } from '../state/records/read/list-failures.js';
import type { OfferedRename } from '../state/records/read/renamed-rows.js';
import type { DueStream, Knowledge } from '../state/records/read/unsent-records.js';
import {
  linkToRecord,
  linkToRun,
  joinTexts,
  text,
  withQuery,
  type Document,
  type Point,
  type Section,
  type Text,
} from './document.js';
import { commandOfCause, isRetryable, renameCommand, retryCommandOf } from '../situation/commands.js';
import { describeOpening } from '../sync/limits/hold-reason.js';
import { describeHeld } from './holds.js';
import { nameOfGate } from '../state/gates/gates.js';
import type { DueReason, GatedOperation } from '../state/schema.js';

/** `chain` and the others are undefined when they were not looked up. */
type FailedRecord = Pick<Failure, 'stream' | 'localKey' | 'errorCode'> &
  Partial<Pick<FailureInChain, 'status' | 'isInInbox' | 'isConfigured' | 'chain'>>;

/** Keys named in one line. */
const MOST_NAMED = 3;

/** Why records are not in sync: what was asked for, how many there are, and their causes. `most`: causes to show. */
export function failuresDocument(
  facts: FailuresFacts,
  { most, now, records = [] }: { most: number; now: Date; records?: readonly FailureInChain[] },
): Document {
  const { stream, causes, total } = facts;
  return {
    title: stream === undefined ? 'Failures' : `Failures of ${stream}`,
    lead: failuresLead(facts, describeCauses(facts, most)),
    sections: [
      causesSection(causes, { most, now }),
      {
        id: 'records',
        title:
          records.length < total
            ? `The first ${records.length} of ${formatNumber(total)} records`
            : 'Records',
        points: records.map(failureToPoint),
      },
    ],
  };
}

/** `ending`: of the sentence with their number. */
export function failuresLead(facts: FailuresFacts, ending: string): Text[] {
  const { stream, causes, known, total, all, formerObjects, renamed, drift } = facts;
  const held = describeHeldRecords(causes);
  return present<Text>(
    known.restored && (all > 0 || held !== undefined) && UNKNOWN_SINCE_BACKUP,
    (total > 0 || held === undefined) && describeNumber(facts, ending),
    held && `${held}.`,
    total + causes.length > 0 && describeUnsent(known, stream),
    total + causes.length > 0 && known.due.map(describeDue),
    describeFormerObjects(formerObjects, stream),
    renamed.map(describeRenamed),
    describeDriftLeft(drift),
  );
}

/** `, of 2 causes` */
function describeCauses({ causes, narrows }: FailuresFacts, most: number): string {
  const unsettled = causes.filter(({ status }) => status !== 'held').length;
  const left = most < causes.length ? ` (the first ${most} shown)` : '';
  return `, of ${plural(unsettled, 'cause')}${left}${narrows === '' ? '' : '; each is counted whole'}`;
}

function describeNumber({ stream, status, narrows, total, all, known }: FailuresFacts, ending: string): Text {
  if (status === 'held' && total === 0) return 'No record is held.';
  if (all === 0) return describeSettled(known, stream);
  if (narrows === '') return `${describeUnsettled(total, stream)}${ending}.`;
  if (total === 0) return `${describeUnsettled(all, stream)}, and none of them matches ${narrows}.`;
  return `${formatNumber(total)} of ${recordsOf(all, stream)} not in sync ${total === 1 ? 'matches' : 'match'} ${narrows}${ending}.`;
}

/** Causes, the first first, and how many are left out. */
export function causesSection(
  causes: readonly Cause[],
  { most = Infinity, now }: { most?: number; now: Date },
): Section {
  const more = causes.length - most;
  return {
    id: 'causes',
    title: 'Causes, those that most records wait for first',
    points: [
      ...causes.slice(0, most).map((cause) => causeToPoint(cause, now)),
      ...(more > 0 ? [{ text: plural(more, 'more cause'), commands: ['slotsync failures'] }] : []),
    ],
  };
}

/** A button sends its records again, where somebody may act. */
export function causeToPoint(cause: Cause, now: Date): Point {
  const { stream, status, code, records, keys } = cause;
  const links = keys.map((key): Text => linkToRecord(stream, key));
  const more = records > keys.length && ', …';
  return {
    status,
    // Several keys are named below it, each with its link.
    text: text`${headlineOf(records > 1 ? { ...cause, keys: [] } : cause)}, ${sinceOf(cause, now)}`,
    details: present<Text>(reasonOf(cause), records > 1 && text`${joinTexts(links, ', ')}${more}`),
    next: nextOfCause(cause),
    commands: isRetryable(cause)
      ? [
          {
            command: commandOfCause(cause),
            href: withQuery('/failures/retry', { stream, status, code }),
            label: 'Retry …',
            about: `${plural(records, 'record')} of ${stream}`,
          },
        ]
      : [],
  };
}

/** `since 2026-11-22 07:12 CET (3 h)`. */
export function sinceOf({ since, status, attempts }: Cause, now: Date): Text {
  const ago = formatDuration(Math.max(1, (now.getTime() - since.getTime()) / 1000));
  // Each attempt at a failed record notes its time anew.
  const tried = status === 'failed' && attempts > 1 && ` or earlier, ${plural(attempts, 'attempt')}`;
  return text`since ${{ minute: since }} (${ago})${tried}`;
}

/** `departments '3': given up (refused_400) → 36 records wait for it (35 of courses, 1 of rooms)`. */
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

/** A status in a sentence. Columns and JSON have its name. */
export const statusInWords = (status: Cause['status']): string =>
  (({ dead: 'given up', retired: 'deactivated' }) as Partial<Record<Cause['status'], string>>)[status] ??
  status;

function whatOf({ stream, status, code, records, keys, reason, runId, inInbox }: Cause): string {
  const [key = ''] = keys;
  const isOne = records === 1;
  const named = keys.slice(0, MOST_NAMED).map((name) => `'${name}'`);
  const more = records > named.length ? ', …' : '';
  const subject = isOne ? `${stream} '${key}'` : `${plural(records, 'record')} of ${stream}`;
  const examples = isOne || named.length === 0 ? '' : `: ${named.join(', ')}${more}`;
  const are = isOne ? 'is' : 'are';
  const why = code === null ? '' : ` (${code})`;
  switch (status) {
    case 'held':
      return `${describeHeld({ count: records, operation: (code === reason ? '*' : code) as GatedOperation, stream })} ${are} held in run ${runId}${named.length === 0 ? '' : `: ${named.join(', ')}${more}`}`;
    case 'absent':
      return isOne
        ? `${subject} has no record`
        : `${plural(records, 'key')} of ${stream} have no record${examples}`;
    case 'cycle':
      return `${subject} ${isOne ? 'refers to itself' : `are part of a circular reference${examples}`}`;
    case 'synced':
      return `${subject} ${isOne ? 'was' : 'were'} accepted meanwhile${examples}`;
    case 'failed':
      if (inInbox === records) return `${subject} ${are} in the inbox to be sent again${why}${examples}`;
      break;
    case 'dead':
    case 'deferred':
    case 'pending':
    case 'retired':
  }
  return `${subject}${isOne ? ':' : ''} ${statusInWords(status)}${why}${examples}`;
}

export function reasonOf({ status, message, messages, records, keys: [key] }: Cause): string | undefined {
  if (status === 'absent')
    return `${records === 1 ? 'its row is' : 'their rows are'} missing in the mirror, or no run has sent ${records === 1 ? 'it' : 'them'} yet`;
  if (status === 'retired') return `${records === 1 ? 'its row is' : 'their rows are'} gone from the mirror`;
  if (message === null) return undefined;
  if (messages <= 1) return message;
  return `${formatNumber(messages)} different reasons; that of '${key}': ${message}`;
}

export function nextOfCause(cause: Cause): string {
  const { stream, status, code, records } = cause;
  const command = commandOfCause(cause);
  const them = records === 1 ? 'it' : 'them';
  if (cause.isConfigured === false)
    return (
      `${stream} is not in the configuration, so nothing of it is sent or retired. Put the stream back, and the next run ` +
      `goes on with it. To delete what is stored of ${records === 1 ? 'the record' : 'one record'}, and leave its object at the service as it is: ${command}`
    );
  switch (status) {
    case 'held':
      return nextOfHeld(cause, command);
    case 'absent':
      return `Add the row, or correct those that refer to it, and the next run sends them. To see what is known of it: ${command}`;
    case 'cycle':
      return `Correct a row of the circular reference, so that it refers to none of the others. To see one: ${command}`;
    case 'synced':
      return `No action needed: the next sync sends what waits. To do it now: ${command}`;
    case 'retired':
      return `Restore the row, or correct those that refer to it, and the next run sends them. To see what is known of it: ${command}`;
    case 'pending':
      return `No action needed while a process works on the run: it sends ${them}. To see whether one does: ${command}`;
    case 'failed':
      // It was refused, and is sent once more: after an operator's retry, or because nothing was accepted beside it.
      if (cause.inInbox > 0) return describeSentAgain(cause);
      if (isGivenUpByCode(code))
        return `No action needed: the next sync sends ${them} again. To do it now: ${command}`;
      return recordRemedy(code, (option) => retryCommandOf(cause, option));
    case 'dead':
    case 'deferred':
      return recordRemedy(code, (option) => retryCommandOf(cause, option));
  }
}

function nextOfHeld({ stream, reason, facts, answer, approvable }: Cause, command: string): string {
  const opening = reason === null ? undefined : describeOpening({ stream, reason, facts });
  if (!approvable && opening !== undefined) return opening;
  if (answer === 'approved')
    return (
      (facts.waitsForWrites && opening) ||
      'No action needed: an operator approved it, and the next whole sync sends it'
    );
  if (answer === 'rejected')
    return `No action needed until its records change: an operator rejected it. To approve it nevertheless: ${command}`;
  return opening === undefined
    ? `If this is intended: ${command}`
    : `${opening}; or if this is intended: ${command}`;
}

function describeSentAgain(cause: Cause): string {
  const { inInbox, records } = cause;
  const command = commandOfCause(cause);
  if (inInbox === records)
    return `No action needed: ${records === 1 ? 'it is' : 'they are'} in the inbox, and a worker sends ${records === 1 ? 'it' : 'them'} again. To do it now: ${command}`;
  return `No action needed: a worker sends the ${formatNumber(inInbox)} of them that ${inInbox === 1 ? 'is' : 'are'} in the inbox again, and the next sync the others. To do it now: ${command}`;
}

/** A record that is not in sync: why, what it waits for up to the end of that chain, and what happens next. */
export function failureToPoint(failure: FailureInChain): Point {
  const { stream, localKey, externalId, status, errorMessage, chain } = failure;
  const known = externalId !== null && ` (${externalId})`;
  return {
    status,
    text: text`${linkToRecord(stream, localKey)}${known}: ${statusInWords(status)}, ${errorMessage ?? 'its batch is not finished'}`,
    details: present<Text>(chain && `It waits for ${describeChain(chain)}`),
    next: nextStep(failure),
  };
}

/** `rooms 'A', which waits for departments '3', which is given up (refused_400): the name is too long`. */
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
      return `is ${statusInWords(status)}`;
    case 'dead':
    case 'deferred':
      return `is ${statusInWords(status)}${why}`;
  }
}

/** A key that a gate keeps back. */
export const heldToPoint = ({ stream, localKey, runId, gate, reason }: HeldRecord): Point => ({
  status: 'held',
  text: text`${linkToRecord(stream, localKey)}: held in ${linkToRun(runId)} (${nameOfGate({ operation: gate, reason })})`,
});

/** `2 records are held for approval, 3 records are held by a freeze`: of these causes. */
export function describeHeldRecords(causes: readonly Cause[]): string | undefined {
  const describe = (isMeant: (cause: Cause) => boolean, by: string) => {
    const meant = causes.filter((cause) => cause.status === 'held' && isMeant(cause));
    const count = meant.reduce((sum, { records }) => sum + records, 0);
    return count > 0 && `${plural(count, 'record')} ${count === 1 ? 'is' : 'are'} held ${by}`;
  };
  const held = present(
    describe(({ approvable, answer }) => approvable && answer === null, 'for approval'),
    describe(({ answer }) => answer === 'approved', 'until their approved sync'),
    describe(({ answer, reason }) => answer === 'rejected' && reason !== 'frozen', 'after a rejection'),
    describe(({ reason }) => reason === 'frozen', 'by a freeze'),
    describe(
      ({ approvable, answer, reason }) => !approvable && answer === null && reason !== 'frozen',
      'until the cause ends',
    ),
  );
  return held.length === 0 ? undefined : held.join(', ');
}

/** `1 record of rooms is not in sync`. */
export function describeUnsettled(count: number, stream?: string): string {
  return `${recordsOf(count, stream)} ${count === 1 ? 'is' : 'are'} not in sync`;
}

export const recordsOf = (count: number, stream?: string) =>
  `${plural(count, 'record')}${stream === undefined ? '' : ` of ${stream}`}`;

const RESTORED_REMEDY = 'slotsync verify --repair';

const UNKNOWN_SINCE_BACKUP = `What was sent since the backup of the state is not known: ${RESTORED_REMEDY}`;

/** Only records that were planned and sent are in sync, where no record is out of sync, held or under way, and no stream is due. */
export function describeSettled(known: Knowledge, stream?: string): Text {
  const { hasRecords, isPlanned, held, drifting, due, restored } = known;
  if (restored) return UNKNOWN_SINCE_BACKUP;
  const of = stream === undefined ? '' : ` of ${stream}`;
  const name = stream === undefined ? '' : ` ${stream}`;
  const open = present<Text>(
    describeUnsent(known, stream),
    held > 0 &&
      `${recordsOf(held, stream)} ${held === 1 ? 'is' : 'are'} held: slotsync failures${name} --status held`,
    (hasRecords || isPlanned) && due.map(describeDue),
    describeDriftLeft(drifting),
  );
  if (open.length > 0) return joinTexts([!hasRecords && `No record${of} yet.`, ...open], ' ');
  if (hasRecords) return `Every record${of} is in sync as it was last read.`;
  return isPlanned
    ? `No record${of} yet: no run has sent one. What the last one did: slotsync runs`
    : `Nothing is known${of} yet: no run has planned ${stream === undefined ? 'anything' : 'it'}. To see what would be sent: slotsync plan${name}, then slotsync sync${name}`;
}

/** Records that an unfinished run has planned and not sent yet. */
export function describeUnsent({ underWay }: Knowledge, stream?: string): string | undefined {
  const [latest] = underWay;
  if (!latest) return undefined;
  const records = underWay.reduce((sum, one) => sum + one.records, 0);
  const run = underWay.length === 1 ? `run ${latest.runId}` : `${underWay.length} runs`;
  return `${recordsOf(records, stream)} in ${run} ${records === 1 ? 'is' : 'are'} not sent yet: slotsync runs ${latest.runId}`;
}

const describeDue = ({ stream, since, reason }: DueStream): Text =>
  text`${stream} is due for a whole sync since ${{ minute: since }}: ${DUE_IN_WORDS[reason]}.`;

/** Why a stream is due. */
export const DUE_IN_WORDS: Record<DueReason, string> = {
  new: 'it was never planned as a whole',
  schedule: 'its schedule says so',
  approved: 'an operator approved what was held',
  frozen: 'a freeze of it has ended',
  fresh_load: 'the mirror was loaded again',
  verified: 'a verify has compared everything since the restore',
  limited: 'a sync with --limit left changes out',
  busy: 'another run was at work on it',
  rows_gone: 'rows of it are gone from the mirror',
  cancelled: 'an operator cancelled its sync',
  failed: 'its last sync did not read all of it',
};

/** The next step of a record: a run sends it, or an operator acts, and with which command. */
export function nextStep(failure: FailedRecord): string {
  const { stream, localKey, errorCode, status = 'dead', isInInbox, isConfigured = null, chain } = failure;
  const one = { records: 1, waitingByStream: { [stream]: 1 } };
  if (!chain || isConfigured === false) {
    const own = { stream, status, code: errorCode, inInbox: isInInbox ? 1 : 0, isConfigured };
    return nextOfCause(causeOf({ ...one, ...own, keys: [localKey] }));
  }
  const { end } = chain;
  const ofEnd = { ...end, keys: [end.localKey], isConfigured: end.isConfigured ?? null };
  const next = nextOfCause(causeOf({ ...one, ...ofEnd }));
  if (end.status === 'synced' || end.status === 'cycle') return next;
  const endName = `${end.stream} '${end.localKey}'`;
  return `It is sent once ${endName} is accepted. For ${endName}: ${next.charAt(0).toLowerCase()}${next.slice(1)}`;
}

/** The next step of a record that a gate keeps back. */
export const nextOfHolder = (holder: Holder, localKey: string): string =>
  nextOfCause(causeOf({ ...holder, records: 1, keys: [localKey] }));

/** The objects that records had before their external ids changed, and the command. Empty without any. */
export function describeFormerObjects(count: number, stream?: string): string[] {
  if (count === 0) return [];
  const are = count === 1 ? 'is' : 'are';
  return [
    `${plural(count, 'former object')} of records whose external id changed ${are} not deactivated: ` +
      `slotsync retry ${stream ?? '--all'} --retire-former`,
  ];
}

/** A row that seems to have another key now, and the command. */
export function describeRenamed({ stream, from, to }: OfferedRename): string {
  return `${stream} '${from}' is gone, and '${to}' is new with the same values. To let the object follow the row, with its bookings: ${renameCommand(stream, from, to)}`;
}

/** A verify has seen it, and it was not repaired. Empty without any. */
export function describeDriftLeft(objects: number): string[] {
  if (objects === 0) return [];
  const seen = objects === 1 ? 'was seen to differ' : 'were seen to differ';
  return [`${plural(objects, 'object')} ${seen} at the service from what it accepted: slotsync verify`];
}
