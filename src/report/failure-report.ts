// Why a record is not at the service as the mirror has it, and whose turn it is.
import { errorEntry, recordRemedy } from '../error-catalogue.js';
import type { Failure } from '../state/records/failures.js';
import { STILL_RESERVED } from '../state/records/outcomes.js';

/** One failure as a person reads it: which, why, and what happens next. */
export function describeFailure(failure: Failure): string {
  const known = failure.externalId === null ? '' : ` (${failure.externalId})`;
  return [
    `${failure.stream} '${failure.localKey}'${known}: ${failure.status}, ${failure.errorMessage ?? 'not tried to the end yet'}`,
    `  → ${nextStep(failure)}`,
  ].join('\n');
}

/** What happens next to a record: it is sent automatically, or an operator acts, and with which command. */
export function nextStep(failure: Failure): string {
  const { status, errorCode, stream, localKey } = failure;
  switch (status) {
    case 'deferred':
      if (errorCode === STILL_RESERVED) return errorEntry(errorCode).remedy;
      return `it is sent automatically by the run after that record is at the service: slotsync sync${parentStep(failure)}`;
    case 'dead':
      return recordRemedy(errorCode, `slotsync retry ${stream} ${quote(localKey)}`);
    default:
      return nextStepOfRun(errorCode);
  }
}

/** What to do about a run that failed, or about what is left of one that did not do everything. */
export function nextStepOfRun(code: string | null): string {
  return errorEntry(code).remedy;
}

function parentStep({ waitsFor, parentStatus }: Failure): string {
  if (!waitsFor) return '';
  const why = `slotsync failures ${waitsFor.stream}`;
  switch (parentStatus) {
    case null:
      return `; the state knows no ${waitsFor.stream} '${waitsFor.localKey}': is its row in the mirror?`;
    case 'dead':
    case 'failed':
      return `, which is ${parentStatus} itself: ${why}`;
    default:
      return '';
  }
}

function quote(key: string): string {
  return /^[\w.@-]+$/.test(key) ? key : `'${key.replaceAll("'", `'\\''`)}'`;
}
