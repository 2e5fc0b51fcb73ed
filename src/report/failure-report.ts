// Why a record is not at the service as the mirror has it, and whose turn it is.
import type { Failure } from '../state/records/failures.js';
import { RETIREMENT_REFUSED, STILL_RESERVED } from '../state/records/outcomes.js';

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
      if (errorCode === STILL_RESERVED)
        return 'it is retired by itself with the run after its bookings are over, or cancelled at the service: slotsync sync';
      return `it goes by itself with the run after that record is there: slotsync sync${parentStep(failure)}`;
    case 'failed':
      return nextStepOfRun(errorCode);
    case 'dead':
      if (errorCode?.startsWith(RETIREMENT_REFUSED))
        return `take away at the service what keeps the object, then: ${retry}; its row being back is enough, too`;
      return errorCode === 'external_id_changed'
        ? `deactivate the former object there if it is not wanted, then: ${retry}`
        : `correct the row and it goes with the next run; to send it again unchanged: ${retry}`;
    default:
      return nextStepOfRun(null);
  }
}

/** What to do about a run that failed, or about what is left of one that did not do everything. */
export function nextStepOfRun(code: string | null): string {
  switch (code) {
    case 'unauthorized':
      return 'check API_KEY, API_ORGANIZATION_ID, API_REGION and API_BASE_URL, then: slotsync check';
    case 'configuration':
    case 'mirror_source':
    case 'mirror_read_only':
    case 'mirror_refused':
    case 'state_refused':
    case 'key_not_unique':
    case 'key_null':
    case 'key_order':
    case 'external_ids_not_unique':
      return 'correct the settings, the configuration or the source, then: slotsync check, slotsync sync';
    case 'external_id_shared':
      return 'correct one of the rows, or the template of the external id; then: slotsync sync';
    case 'refused':
      return 'the service does not take this request: check what it says against docs/api-contract.md, with slotsync check';
    case 'redirected':
      return 'correct API_BASE_URL, then: slotsync check';
    case 'service_unreachable':
    case 'service_failed':
    case 'answer_lost':
    case 'throttled':
    case 'quota_unavailable':
    case 'mirror_unreachable':
    case 'state_unreachable':
    case 'queue_unreachable':
      return 'nothing is lost; when it is back: slotsync sync';
    default:
      return 'the next run tries again: slotsync sync';
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
