// Records that are not in sync, as a document, as CSV rows and as JSON: grouped by cause, and one by one.
import {
  causesSection,
  commandOfCause,
  describeChain,
  headlineOf,
  nextOfCause,
  nextStep,
  ofStream,
  reasonOf,
  recordsOf,
  statusInWords,
} from './causes.js';
import {
  linkToRecord,
  linkToRun,
  joinTexts,
  section,
  text,
  type Document,
  type Point,
  type Text,
} from './document.js';
import { describeExceptions } from './exceptions.js';
import { counted, formatNumber, plural, present, sum } from '../text/format.js';
import type { Cause } from '../situation/causes.js';
import type { FailureInChain, FailuresFacts, HeldRecord } from '../situation/failures.js';
import type { OfferedRename } from '../state/records/gone-rows.js';
import type { DueStream, Knowledge } from '../state/records/read/unsent-records.js';
import { approveCommand, renameCommand } from '../situation/commands.js';
import { isApprovable, nameOfGate, type Gate } from '../state/gates/gates.js';
import type { DueReason } from '../state/schema.js';

/** Document about why records are not in sync. `most`: maximum number of causes. `records`: listed one by one. */
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
      section(
        'records',
        records.length < total ? `The first ${records.length} of ${formatNumber(total)} records` : 'Records',
        { points: records.map(failureToPoint) },
      ),
    ],
  };
}

/** Sentences above the sections. `ending` is appended to the sentence that has the number of records. */
export function failuresLead(facts: FailuresFacts, ending: string): Text[] {
  const { stream, causes, known, total, all, formerObjects, renamed, drift, exceptions } = facts;
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
    describeExceptions(sum(exceptions.map(({ count }) => count))),
  );
}

/** End of a sentence, such as ` (2 causes)`. */
function describeCauses({ causes, narrows }: FailuresFacts, most: number): string {
  const unsettled = causes.filter(({ status }) => status !== 'held').length;
  const left = most < causes.length ? `, the first ${most} shown` : '';
  return ` (${plural(unsettled, 'cause')}${left})${narrows === '' ? '' : '; each with all its records'}`;
}

function describeNumber({ stream, status, narrows, total, all, known }: FailuresFacts, ending: string): Text {
  if (status === 'held' && total === 0) return 'No record is held.';
  if (all === 0) return describeSettled(known, stream);
  if (narrows === '') return `${describeUnsettled(total, stream)}${ending}.`;
  if (total === 0) return `${describeUnsettled(all, stream)}, but none matches ${narrows}.`;
  return counted`${total} of ${recordsOf(all, stream)} not in sync {matches|match} ${narrows}${ending}.`;
}

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

export const heldToPoint = ({ stream, localKey, runId, gate, reason }: HeldRecord): Point => ({
  status: 'held',
  text: text`${linkToRecord(stream, localKey)}: held in ${linkToRun(runId)} (${nameOfGate({ operation: gate, reason })})`,
});

/** Example: `2 records are held for approval, 3 records are held by a freeze`. Undefined if no record is held. */
export function describeHeldRecords(causes: readonly Cause[]): string | undefined {
  const gates = causes.flatMap(({ gate }) => gate ?? []);
  const held = HELD.flatMap((why) => {
    const count = sum(gates.map((gate) => (whyHeld(gate) === why ? gate.count : 0)));
    return count > 0 ? counted`${count} record{|s} {is|are} held ${why}` : [];
  });
  return held.length === 0 ? undefined : held.join(', ');
}

const HELD = [
  'for approval',
  'until their approved sync',
  'after a rejection',
  'by a freeze',
  'until the cause ends',
] as const;

function whyHeld(gate: Gate): (typeof HELD)[number] {
  if (gate.reason === 'frozen') return 'by a freeze';
  if (gate.approval) return 'until their approved sync';
  if (gate.rejectedAt) return 'after a rejection';
  return isApprovable(gate) ? 'for approval' : 'until the cause ends';
}

export const describeUnsettled = (count: number, stream?: string): string =>
  counted`${count} record{|s}${ofStream(stream)} {is|are} not in sync`;

const RESTORED_REMEDY = 'slotsync verify --repair';

const UNKNOWN_SINCE_BACKUP = `The state was restored, so the changes sent since its backup are unknown: ${RESTORED_REMEDY}`;

/** Sentence for zero failures. Says "in sync" only if nothing is held, drifting, unsent or due for a sync. */
export function describeSettled(known: Knowledge, stream?: string): Text {
  const { hasRecords, isPlanned, held, drifting, due, restored } = known;
  if (restored) return UNKNOWN_SINCE_BACKUP;
  const of = ofStream(stream);
  const name = stream === undefined ? '' : ` ${stream}`;
  const open = present<Text>(
    describeUnsent(known, stream),
    held > 0 &&
      counted`${held} record{|s}${ofStream(stream)} {is|are} held: slotsync failures${name} --status held`,
    (hasRecords || isPlanned) && due.map(describeDue),
    describeDriftLeft(drifting),
  );
  if (open.length > 0) return joinTexts([!hasRecords && `No record${of} yet.`, ...open], ' ');
  if (hasRecords) return `Every record${of} is in sync as of the last plan.`;
  return isPlanned
    ? `No record${of} yet, because no run has sent any. To see the last run: slotsync runs`
    : `Nothing was planned${of} yet. To see what would be sent: slotsync plan${name}, then slotsync sync${name}`;
}

/** Sentence about records that unfinished runs have planned but not sent yet. Undefined if all were sent. */
export function describeUnsent({ underWay }: Knowledge, stream?: string): string | undefined {
  const [latest] = underWay;
  if (!latest) return undefined;
  const records = sum(underWay.map((one) => one.records));
  const run = underWay.length === 1 ? `run ${latest.runId}` : `${underWay.length} runs`;
  return counted`${records} record{|s}${ofStream(stream)} in ${run} {is|are} not sent yet: slotsync runs ${latest.runId}`;
}

const describeDue = ({ stream, since, reason }: DueStream): Text =>
  text`${stream} is due for a whole sync since ${{ minute: since }}: ${DUE_IN_WORDS[reason]}.`;

/** Reasons why a stream is due for a whole sync, as words of a sentence. */
export const DUE_IN_WORDS: Record<DueReason, string> = {
  new: 'it was never planned completely',
  schedule: 'its scheduled time has come',
  approved: 'an operator approved held changes',
  frozen: 'its freeze has ended',
  fresh_load: 'the mirror was loaded again',
  verified: 'a verify after the restore has compared everything',
  limited: 'a sync with --limit left changes out',
  busy: 'another run was syncing it',
  rows_gone: 'rows were deleted from the mirror',
  cancelled: 'an operator cancelled its sync',
  failed: 'its last sync could not read all rows',
};

/** Sentence about former objects of records whose external id changed. False for zero. */
const describeFormerObjects = (count: number, stream = '--all'): string | false =>
  count > 0 &&
  counted`${count} former object{|s} of records whose external id changed {is|are} not deactivated: slotsync retry ${stream} --retire-former`;

/** Describes a row that seems to have a new key now, and names the command that lets the object follow the row. */
export function describeRenamed({ stream, from, to }: OfferedRename): string {
  return `${stream} '${from}' was deleted, and '${to}' is new with the same values. To keep the object and its bookings: ${renameCommand(stream, from, to)}`;
}

/** Sentence about drifting objects that a verify found and no run has repaired yet. False for zero. */
const describeDriftLeft = (objects: number): string | false =>
  objects > 0 &&
  counted`${objects} object{|s} {differs|differ} at the service from what it accepted, as of the last verify: slotsync verify`;

export const CAUSE_COLUMNS =
  'stream status code records waiting waiting_by_stream since keys reasons reason next command run'.split(
    ' ',
  );

export function causeToCsv(cause: Cause) {
  const { stream, status, code, records, waiting, waitingByStream, since, keys, messages, gate } = cause;
  const byStream = Object.entries(waitingByStream).map(([name, count]) => `${name} ${count}`);
  return {
    stream,
    status,
    code,
    records,
    waiting,
    reason: reasonOf(cause),
    next: nextOfCause(cause),
    run: gate?.runId,
    waiting_by_stream: byStream.join('; '),
    since: since.toISOString(),
    keys: keys.join('; '),
    reasons: messages,
    command: commandOfCause(cause),
  };
}

export const causeToJson = (cause: Cause) => ({
  ...cause,
  headline: headlineOf(cause),
  next: nextOfCause(cause),
  command: commandOfCause(cause),
});

export const FAILURE_COLUMNS =
  'stream key external_id status code reason since attempts run waits_for cause_stream cause_key cause_status cause_code cause_reason next'.split(
    ' ',
  );

export function failureToCsv(failure: FailureInChain) {
  const { stream, localKey, externalId, status, errorCode, errorMessage, since, attempts, runId, chain } =
    failure;
  return {
    stream,
    status,
    attempts,
    key: localKey,
    external_id: externalId,
    code: errorCode,
    run: runId,
    reason: errorMessage,
    since: since.toISOString(),
    waits_for: chain && describeChain(chain),
    cause_stream: chain?.end.stream,
    cause_key: chain?.end.localKey,
    cause_status: chain?.end.status,
    cause_code: chain?.end.code,
    cause_reason: chain?.end.message,
    next: nextStep(failure),
  };
}

export function failureToJson(failure: FailureInChain) {
  return { ...failure, chain: failure.chain ?? null, next: nextStep(failure) };
}

export function heldToCsv(held: HeldRecord) {
  const { stream, localKey, gate, runId, reason, since, next } = heldToJson(held);
  return {
    stream,
    reason,
    next,
    key: localKey,
    status: 'held',
    code: gate,
    run: runId,
    since: since.toISOString(),
  };
}

/** JSON of one held key. `operation` is what would be sent. `gate` is the name of the gate that holds the key. */
export function heldToJson({ gate: operation, reason, sentence, ...held }: HeldRecord) {
  const gate = { ...held, operation, reason };
  const next = held.approvable ? approveCommand(gate) : sentence;
  return { ...held, gate: nameOfGate(gate), reason: sentence, next };
}
