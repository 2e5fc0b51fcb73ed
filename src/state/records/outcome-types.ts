// Types and error codes of outcomes, which are the results of attempts to sync single records.
import type { AcceptedCounts, OutcomeCounts } from '../schema.js';
import type { ColumnsFor } from './record-columns.js';

export interface RecordKey {
  stream: string;
  localKey: string;
}

export interface Reason {
  code: string;
  message: string;
  /** Missing record that this record waits for, or waited for until it was given up. */
  waitsFor?: RecordKey;
}

/** Refusal that becomes final only if the service refuses the record a second time. */
interface SecondLook {
  sourceHash: string;
  /** Seconds until the second attempt. Undefined if an earlier outcome has already set its time. */
  secondLookAfterSeconds: number | undefined;
}

/** Loss of the object of a dead record. `changedId`: old and new external id. Records that refer to it must wait. */
interface Loss {
  changedId?: { former: string; now: string };
  /** Stream that keeps the record's object from now on. */
  keptBy?: string | undefined;
}

/**
 * Result of an accepted write, with values of the columns that are `adopted` in record-columns.ts. `sourceHash` is the
 * hash of the row, `objectHash` the hash of the object.
 */
export interface Acceptance extends Partial<Record<ColumnsFor<'adopted'>, string | null | undefined>> {
  /** Operation that the service accepted. Undefined if nothing was sent. */
  operation?: keyof AcceptedCounts | undefined;
  /** For the history: names of the written fields as JSON, and their values if it keeps values; see `keptOfWrite`. */
  names?: string;
  values?: unknown;
  /** Value of the row's `graceDays` column, as text that PostgreSQL parses as a time. */
  endsAt?: string | undefined;
  externalId?: string | undefined;
  destinationId?: string | undefined;
  sourceHash: string;
  objectHash: string;
  /** New value of `accepted_fields`. Null clears the column. A retirement keeps the old value. */
  acceptedFields?: string | null | undefined;
  /** True if the object has received its external id, so that its link no longer needs to assign one. */
  assigned?: boolean | undefined;
}

export type Outcome = { localKey: string; externalId?: string | undefined } & (
  | ({ outcome: 'synced' | 'unchanged'; retired?: boolean } & Acceptance)
  /** With the fields of `Acceptance`: the service accepted the object without the missing reference. */
  | ({ outcome: 'deferred' } & Reason & (Acceptance | { objectHash?: never }))
  /** `isUnanswered`: a write was sent, and the service may still execute it. */
  | ({ outcome: 'failed'; inDoubt?: boolean; isUnanswered?: true } & Partial<SecondLook> &
      Omit<Reason, 'waitsFor'>)
  | ({ outcome: 'dead'; sourceHash: string } & Loss & Reason)
  /** The row is deleted, and there is no object to retire. The record is deleted too. */
  | { outcome: 'forgotten' }
  /** The row is deleted, but this batch may not retire the object. The next plan decides. */
  | { outcome: 'skipped' }
);

/** Returns true if the service holds the object as accepted, by this write or an earlier one. */
export const isAcceptance = (outcome: Outcome): boolean =>
  'objectHash' in outcome && outcome.objectHash !== undefined;

/** Returns true if the service accepted a write in this attempt. */
export const isSent = (outcome: Outcome): boolean =>
  outcome.outcome === 'synced' || ('operation' in outcome && outcome.operation !== undefined);

/** Error code: sent without its reference to a record of the same stream, because both records wait for each other. */
export const REFERENCE_CIRCLE = 'reference_circle';
/** Error code: the retirement waits, because the object has reservations that have not ended. */
export const STILL_RESERVED = 'still_reserved';
/** Error code: the retirement waits, because the run did not complete its stream's creates and updates. */
export const RETIREMENT_POSTPONED = 'retirement_postponed';
/** Error code: not sent, because several rows have the same external id. */
export const EXTERNAL_ID_SHARED = 'external_id_shared';
/** Error code: not sent, because an object of another type has the external id. */
export const EXTERNAL_ID_TAKEN = 'external_id_taken';
/** Error code: the service's answer contradicts the object that was sent. */
export const ANSWER_CONTRADICTS = 'answer_contradicts';
/**
 * Prefix of the error code if the service refuses to retire an object. Retried on request, or if the row reappears.
 */
export const RETIREMENT_REFUSED = 'retirement_refused';
export const NO_OUTCOMES: OutcomeCounts = { synced: 0, unchanged: 0, deferred: 0, failed: 0, dead: 0 };

export function countOutcomes(outcomes: Iterable<Outcome>): OutcomeCounts {
  const counts = { ...NO_OUTCOMES };
  for (const { outcome } of outcomes)
    counts[outcome === 'forgotten' || outcome === 'skipped' ? 'unchanged' : outcome]++;
  return counts;
}

export const NONE_ACCEPTED: AcceptedCounts = { create: 0, update: 0, retire: 0 };

/** Returns the stream and key of a record as a JSON list, as stored in `waits_for`. */
export function recordName({ stream, localKey }: RecordKey): string {
  return JSON.stringify([stream, localKey]);
}

const MOST_CHARACTERS = 2000;

/** Limits a message of a mapping function or the service to text that PostgreSQL can store. */
export function storable(message: string): string {
  return message.slice(0, MOST_CHARACTERS).replaceAll('\0', '').toWellFormed();
}

/** Returns JSON that a `jsonb` column accepts. Answers of the service may contain NUL or lone surrogates. */
export function toStorableJson(value: unknown): string {
  const text = JSON.stringify(value);
  // JSON has only escapes of these characters. A shorter text has no text that is too long.
  if (text.length < MOST_CHARACTERS && !/\\u(?:0000|d[89a-f])/i.test(text)) return text;
  return JSON.stringify(value, (_, field: unknown) => (typeof field === 'string' ? storable(field) : field));
}
