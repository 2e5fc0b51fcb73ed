// Why a record is not in sync, and what happens next.
import { recordRemedy } from '../error-catalogue.js';
import type { Failure } from '../state/records/list-failures.js';
import type { RecordKey } from '../state/records/outcome-types.js';
import { plural } from './format.js';
import { lines } from './print.js';

/** `parentStatus` is undefined when it was not looked up. */
type FailedRecord = Pick<Failure, 'stream' | 'localKey' | 'status' | 'errorCode' | 'waitsFor'> & {
  parentStatus: Failure['parentStatus'] | undefined;
};

/** One failure: which record, why, and what happens next. */
export function describeFailure(failure: Failure): string {
  const known = failure.externalId === null ? '' : ` (${failure.externalId})`;
  const { formerExternalId, externalId } = failure;
  return lines(
    `${failure.stream} '${failure.localKey}'${known}: ${failure.status}, ${failure.errorMessage ?? 'its batch is not finished'}`,
    formerExternalId !== null &&
      formerExternalId !== externalId &&
      `  its former object ${formerExternalId} is not retired; to retire it: ${retryCommand(failure, '--retire-former')}`,
    `  → ${nextStep(failure)}`,
  ).join('\n');
}

/** `1 record is not in sync`. */
export function describeUnsettled(count: number): string {
  if (count === 0) return 'Every record is in sync as it was last read';
  return `${plural(count, 'record')} ${count === 1 ? 'is' : 'are'} not in sync`;
}

/** What happens next to a record: it is sent automatically, or an operator acts, and with which command. */
export function nextStep(failure: FailedRecord): string {
  const { status, errorCode, stream, localKey } = failure;
  const remedy = recordRemedy(errorCode, (option) => retryCommand({ stream, localKey }, option));
  return status === 'deferred' ? remedy + parentStep(failure) : remedy;
}

/** The command that sends a record again, as a shell takes it. */
export function retryCommand({ stream, localKey }: RecordKey, option?: string): string {
  return commandFor('slotsync retry', stream, localKey, option);
}

/** A command about one record, as a shell takes it. A key that begins with - would be read as an option. */
export function commandFor(command: string, stream: string, localKey: string, option?: string): string {
  const key = quote(localKey);
  const words = localKey.startsWith('-') ? [option, stream, '--', key] : [stream, key, option];
  return lines(command, ...words).join(' ');
}

/** What to do about objects that records had before their external ids changed. Nothing when there are none. */
export function describeFormerObjects(count: number, stream?: string): string[] {
  if (count === 0) return [];
  const are = count === 1 ? 'is' : 'are';
  return [
    `${plural(count, 'former object')} of records whose external id changed ${are} not retired: ` +
      `slotsync retry ${stream ?? '--all'} --retire-former`,
  ];
}

function parentStep({ waitsFor, parentStatus }: FailedRecord): string {
  if (!waitsFor) return '';
  const { stream, localKey } = waitsFor;
  if (parentStatus === null)
    return `; the state has no record of ${stream} '${localKey}': its row is missing in the mirror, or held: slotsync status`;
  const isStuck = parentStatus === 'dead' || parentStatus === 'failed';
  return isStuck ? `; that record is ${parentStatus}: slotsync failures ${stream}` : '';
}

export function quote(key: string): string {
  return /^[\w.@-]+$/.test(key) ? key : `'${key.replaceAll("'", `'\\''`)}'`;
}
