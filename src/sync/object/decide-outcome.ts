// Makes the outcome of a record after its batch: synced, deferred, failed or dead, with a code and a message. Two kinds
// of outcome are made elsewhere: `failBatch` of state/runs/finish-batch.ts for batches out of attempts, and `refuse` of
// plan/planned-batches.ts for rows that a plan cannot use.
import type { FoundObject, UpcomingReservation, PutResult } from '../../destination/destination.js';
import { messageWithDetail, type SlotsyncError } from '../../errors/errors.js';
import type { ClaimedRecord } from '../../state/records/claims.js';
import type { AcceptedCounts } from '../../state/schema.js';
import type { Link } from '../../state/records/links.js';
import {
  ANSWER_CONTRADICTS,
  EXTERNAL_ID_SHARED,
  EXTERNAL_ID_TAKEN,
  REFERENCE_CIRCLE,
  RETIREMENT_POSTPONED,
  RETIREMENT_REFUSED,
  STILL_RESERVED,
  type Outcome,
  type RecordKey,
} from '../../state/records/outcome-types.js';
import { EXTERNAL_ID_CHANGED, EXTERNAL_ID_CHANGED_THERE } from '../../state/records/record-state.js';
import type { DestinationObject } from '../../streams/destination-object.js';
import { takeLater, type KeptField } from '../../streams/field-rules.js';
import type { LeftOut, NeededReference } from '../../streams/map-row.js';
import type { Stream } from '../../streams/stream.js';
import { formatMinute } from '../../text/format.js';
import { describeChangedId, describeLinkedId, describeSharedId } from '../identity/changed-ids.js';
import { describeMissing, type Unmapped } from './render.js';

/** Notes a record's outcome, to be stored when its batch ends. Returns an empty list, for use in `flatMap`. */
export type NoteOutcome = (outcome: Outcome) => never[];

/** An object to write, with the facts to store in its record when the service has accepted it. */
export interface Write {
  record: ClaimedRecord;
  object: DestinationObject;
  sourceHash: string;
  /** Hash of the object that the mapping makes from the row. For a deactivation: hash of the inactive object. */
  objectHash: string;
  retires: boolean;
  /** New value of the record's `accepted_fields`, stored when the object is accepted. */
  acceptedFields?: string | null;
  /** Fields that the write does not change, because a field rule keeps the service's value. */
  kept?: readonly KeptField[];
  /** Time when the row ends, from a column of the row. */
  endsAt?: string | undefined;
  /** The object at the service before the write. Undefined if it was not read or does not exist. */
  standing?: DestinationObject | undefined;
  /** For a deactivation: true if the object's number at the service belongs to a record whose row exists. */
  hasNumberOfRow?: boolean;
  /** Link that determines the object, if any. Without a link, the stream's template determines it. */
  link?: Link | undefined;
  /** Reference that the write omits, because its record is not at the service yet. A later write adds it. */
  leftOut?: LeftOut | undefined;
  /**
   * Present type of an object that gets another type. If the service refuses, the object stays with stream `keptBy`.
   */
  former?: { typeId: string; keptBy: string | undefined } | undefined;
}

const DAY = 24 * 60 * 60 * 1000;
/** Seconds until a refused object is sent again, if the service accepted nothing. A second refusal is final. */
const SECOND_LOOK_SECONDS = 2 * 60;
const LOOKED_AT_AGAIN =
  'no other object of the request was accepted, so this one is sent once more after 2 minutes before it is given up';
/** Maximum number of reservations that an error message names. */
const NAMED = 3;

/** Outcome of an object that already has the right values at the service, so that nothing is sent. */
export const unchanged = (write: Write, destinationId?: string): Outcome =>
  acceptance(write, 'unchanged', destinationId);

/** Text for a refused write that also assigns an external id, because the service may be unable to assign it. */
const describeAssigned = ({ link, object: { extId } }: Write): string =>
  link?.assignsId
    ? `; this write assigns the external id '${extId}' to object ${link.destinationId ?? ''}: if the service cannot assign ids, enter the id there`
    : '';

/**
 * Makes the outcome from the service's result for one object of a PUT. Undefined if the object must be sent again (408,
 * 425, 429, 5xx). `isAnyAccepted`: whether the service accepted another object of the request. If not, the service may
 * be at fault. A refused object is then sent a second time some minutes later before it is given up.
 */
export function ofPut(write: Write, result: PutResult, isAnyAccepted: boolean): Outcome | undefined {
  const { record, sourceHash, retires, former } = write;
  if (result.accepted) {
    const operation = retires ? 'retire' : record.objectHash === null ? 'create' : 'update';
    return acceptance(write, 'synced', result.id, operation);
  }
  if (result.status === undefined) return contradicted(write, result.message);
  const { status } = result;
  if (!isFinal(status)) return undefined;
  const message = result.message + describeAssigned(write);
  if (former)
    return {
      ...externalIdTaken(write, former.typeId, `, and the service does not change the type: ${message}`),
      keptBy: former.keptBy,
    };
  const code = refusedCode(retires, status);
  const isSecond = record.refusedHash === sourceHash && record.errorCode === code;
  if (isAnyAccepted || (isSecond && !record.isCheckPending)) return deadWrite(write, code, message);
  return {
    ...failed(write, code, `${message}; ${LOOKED_AT_AGAIN}`),
    sourceHash,
    secondLookAfterSeconds: isSecond ? undefined : SECOND_LOOK_SECONDS,
    // The pending check of any other record is that of a lost write.
    inDoubt: record.isCheckPending && !awaitsSecondAnswer(record),
  };
}

/**
 * Outcome of an answer that contradicts the request. The object is read back next, and written only after the row
 * changes.
 */
export const contradicted = (write: Write, message: string): Outcome => ({
  ...failed(write, ANSWER_CONTRADICTS, message),
  sourceHash: write.sourceHash,
  inDoubt: true,
});

/** Returns true if the last answer for this row contradicted the request, and no operator ordered a retry. */
export const isContradicted = ({ record, sourceHash }: Write): boolean =>
  record.errorCode === ANSWER_CONTRADICTS && record.refusedHash === sourceHash;

/** `refusedHash` is the hash of the row that awaits a second answer, or of a dead record the hash of the row that is given up. */
const awaitsSecondAnswer = ({ status, refusedHash }: ClaimedRecord) =>
  status === 'failed' && refusedHash !== null;

/** Returns true if the status refuses the object. Other statuses are temporary errors of the service. */
const isFinal = (status: number) => status < 500 && status !== 408 && status !== 425 && status !== 429;

/**
 * Returns why an object was refused, if this counts towards the limit of refusals. A repeated refusal of a failed
 * record does not count. A refusal of a given-up record does: somebody has tried to correct the cause.
 */
export function newRefusal(
  { record, sourceHash, retires }: Write,
  result: PutResult,
): { code: string; message: string } | undefined {
  if (result.accepted || !(result.status === undefined || isFinal(result.status))) return undefined;
  if (awaitsSecondAnswer(record) && record.refusedHash === sourceHash) return undefined;
  const { status, message } = result;
  return { code: status === undefined ? ANSWER_CONTRADICTS : refusedCode(retires, status), message };
}

const refusedCode = (retires: boolean, status: number) =>
  `${retires ? RETIREMENT_REFUSED : 'refused'}_${status}`;

/** Outcome if the service failed on every request with the object. The object may be written nevertheless. */
export function failsOnObject(write: Write, code: string, error: unknown): Outcome {
  const message = `${messageWithDetail(error)}; the service failed each time this object was sent, and answered other objects`;
  return { ...failed(write, code, message), inDoubt: true, isUnanswered: true };
}

/** Outcome of a create excluded by `operations`. Deletes the record, unless a late write may create the object. */
export const createLeftOut = ({ record }: Write): Outcome =>
  record.isCheckPending ? skipped(record) : forgotten(record);

/** Outcome of an update excluded by `operations`. No row has the hash '0', so the row still differs. */
export function updateLeftOut(write: Write, destinationId: string): Outcome {
  const { acceptedFields } = write.record;
  const unsent = { sourceHash: '0', objectHash: '', acceptedFields, link: undefined, leftOut: undefined };
  return acceptance({ ...write, ...unsent }, 'unchanged', destinationId);
}

/** Builds the outcome as one object literal. Copying objects took 4 % of the time of a large sync. */
function acceptance(
  { record, object, sourceHash, objectHash, acceptedFields, retires, link, endsAt, leftOut, standing }: Write,
  outcome: 'synced' | 'unchanged',
  destinationId?: string,
  operation?: keyof AcceptedCounts,
): Outcome {
  const accepted = {
    localKey: record.localKey,
    externalId: object.extId,
    outcome,
    operation,
    destinationId,
    sourceHash,
    objectHash,
    acceptedFields,
    retired: retires,
    assigned: link?.assignsId,
    endsAt,
  };
  if (!leftOut) return accepted;
  const message = `${describeMissing(leftOut)}; the object was sent without this reference, and is sent again once the record is there`;
  const fields = `${acceptedFields ?? ''}${takeLater(leftOut.ruled, record, standing)}` || null;
  const waiting = { code: REFERENCE_CIRCLE, message, waitsFor: leftOut };
  return { ...accepted, acceptedFields: fields, outcome: 'deferred', ...waiting };
}

const named = ({ record, object }: Write) => ({ localKey: record.localKey, externalId: object.extId });

const failed = (write: Write, code: string, message: string) =>
  ({ ...named(write), outcome: 'failed', code, message }) as const;

const dead = (code: string, message: string, sourceHash: string) =>
  ({ outcome: 'dead', code, message, sourceHash }) as const;

const deadWrite = (write: Write, code: string, message: string) => ({
  ...named(write),
  ...dead(code, message, write.sourceHash),
});

export const mappingFailed = (
  { localKey }: ClaimedRecord,
  sourceHash: string,
  { problem, code }: Unmapped,
): Outcome => ({ localKey, ...dead(code, problem, sourceHash) });

export function externalIdChanged(
  { localKey, externalId }: ClaimedRecord,
  sourceHash: string,
  now: string,
): Outcome {
  const changedId = { former: externalId ?? '', now };
  return { localKey, ...dead(EXTERNAL_ID_CHANGED, describeChangedId(changedId), sourceHash), changedId };
}

/** Outcome if an object of another type (`typeId`) has the external id. `why`: text to append to the message. */
export function externalIdTaken(write: Write, typeId: string, why = '') {
  const message = `'${write.object.extId}' exists at the service as a ${typeId}, not a ${write.object.typeId}${why}`;
  return deadWrite(write, EXTERNAL_ID_TAKEN, message);
}

/** Outcome of an object that cannot be read from the service. A write without reading could overwrite values. */
export const objectUnreadable = (write: Write, error: SlotsyncError): Outcome =>
  failed(write, error.code, messageWithDetail(error));

/**
 * Outcome if somebody changed or removed the object's external id at the service. A second object must not be created.
 */
export function externalIdChangedThere(write: Write, { id, extId }: FoundObject): Outcome {
  const { localKey, externalId } = write.record;
  const now = extId === undefined ? 'no external id' : `the external id '${extId}'`;
  const message = `its object '${externalId}' (number ${id}) has ${now} at the service now`;
  const changedId = { former: externalId ?? '', now: extId ?? '' };
  return { localKey, ...dead(EXTERNAL_ID_CHANGED_THERE, message, write.sourceHash), changedId };
}

export const externalIdShared = (write: Write, other: RecordKey): Outcome =>
  failed(write, EXTERNAL_ID_SHARED, describeSharedId(write.object.extId, other));

/** Outcome of a row whose object is linked to another key, even if that key has no row. */
export function externalIdLinked(write: Write, link: RecordKey): Outcome {
  const message =
    `${describeLinkedId(write.object.extId, link)}; ` +
    'if the row has another key now: slotsync rename; if the link is wrong: slotsync match --unlink';
  return failed(write, EXTERNAL_ID_SHARED, message);
}

/** Outcome of a row whose object belongs to another record that an operator's exception protects. */
export function ownerExcepted(write: Write, { stream, localKey }: RecordKey): Outcome {
  const message = `the object '${write.object.extId}' is that of ${stream} '${localKey}', which an exception protects: slotsync exceptions`;
  return failed(write, EXTERNAL_ID_SHARED, message);
}

/** Outcome if several objects or rows match, so that an operator must choose. `why` names them. */
export const matchAmbiguous = (write: Write, why: string): Outcome =>
  deadWrite(write, 'match_ambiguous', why);

/** Outcome if the only matching object has no external id, and slotsync may not assign external ids. */
export const matchUnassignable = (write: Write, number: string): Outcome =>
  deadWrite(write, 'match_unassignable', `the object with number ${number} matches, but has no external id`);

/** Outcome if another record took the matching object before the link was made. The next run searches again. */
export function linkRefused({ record }: Write, reason: string): Outcome {
  const message = `an object matches, but the record cannot be linked to it: ${reason}`;
  return { localKey: record.localKey, outcome: 'failed', code: EXTERNAL_ID_SHARED, message };
}

/**
 * Outcome of a record whose linked object no longer exists, or has `otherId` as its external id now. A new object must
 * not replace the linked one.
 */
export function linkBroken(write: Write, link: Link, otherId: string | undefined): Outcome {
  const name = link.assignsId ? `number ${link.destinationId ?? 'unknown'}` : `'${link.externalId}'`;
  const why =
    otherId === undefined
      ? 'which is not at the service'
      : `which has the external id '${otherId}' now, not '${link.externalId}'`;
  return deadWrite(write, 'link_broken', `the record is linked to the object ${name}, ${why}`);
}

/**
 * Outcome of a record that waits for a referenced record, which is not at the service. After `waitDays`, it is `dead`.
 */
export function referenceMissing(
  { localKey, waitsSince }: ClaimedRecord,
  sourceHash: string,
  { extId, missing }: { extId: string; missing: NeededReference },
  { waitDays }: Stream,
  parent: Stream | undefined,
  now: number,
): Outcome {
  const waitsFor = { stream: missing.stream, localKey: missing.localKey };
  const shared = { localKey, externalId: extId, message: describeMissing(missing, parent), waitsFor };
  const waited = waitsSince ? now - waitsSince.getTime() : 0;
  return waited > waitDays * DAY
    ? { ...shared, outcome: 'dead', code: 'reference_never_came', sourceHash }
    : { ...shared, outcome: 'deferred', code: 'reference_missing' };
}

export function stillReserved(
  write: Write,
  reservations: readonly UpcomingReservation[],
  timeZone: string,
): Outcome {
  const next = reservations
    .slice(0, NAMED)
    .map(({ name, begin }) => `${name} at ${formatMinute(new Date(begin * 1000), timeZone)}`);
  const more = reservations.length - next.length;
  const message = `the row was deleted, but its object is booked: ${next.join(', ')}${more > 0 ? ` and ${more} more` : ''}`;
  return { ...named(write), outcome: 'deferred', code: STILL_RESERVED, message };
}

/** Outcome of a deactivation while rows of the stream are not written. One of these rows may have the object now. */
export function retirementPostponed(write: Write): Outcome {
  const message =
    'the row was deleted, but creates or updates of the stream are held, failed, given up or in doubt: slotsync failures';
  return { ...named(write), outcome: 'deferred', code: RETIREMENT_POSTPONED, message };
}

/** Outcome of a record if the mirror cannot read its row, or cannot tell which row has its object. */
export function unreadable({ localKey }: ClaimedRecord, error: SlotsyncError): Outcome {
  const message = messageWithDetail(error);
  const { hash } = error.facts;
  // The hash is set if the row is too large. The record is then given up until its row changes.
  if (typeof hash === 'string') return { localKey, ...dead(error.code, message, hash) };
  return { localKey, outcome: 'failed', code: error.code, message };
}

const unsettled = ({ localKey, externalId }: ClaimedRecord) => ({
  localKey,
  externalId: externalId ?? undefined,
});

/** Outcome of a record without a row, whose object needs no deactivation. The record is deleted. */
export const forgotten = (record: ClaimedRecord): Outcome => ({
  ...unsettled(record),
  outcome: 'forgotten',
});

/** Outcome of a record without a row that is left to the next plan, because a plan must choose deactivations. */
export const skipped = (record: ClaimedRecord): Outcome => ({ ...unsettled(record), outcome: 'skipped' });
