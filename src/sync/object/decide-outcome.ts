// The outcome of a record in a batch, with the code and the message that the state keeps: when it is synced, when it waits
// (deferred), when it failed, and when it is given up for good (dead). Two outcomes are made elsewhere: the records of a batch out
// of attempts are failed (`failBatch` of state/runs/finish-batch.ts), and rows that a plan refuses are failed or given up (`refuse`
// of plan/planned-batches.ts).
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

/** Notes the outcome with which a record is settled when its batch ends; returns what remains to be written of it: nothing. */
export type NoteOutcome = (outcome: Outcome) => never[];

/** An object to be written, and what its acceptance means for the record. */
export interface Write {
  record: ClaimedRecord;
  object: DestinationObject;
  sourceHash: string;
  /** The hash of the object as the mapping makes it; of a retirement, as it is written. */
  objectHash: string;
  retires: boolean;
  /** The text that the state keeps once the object is accepted; see `acceptedText`. */
  acceptedFields?: string | null;
  /** Fields that the write leaves as they are at the service. */
  kept?: readonly KeptField[];
  /** When the row ends, as `endOf` returns it. */
  endsAt?: string | undefined;
  /** The object as it was read before the write; undefined: it was not read, or is not there. */
  standing?: DestinationObject | undefined;
  /** Another record, whose row is there, has the number of the object that is to be retired. */
  hasNumberOfRow?: boolean;
  /** The record is linked to the object, whatever its template makes. */
  link?: Link | undefined;
  /** The object is sent without this reference, and again with it once the other record has arrived. */
  leftOut?: LeftOut | undefined;
  /** The write changes this type of the object. Where the service refuses that, the stream `keptBy` keeps the object. */
  former?: { typeId: string; keptBy: string | undefined } | undefined;
}

const DAY = 24 * 60 * 60 * 1000;
/** Between a refusal while nothing was accepted and the one that counts. */
const SECOND_LOOK_SECONDS = 2 * 60;
const LOOKED_AT_AGAIN =
  'nothing was accepted beside it, so it is sent once more after 2 minutes before it is given up';
/** Reservations named in a message. */
const NAMED = 3;

/** The service holds the object already: nothing is sent. */
export function unchanged(write: Write, destinationId?: string): Outcome {
  return acceptance(write, 'unchanged', destinationId);
}

/**
 * The service's answer about one object of a PUT. Undefined: nothing final (408, 425, 429, 5xx), so it is sent again.
 * `isAnyAccepted`: others were accepted beside it. Where none was, the cause may be the service's, so the object is sent
 * once more some minutes later: refused again, it is given up.
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
    // A pending check that is not that of a refusal is that of a lost write.
    inDoubt: record.isCheckPending && !(record.status === 'failed' && record.refusedHash !== null),
  };
}

/** The answer contradicts what was sent. Its object is looked at by the next run, and not written again before its row changes. */
export function contradicted(write: Write, message: string): Outcome {
  const { sourceHash } = write;
  return { ...named(write), outcome: 'failed', code: ANSWER_CONTRADICTS, message, sourceHash, inDoubt: true };
}

/** Whether the last answer about this object of the row contradicted what was sent, and no operator wants it sent again. */
export const isContradicted = ({ record, sourceHash }: Write): boolean =>
  record.errorCode === ANSWER_CONTRADICTS && record.refusedHash === sourceHash;

/** Whether the status of an answer is about the object; all others are about the moment. */
const isFinal = (status: number) => status < 500 && status !== 408 && status !== 425 && status !== 429;

/**
 * Why an answer refuses an object that was not refused before as it is; undefined: it does not. A record that was given up counts
 * again: its row, its mapping or the service was thought to be corrected.
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

/** The service failed each time the object was sent, also alone; it may have carried the write out. */
export function failsOnObject(write: Write, code: string, error: unknown): Outcome {
  const message = `${messageWithDetail(error)}; it failed each time this object was sent, and others were answered`;
  return { ...named(write), outcome: 'failed', code, message, inDoubt: true, isUnanswered: true };
}

/** Its create is left out: the record goes, unless a write of it may still be carried out. */
export const createLeftOut = ({ record }: Write): Outcome =>
  record.isCheckPending ? skipped(record) : forgotten(record);

/** Its update is left out: the record has the object as it is. Every row has another hash than this one. */
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

/** Made as a literal at once, because copies of it took 4 % of the time of a load. */
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

/** An object of this type has the external id. `why`: what else is to be said of it. */
export function externalIdTaken(write: Write, typeId: string, why = '') {
  const message = `'${write.object.extId}' exists at the service as a ${typeId}, not a ${write.object.typeId}${why}`;
  return { ...named(write), ...dead(EXTERNAL_ID_TAKEN, message, write.sourceHash) };
}

/** The object cannot be read from the service, so nothing is written in its place. */
export function objectUnreadable(write: Write, error: SlotsyncError): Outcome {
  return { ...named(write), outcome: 'failed', code: error.code, message: messageWithDetail(error) };
}

/** Somebody has given the object another external id at the service, or taken it: another one is not made beside it. */
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

/** The object belongs to another key by a link, whether or not that key has a row. */
export function externalIdLinked(write: Write, link: { stream: string; localKey: string }): Outcome {
  const message =
    `${describeLinkedId(write.object.extId, link)}; ` +
    'if the row has another key now: slotsync rename; if the link is wrong: slotsync match --unlink';
  return { ...named(write), outcome: 'failed', code: EXTERNAL_ID_SHARED, message };
}

/** The object is that of a record that an exception leaves as it is. */
export function ownerExcepted(
  write: Write,
  { stream, localKey }: { stream: string; localKey: string },
): Outcome {
  const message = `the object '${write.object.extId}' is that of ${stream} '${localKey}', which an exception leaves as it is: slotsync exceptions`;
  return { ...named(write), outcome: 'failed', code: EXTERNAL_ID_SHARED, message };
}

/** Several objects, or several rows: a person has to say which is which. `why` names them. */
export function matchAmbiguous(write: Write, why: string): Outcome {
  return { ...named(write), ...dead('match_ambiguous', why, write.sourceHash) };
}

/** The one object that matches has no external id, and may not be given one. */
export function matchUnassignable(write: Write, number: string): Outcome {
  const message = `the object with number ${number} matches, but has no external id`;
  return { ...named(write), ...dead('match_unassignable', message, write.sourceHash) };
}

/** The object was another record's by the time it was to be linked: the next run looks again. */
export function linkRefused({ record }: Write, reason: string): Outcome {
  const message = `an object matches, but the record cannot be linked to it: ${reason}`;
  return { localKey: record.localKey, outcome: 'failed', code: EXTERNAL_ID_SHARED, message };
}

/** The record is linked to an object that is not at the service: another one is not made in its place. */
export function linkBroken(write: Write, link: Link): Outcome {
  const name = link.assignsId ? `number ${link.destinationId ?? 'unknown'}` : `'${link.externalId}'`;
  const message = `it is linked to the object ${name}, which is not at the service`;
  return { ...named(write), ...dead('link_broken', message, write.sourceHash) };
}

/** A record whose reference is not at the service waits for it; after `waitDays` it is given up. `now`: milliseconds. */
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

/** A stream whose rows are not all written may hold the row that has the object now. */
export function retirementPostponed(write: Write): Outcome {
  const message =
    'its row is gone, but creates or updates of its stream are held, failed, given up or in doubt: slotsync failures';
  return { ...named(write), outcome: 'deferred', code: RETIREMENT_POSTPONED, message };
}

/** The mirror cannot say what its row is, or which row has its object: nothing is done about it. */
export function unreadable({ localKey }: ClaimedRecord, error: SlotsyncError): Outcome {
  const message = messageWithDetail(error);
  const { hash } = error.facts;
  // A row that is too large stays so until it changes.
  if (typeof hash === 'string') return { localKey, ...dead(error.code, message, hash) };
  return { localKey, outcome: 'failed', code: error.code, message };
}

/** Its row is gone and its object need not be looked after: the record goes. */
export function forgotten({ localKey, externalId }: ClaimedRecord): Outcome {
  return { localKey, externalId: externalId ?? undefined, outcome: 'forgotten' };
}

/** Its row is gone, and the next plan decides: no plan has put it up for retirement, or another row has its object. */
export function skipped({ localKey, externalId }: ClaimedRecord): Outcome {
  return { localKey, externalId: externalId ?? undefined, outcome: 'skipped' };
}
