// The commands that an operator runs about something, as a shell takes them.
import { lines } from '../text/format.js';
import { visibleInLine } from '../text/visible-text.js';
import type { Gate } from '../state/gates/gates.js';
import type { RecordKey } from '../state/records/outcome-types.js';
import { optionOfGate } from '../sync/limits/hold-reason.js';
import type { Cause } from './causes.js';

/** Nothing happens to it until an operator acts. */
export const needsOperator = ({ status, code, isConfigured }: Cause): boolean =>
  isConfigured === false ||
  ['dead', 'absent', 'cycle'].includes(status) ||
  (status === 'failed' && code === 'external_id_shared');

/** The command that helps. */
export function commandOfCause(cause: Cause): string {
  const {
    stream,
    status,
    keys: [key = ''],
    waitingByStream,
    isConfigured,
  } = cause;
  if (isConfigured === false) return commandFor('slotsync forget', stream, key);
  switch (status) {
    case 'held':
      if (cause.reason === 'frozen' || cause.answer === 'approved') return 'slotsync status';
      return cause.approvable ? approveCommandOfCause(cause) : `slotsync sync ${stream}`;
    case 'absent':
    case 'cycle':
    case 'retired':
      return commandFor('slotsync explain', stream, key);
    case 'synced':
      return ['slotsync sync', ...Object.keys(waitingByStream)].join(' ');
    case 'pending':
      return 'slotsync status';
    case 'failed':
    case 'deferred':
      return `slotsync sync ${stream}`;
    case 'dead':
      return retryCommandOf(cause);
  }
}

type NamedGate = Pick<Gate, 'runId' | 'stream' | 'operation' | 'reason'>;

const answerCommand =
  (verb: 'approve' | 'reject') =>
  ({ runId, stream, ...gate }: NamedGate): string =>
    `slotsync ${verb} ${runId} --stream ${stream} ${optionOfGate(gate)}`;

/** Approves what one gate keeps back. */
export const approveCommand = answerCommand('approve');
/** Rejects what one gate keeps back. */
export const rejectCommand = answerCommand('reject');

/** A cause has the name of its gate alone: that of a gate of all operations is its reason. */
const approveCommandOfCause = ({ runId, stream, code, reason }: Cause): string =>
  `slotsync approve ${runId} --stream ${stream} --${code === reason ? 'gate' : 'operation'} ${code}`;

/** An operator's retry sends its records again. */
export const isRetryable = ({ status, isConfigured }: Cause): boolean =>
  isConfigured !== false && (status === 'dead' || status === 'failed');

/** The command that sends the records of a cause again, all of them and no others. */
export function retryCommandOf(
  { stream, status, code, records, keys: [localKey = ''] }: Cause,
  option?: string,
): string {
  if (records === 1) return retryCommand({ stream, localKey }, option);
  // A retry with --retire-former chooses its records itself.
  const choice = option ?? lines(`--status ${status}`, code !== null && `--code ${code}`).join(' ');
  return `slotsync retry ${stream} ${choice}`;
}

/** The command that sends a record again. */
export function retryCommand({ stream, localKey }: RecordKey, option?: string): string {
  return commandFor('slotsync retry', stream, localKey, option);
}

/** A command about one record. A key that begins with - would be read as an option. */
export function commandFor(command: string, stream: string, localKey: string, option?: string): string {
  const key = quote(localKey);
  const words = localKey.startsWith('-') ? [option, stream, '--', key] : [stream, key, option];
  return lines(command, ...words).join(' ');
}

/** Lets the object of one key belong to another. */
export function renameCommand(stream: string, from: string, to: string): string {
  const beginsWithDash = from.startsWith('-') || to.startsWith('-');
  return lines('slotsync rename', stream, beginsWithDash && '--', quote(from), quote(to)).join(' ');
}

/** As a shell takes it: with control characters, in the quotes in which a shell reads their escapes. */
export function quote(key: string): string {
  if (visibleInLine(key) !== key) return `$'${visibleInLine(key.replaceAll(/[\\']/g, String.raw`\$&`))}'`;
  return /^[\w.@-]+$/.test(key) ? key : `'${key.replaceAll("'", `'\\''`)}'`;
}
