// The commands that an operator runs about something, as a shell takes them.
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

/** Approves what one gate keeps back. */
export const approveCommand = answerCommand('approve');
/** Rejects what one gate keeps back. */
export const rejectCommand = answerCommand('reject');

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
