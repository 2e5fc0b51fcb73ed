// Outcomes: the result of an attempt for each record.
import type { WrittenField } from '../../streams/destination-object.js';
import type { AcceptedCounts, OutcomeCounts } from '../schema.js';

/** A record: its stream, and its key in it. */
export interface RecordKey {
  stream: string;
  localKey: string;
}

interface Reason {
  code: string;
  message: string;
  /** The missing record that it waits for, or waited for until it was given up. */
  waitsFor?: RecordKey;
}

/** A refusal that counts only when the service says the same once more. */
interface SecondLook {
  /** Hash of the row that was refused. */
  sourceHash: string;
  /** It is sent once more then; undefined: at the time that was set before. */
  secondLookAfterSeconds: number | undefined;
}

/** `changedId`: its external id is another one now, in its row or at the service; records that refer to it wait. */
interface Loss {
  changedId?: { former: string; now: string };
  /** The stream that keeps its object from here on. */
  keptBy?: string | undefined;
}

/** The object that the service has accepted. Hashes are of the row and of the object. */
interface Acceptance {
  /** The operation that the service accepted, if one was sent. */
  operation?: keyof AcceptedCounts | undefined;
  /** The fields that it changed, or sent unread; for the history. */
  written?: readonly WrittenField[];
  /** When the row ends, by the column of `graceDays`: a time as PostgreSQL reads it. */
  endsAt?: string | undefined;
  destinationId?: string | undefined;
  sourceHash: string;
  objectHash: string;
  /** `accepted_fields` of the record from here on; null: none. Of a retirement they stay. */
  acceptedFields?: string | null | undefined;
  /** The object has got its external id by this write, or by one before: its link says so no more. */
  assigned?: boolean | undefined;
}

/** The outcome of one record. */
export type Outcome = { localKey: string; externalId?: string | undefined } & (
  | ({ outcome: 'synced' | 'unchanged'; retired?: boolean } & Acceptance)
  /** With an acceptance: the service has the object without the reference. */
  | ({ outcome: 'deferred' } & Reason & (Acceptance | { objectHash?: never }))
  /** `isUnanswered`: a write was sent, and may be carried out. */
  | ({ outcome: 'failed'; inDoubt?: boolean; isUnanswered?: true } & Partial<SecondLook> &
      Omit<Reason, 'waitsFor'>)
  | ({ outcome: 'dead'; sourceHash: string } & Loss & Reason)
  /** Its row is gone, and the service never had it or another record has its object, or its create is left out: the record is deleted. */
  | { outcome: 'forgotten' }
  /** Its row is gone, and this batch may not retire it, or an exception leaves it as it is: the next plan decides. */
  | { outcome: 'skipped' }
);

/** Returns true for an outcome whose object the service holds as accepted, written now or before. */
export const isAcceptance = (outcome: Outcome): boolean =>
  'objectHash' in outcome && outcome.objectHash !== undefined;

/** Returns true for an outcome that the service's acceptance of a write has made. */
export const isSent = (outcome: Outcome): boolean =>
  outcome.outcome === 'synced' || ('operation' in outcome && outcome.operation !== undefined);

/** Code of records that are sent without a reference to their own stream, because the other record waits for them. */
export const REFERENCE_CIRCLE = 'reference_circle';
/** Code of a deferred retirement: its object has reservations that have not ended. */
export const STILL_RESERVED = 'still_reserved';
/** Code of a deferred retirement: creates or updates of its stream are not done in the run. */
export const RETIREMENT_POSTPONED = 'retirement_postponed';
/** Code of records that are not sent because several rows have one external id. */
export const EXTERNAL_ID_SHARED = 'external_id_shared';
/** Code of records that are not sent because an object of another type has their external id. */
export const EXTERNAL_ID_TAKEN = 'external_id_taken';
/** Code of records of whose objects the service answered something else than was sent. */
export const ANSWER_CONTRADICTS = 'answer_contradicts';
/** The service refuses to retire an object; the status follows. Sent again when the row is back, or by `retry`. */
export const RETIREMENT_REFUSED = 'retirement_refused';
export const NO_OUTCOMES: OutcomeCounts = { synced: 0, unchanged: 0, deferred: 0, failed: 0, dead: 0 };

export function countOutcomes(outcomes: Iterable<Outcome>): OutcomeCounts {
  const counts = { ...NO_OUTCOMES };
  for (const { outcome } of outcomes)
    counts[outcome === 'forgotten' || outcome === 'skipped' ? 'unchanged' : outcome]++;
  return counts;
}

export const NONE_ACCEPTED: AcceptedCounts = { create: 0, update: 0, retire: 0 };

/** A record's name: stream and key as a JSON list, as in `waits_for`. */
export function recordName({ stream, localKey }: RecordKey): string {
  return JSON.stringify([stream, localKey]);
}

/** Messages come from mapping functions and from the service: made short, and without what jsonb cannot hold. */
export function storable(message: string): string {
  return message.slice(0, 2000).replaceAll('\0', '').toWellFormed();
}

/** JSON that jsonb takes: an answer of the service may hold what PostgreSQL does not store. */
export function toStorableJson(value: unknown): string {
  return JSON.stringify(value, (_, field: unknown) => (typeof field === 'string' ? storable(field) : field));
}
