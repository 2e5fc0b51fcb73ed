// Commands that documents suggest to an operator, quoted for a shell.
import { lines } from '../text/format.js';
import { visibleInLine } from '../text/visible-text.js';
import type { Gate } from '../state/gates/gates.js';
import type { RecordKey } from '../state/records/outcome-types.js';
import { optionOfGate } from '../sync/limits/hold-reason.js';

type NamedGate = Pick<Gate, 'runId' | 'stream' | 'operation' | 'reason'>;

const answerCommand =
  (verb: 'approve' | 'reject') =>
  ({ runId, stream, ...gate }: NamedGate): string =>
    `slotsync ${verb} ${runId} --stream ${stream} ${optionOfGate(gate)}`;

export const approveCommand = answerCommand('approve');
export const rejectCommand = answerCommand('reject');

export function retryCommand({ stream, localKey }: RecordKey, option?: string): string {
  return commandFor('slotsync retry', stream, localKey, option);
}

/**
 * Returns a command about one record. A key that begins with `-` follows `--`, so that it is not parsed as an option.
 */
export function commandFor(command: string, stream: string, localKey: string, option?: string): string {
  const key = quote(localKey);
  const words = localKey.startsWith('-') ? [option, stream, '--', key] : [stream, key, option];
  return lines(command, ...words).join(' ');
}

export function renameCommand(stream: string, from: string, to: string): string {
  const beginsWithDash = from.startsWith('-') || to.startsWith('-');
  return lines('slotsync rename', stream, beginsWithDash && '--', quote(from), quote(to)).join(' ');
}

/**
 * Quotes a key for a shell, if necessary. A key with control characters uses `$'…'`, where the shell reads escapes.
 */
export function quote(key: string): string {
  if (visibleInLine(key) !== key) return `$'${visibleInLine(key.replaceAll(/[\\']/g, String.raw`\$&`))}'`;
  return /^[\w.@-]+$/.test(key) ? key : `'${key.replaceAll("'", `'\\''`)}'`;
}
