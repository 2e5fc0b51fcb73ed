// Makes the outcome of a record in a batch, with its code and message: synced, deferred, failed or dead. Two kinds of
// outcome are made elsewhere: `failBatch` of state/runs/finish-batch.ts fails the records of a batch that has used up
// its attempts, and `refuse` of plan/planned-batches.ts settles rows that a plan cannot use.
import type { FoundObject, UpcomingReservation, PutResult } from '../../destination/destination.js';
import { messageWithDetail, type SlotsyncError } from '../../errors/errors.js';
import type { ClaimedRecord } from '../../state/records/claim-records.js';
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
} from '../../state/records/outcome-types.js';
import { EXTERNAL_ID_CHANGED, EXTERNAL_ID_CHANGED_THERE } from '../../state/records/record-state.js';
import type { DestinationObject } from '../../streams/destination-object.js';
import { takeLater, type KeptField } from '../../streams/field-rules.js';
import type { LeftOut, NeededReference } from '../../streams/map-row.js';
import type { Stream } from '../../streams/stream.js';
import { formatMinute } from '../../text/format.js';
import { describeChangedId, describeLinkedId, describeSharedId } from '../identity/changed-ids.js';
import { describeMissing, type Unmapped } from './render.js';

/** Notes the outcome that settles a record when its batch ends. Returns an empty list, for use in `flatMap`. */
export type NoteOutcome = (outcome: Outcome) => never[];

/** An object to write, with the facts that its record gets when the service accepts the object. */
export interface Write {
  record: ClaimedRecord;
  object: DestinationObject;
  sourceHash: string;
  /** Hash of the object as the mapping renders it. For a deactivation: hash of the object as it is written. */
  objectHash: string;
  retires: boolean;
  /** Value of `accepted_fields` that the record gets when the object is accepted; see `acceptedText`. */
  acceptedFields?: string | null;
  /** Fields whose values at the service the write leaves unchanged. */
  kept?: readonly KeptField[];
  /** Time when the row's validity ends, as `endOf` returns it. */
  endsAt?: string | undefined;
  /** The object as read from the service before the write. Undefined if it was not read, or does not exist. */
  standing?: DestinationObject | undefined;
  /** True if another record with an existing row has the service's number of the object to be deactivated. */
  hasNumberOfRow?: boolean;
  /** Link of the record to the object. The link takes precedence over the external id template. */
  link?: Link | undefined;
  /** Reference without which the object is sent. It is sent again when the referenced record has arrived. */
  leftOut?: LeftOut | undefined;
  /** Present type of the object, which the write changes. If the service refuses, stream `keptBy` keeps the object. */
  former?: { typeId: string; keptBy: string | undefined } | undefined;
}

const DAY = 24 * 60 * 60 * 1000;
/** Seconds between a refusal while the service accepted nothing, and the second attempt, whose refusal is final. */
const SECOND_LOOK_SECONDS = 2 * 60;
const LOOKED_AT_AGAIN =
  'nothing was accepted beside it, so it is sent once more after 2 minutes before it is given up';
/** Maximum number of reservations that a message names. */
const NAMED = 3;

/** Makes the outcome of an object that the service already holds unchanged, so nothing is sent. */
export function unchanged(write: Write, destinationId?: string): Outcome {
  return acceptance(write, 'unchanged', destinationId);
}

/**
 * Makes the outcome from the service's result for one object of a PUT. Returns undefined if the result is not final
 * (408, 425, 429, 5xx), so the object is sent again. If no object was accepted (`isAnyAccepted` false), the service may
 * be at fault. So a refused object is sent a second time some minutes later before it is given up.
 */
export function ofPut(write: Write, result: PutResult, isAnyAccepted: boolean): Outcome | undefined {
  const { record, sourceHash, retires, former } = write;
  if (result.accepted) {
    const operation = retires ? 'retire' : record.objectHash === null ? 'create' : 'update';
    return acceptance(write, 'synced', result.id, operation);
  }
  if (result.status === undefined) return contradicted(write, result.message);
  const { status, message } = result;
  if (!isFinal(status)) return undefined;
  if (former)
    return { ...externalIdTaken(write, former.typeId, `, and stays one: ${message}`), keptBy: former.keptBy };
  const code = refusedCode(retires, status);
  const isSecond = record.refusedHash === sourceHash && record.errorCode === code;
  if (isAnyAccepted || (isSecond && !record.isCheckPending))
    return { ...named(write), ...dead(code, message, sourceHash) };
  return {
    ...named(write),
    outcome: 'failed',
    code,
    message: `${message}; ${LOOKED_AT_AGAIN}`,
    sourceHash,
    secondLookAfterSeconds: isSecond ? undefined : SECOND_LOOK_SECONDS,
    // A pending check belongs to a lost write, unless the record failed with a refusal and awaits its second attempt.
    inDoubt: record.isCheckPending && !(record.status === 'failed' && record.refusedHash !== null),
  };
}

/**
 * Fails a record if the result contradicts the request. Its object is read back next, and written only after a row
 * change.
 */
export function contradicted(write: Write, message: string): Outcome {
  const { sourceHash } = write;
  return { ...named(write), outcome: 'failed', code: ANSWER_CONTRADICTS, message, sourceHash, inDoubt: true };
}

/** True if the last result for this row contradicted the request, and no operator has ordered a retry. */
export const isContradicted = ({ record, sourceHash }: Write): boolean =>
  record.errorCode === ANSWER_CONTRADICTS && record.refusedHash === sourceHash;

/** True if the status is a verdict on the object. Other statuses are temporary errors of the service. */
const isFinal = (status: number) => status < 500 && status !== 408 && status !== 425 && status !== 429;

/**
 * Returns the reason of a refusal that counts towards the limit of refusals. A repeated refusal of a failed record does
 * not count. A refusal of a given-up record does: somebody has tried to correct the cause.
 */
export function newRefusal(
  { record, sourceHash, retires }: Write,
  result: PutResult,
): { code: string; message: string } | undefined {
  if (result.accepted || !(result.status === undefined || isFinal(result.status))) return undefined;
  if (record.refusedHash === sourceHash && record.status === 'failed') return undefined;
  const { status, message } = result;
  return { code: status === undefined ? ANSWER_CONTRADICTS : refusedCode(retires, status), message };
}

const refusedCode = (retires: boolean, status: number) =>
  `${retires ? RETIREMENT_REFUSED : 'refused'}_${status}`;

/** Fails a record because the service failed on every request with its object. The object may have been written. */
export function failsOnObject(write: Write, code: string, error: unknown): Outcome {
  const message = `${messageWithDetail(error)}; it failed each time this object was sent, and others were answered`;
  return { ...named(write), outcome: 'failed', code, message, inDoubt: true, isUnanswered: true };
}

/** Ends a create that `operations` exclude. The record is deleted, unless a late write may still create its object. */
export const createLeftOut = ({ record }: Write): Outcome =>
  record.isCheckPending ? skipped(record) : forgotten(record);

/** Ends an update that `operations` exclude: the object stays unchanged. The hash '0' equals no row's hash. */
export function updateLeftOut(write: Write, destinationId: string): Outcome {
  const { acceptedFields } = write.record;
  const found = {
    ...write,
    sourceHash: '0',
    objectHash: '',
    acceptedFields,
    link: undefined,
    leftOut: undefined,
  };
  return acceptance(found, 'unchanged', destinationId);
}

/** Builds the outcome as one object literal, because copying objects took 4 % of the time of a load. */
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
  const message = `${describeMissing(leftOut)}; the object is there without it, and is sent again then`;
  const fields = `${acceptedFields ?? ''}${takeLater(leftOut.ruled, record, standing)}` || null;
  const waiting = { code: REFERENCE_CIRCLE, message, waitsFor: leftOut };
  return { ...accepted, acceptedFields: fields, outcome: 'deferred', ...waiting };
}

const named = ({ record, object }: Write) => ({ localKey: record.localKey, externalId: object.extId });

const dead = (code: string, message: string, sourceHash: string) =>
  ({ outcome: 'dead', code, message, sourceHash }) as const;

export function mappingFailed(
  { localKey }: ClaimedRecord,
  sourceHash: string,
  { problem, code }: Unmapped,
): Outcome {
  return { localKey, ...dead(code, problem, sourceHash) };
}

export function externalIdChanged(
  { localKey }: ClaimedRecord,
  sourceHash: string,
  changedId: { former: string; now: string },
): Outcome {
  return { localKey, ...dead(EXTERNAL_ID_CHANGED, describeChangedId(changedId), sourceHash), changedId };
}

/**
 * Makes a record `dead` because an object of type `typeId` has its external id. `why`: text appended to the message.
 */
export function externalIdTaken(write: Write, typeId: string, why = '') {
  const message = `'${write.object.extId}' exists at the service as a ${typeId}, not a ${write.object.typeId}${why}`;
  return { ...named(write), ...dead(EXTERNAL_ID_TAKEN, message, write.sourceHash) };
}

/** Fails a record whose object cannot be read from the service. A write without reading could overwrite values. */
export function objectUnreadable(write: Write, error: SlotsyncError): Outcome {
  return { ...named(write), outcome: 'failed', code: error.code, message: messageWithDetail(error) };
}

/**
 * Makes a record `dead` because its object has another external id now, or none. A second object must not be created.
 */
export function externalIdChangedThere(write: Write, { id, extId }: FoundObject): Outcome {
  const { localKey, externalId } = write.record;
  const now = extId === undefined ? 'no external id' : `the external id '${extId}'`;
  const message = `its object '${externalId}' (number ${id}) has ${now} at the service now`;
  const changedId = { former: externalId ?? '', now: extId ?? '' };
  return { localKey, ...dead(EXTERNAL_ID_CHANGED_THERE, message, write.sourceHash), changedId };
}

export function externalIdShared(write: Write, other: { stream: string; localKey: string }): Outcome {
  const message = describeSharedId(write.object.extId, other);
  return { ...named(write), outcome: 'failed', code: EXTERNAL_ID_SHARED, message };
}

/** Fails a record whose object is linked to another key, even if that key has no row. */
export function externalIdLinked(write: Write, link: { stream: string; localKey: string }): Outcome {
  const message =
    `${describeLinkedId(write.object.extId, link)}; ` +
    'if the row has another key now: slotsync rename; if the link is wrong: slotsync match --unlink';
  return { ...named(write), outcome: 'failed', code: EXTERNAL_ID_SHARED, message };
}

/** Fails a record whose object belongs to another record that an exception protects from writes. */
export function ownerExcepted(
  write: Write,
  { stream, localKey }: { stream: string; localKey: string },
): Outcome {
  const message = `the object '${write.object.extId}' is that of ${stream} '${localKey}', which an exception leaves as it is: slotsync exceptions`;
  return { ...named(write), outcome: 'failed', code: EXTERNAL_ID_SHARED, message };
}

/** Makes a record `dead` because several objects or rows match, so an operator must choose. `why` names them. */
export function matchAmbiguous(write: Write, why: string): Outcome {
  return { ...named(write), ...dead('match_ambiguous', why, write.sourceHash) };
}

/** Makes a record `dead` because its only match has no external id, and slotsync may not assign external ids. */
export function matchUnassignable(write: Write, number: string): Outcome {
  const message = `the object with number ${number} matches, but has no external id`;
  return { ...named(write), ...dead('match_unassignable', message, write.sourceHash) };
}

/** Fails a record whose matching object another record got before it was linked. The next run matches again. */
export function linkRefused({ record }: Write, reason: string): Outcome {
  const message = `an object matches, but the record cannot be linked to it: ${reason}`;
  return { localKey: record.localKey, outcome: 'failed', code: EXTERNAL_ID_SHARED, message };
}

/** Makes a record `dead` because its linked object is not at the service. A new object must not replace it. */
export function linkBroken(write: Write, link: Link): Outcome {
  const name = link.assignsId ? `number ${link.destinationId ?? 'unknown'}` : `'${link.externalId}'`;
  const message = `it is linked to the object ${name}, which is not at the service`;
  return { ...named(write), ...dead('link_broken', message, write.sourceHash) };
}

/**
 * Defers a record while its reference is not at the service. After `waitDays`, the record is `dead`. `now`:
 * milliseconds.
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
  const message = `its row is gone, but it is booked: ${next.join(', ')}${more > 0 ? ` and ${more} more` : ''}`;
  return { ...named(write), outcome: 'deferred', code: STILL_RESERVED, message };
}

/** Defers a deactivation: a row of the stream that is not written yet may have the object now. */
export function retirementPostponed(write: Write): Outcome {
  const message =
    'its row is gone, but creates or updates of its stream are held, failed, given up or in doubt: slotsync failures';
  return { ...named(write), outcome: 'deferred', code: RETIREMENT_POSTPONED, message };
}

/** Fails a record because the mirror cannot return its row, or find the row that has its object. */
export function unreadable({ localKey }: ClaimedRecord, error: SlotsyncError): Outcome {
  const message = messageWithDetail(error);
  const { hash } = error.facts;
  // A row that is too large stays too large until the row changes, so the record is given up with the row's hash.
  if (typeof hash === 'string') return { localKey, ...dead(error.code, message, hash) };
  return { localKey, outcome: 'failed', code: error.code, message };
}

/** Deletes a record whose row was deleted and whose object needs no further action. */
export function forgotten({ localKey, externalId }: ClaimedRecord): Outcome {
  return { localKey, externalId: externalId ?? undefined, outcome: 'forgotten' };
}

/** Leaves a record without a row to the next plan: no plan has deactivated it, or another row has its object. */
export function skipped({ localKey, externalId }: ClaimedRecord): Outcome {
  return { localKey, externalId: externalId ?? undefined, outcome: 'skipped' };
}
