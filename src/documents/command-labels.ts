// Labels of commands that stand alone: a browser shows before a command what it does.
import type { Action } from './document.js';

/** By the word behind `slotsync`. */
const LABELS = new Map([
  ['approve', 'Approve'],
  ['cancel', 'Cancel'],
  ['failures', 'List the records'],
  ['plan', 'See what would be sent'],
  ['reconcile', 'Compare again'],
  ['reject', 'Reject'],
  ['rename-stream', 'Move what the state has'],
  ['resume', 'Resume'],
  ['retry', 'Send again'],
  ['runs', 'See what happened'],
  ['status', 'List all of them'],
  ['sync', 'Send what differs'],
  ['triggers', 'Install the triggers'],
  ['unfreeze', 'End the freeze'],
  ['verify', 'Compare again'],
  ['worker', 'Start a worker'],
]);
/** An option that does more than its command. */
const OPTIONS = new Map([
  ['--repair', 'Send again what differs'],
  ['--retire-former', 'Deactivate them'],
]);

/** Keys in quotes or behind `--`: words in them say nothing of the command. */
const KEY = / -- .*| \$?'.*'/s;

/** A command with the label of its button, or with what it does in words. */
export function labelOf(command: string | Action): string {
  if (typeof command === 'object') return command.label.replace(/ …$/, '');
  const [, verb = '', ...rest] = command.replace(KEY, '').split(' ');
  return (
    rest.map((word) => OPTIONS.get(word)).find((label) => label !== undefined) ?? LABELS.get(verb) ?? 'Run'
  );
}
