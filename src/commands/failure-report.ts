// Why a record is not at the service as the mirror has it, and whose turn it is.
import type { Failure } from '../state/failures.js';

/** One failure as a person reads it: which, why, and what happens next. */
export function describeFailure(failure: Failure): string {
  const known = failure.externalId === null ? '' : ` (${failure.externalId})`;
  return [
    `${failure.stream} '${failure.localKey}'${known}: ${failure.status}, ${failure.errorMessage ?? 'not tried to the end yet'}`,
    `  → ${nextStep(failure)}`,
  ].join('\n');
}

/** Retry, wait, or a person's turn, and which command. */
export function nextStep(failure: Failure): string {
  const { status, errorCode, stream, localKey } = failure;
  const retry = `slotsync retry ${stream} ${quote(localKey)}`;
  switch (status) {
    case 'deferred':
      return `it goes by itself once that record is there${parentStep(failure)}`;
    case 'failed':
      return errorCode === 'external_id_shared'
        ? 'correct one of the rows, or the template; the next run tries again'
        : 'the next run tries it again: slotsync sync';
    case 'dead':
      return errorCode === 'external_id_changed'
        ? `deactivate the former object there if it is not wanted, then: ${retry}`
        : `correct the row and it goes with the next run; to send it again unchanged: ${retry}`;
    default:
      return 'the next run tries it again: slotsync sync';
  }
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
