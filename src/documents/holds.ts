// Holds: changes that wait for an operator, why, some of them field by field, and the two answers. And approvals.
import { approveCommand, rejectCommand } from '../situation/commands.js';
import type { Approval } from '../state/runs/approvals.js';
import type { RunHold } from '../state/runs/holds.js';
import type { Run } from '../state/runs/read-runs.js';
import type { Hold } from '../state/schema.js';
import { describeReason } from '../sync/limits/hold-reason.js';
import { formatMinute, plural, present } from '../text/format.js';
import {
  addressOfRun,
  joinTexts,
  linkToRun,
  text,
  withQuery,
  type Action,
  type Point,
  type Text,
} from './document.js';
import { describeChange } from './values.js';

const NOUNS = {
  create: 'creation',
  update: 'update',
  retire: 'deactivation',
  overwrite: 'overwriting',
  repair: 'repair',
  refused: 'record',
  frozen: 'record',
} as const;

/** `12 deactivations of rooms`. */
export function describeHeld({ count, operation, stream }: Pick<RunHold, 'count' | 'operation' | 'stream'>) {
  return `${plural(count, NOUNS[operation])} of ${stream}`;
}

/** A hold with its reason, some of it field by field, and the answer of an operator, given or not. */
export function holdToPoint(hold: RunHold): Point {
  const { runId, approvable } = hold;
  return {
    status: isOpen(hold) ? 'held' : hold.state,
    text: text`${describeHeld(hold)}, held in ${linkToRun(runId)}`,
    details: [reasonOfHold(hold), describeKeys(hold)],
    samples: describeSamples(hold),
    next: describeAnswer(hold),
    commands: waitsForOperator(hold)
      ? [
          ...(approvable ? [answerTo(hold, 'approve', 'Approve …')] : []),
          answerTo(hold, 'reject', 'Reject …'),
        ]
      : [],
  };
}

/** A hold that an operator is about to answer. */
export const holdToQuestion = (hold: RunHold, isApproved: boolean): Point => ({
  text: describeHeld(hold),
  details: present(reasonOfHold(hold), describeKeys(hold), isApproved && describeApprovedRun(hold)),
  samples: describeSamples(hold),
});

/** Nobody has decided about it, and no later run has planned it again. */
export const isOpen = ({ state }: Pick<RunHold, 'state'>): boolean => state === 'open';

/** Anything but what a freeze holds needs an answer. */
export const waitsForOperator = (hold: Pick<RunHold, 'state' | 'operation'>): boolean =>
  isOpen(hold) && hold.operation !== 'frozen';

/** The answer to a hold and its end; undefined: it is open. */
function describeAnswer({ operation, state, plannedAnewBy, approvedFor, usedBy }: RunHold): Text | undefined {
  if (state === 'open')
    return operation === 'frozen'
      ? 'No action needed: it is planned anew when the freeze has ended.'
      : undefined;
  if (approvedFor !== null) return text`Approved: ${linkToRun(approvedFor)} does it.`;
  if (usedBy !== null) return text`Approved, and done by ${linkToRun(usedBy)}.`;
  return joinTexts(
    [
      state === 'expired' && 'Nothing of it was sent.',
      plannedAnewBy !== null && text`Planned again by ${linkToRun(plannedAnewBy)}.`,
    ],
    ' ',
  );
}

function answerTo(hold: RunHold, verb: 'approve' | 'reject', label: string): Action {
  const { runId, stream, operation } = hold;
  return {
    command: verb === 'approve' ? approveCommand(hold) : rejectCommand(hold),
    href: withQuery(`${addressOfRun(runId)}/${verb}`, { stream, operation }),
    label,
    about: `${describeHeld(hold)} of run ${runId}`,
  };
}

/** An approval that its run has not used yet. */
export function describeApproval(
  { allowed, operation, stream, expiresAt, runId, forRun, exactly }: Approval,
  timeZone: string,
): string {
  const held = describeHeld({ count: allowed, operation, stream });
  const what = exactly ? `exactly the ${held}` : `up to ${held}`;
  return `Approved: ${what} until ${formatMinute(expiresAt, timeZone)} (held in run ${runId}), for run ${forRun}.`;
}

/** An approval that a run was started for, and what became of it. */
export function approvalToPoint(
  { allowed, operation, stream, runId, usedBy, sameKeys, expiresAt }: Approval,
  { finishedAt, status }: Pick<Run, 'finishedAt' | 'status'>,
  now: Date,
): Point {
  const ending = (): Text => {
    if (usedBy !== null && operation === 'refused') return 'Used: what was refused before is not among it.';
    if (usedBy !== null)
      return `Used for ${sameKeys ? 'the same records' : 'not the same records, though no more'}.`;
    if (expiresAt <= (finishedAt ?? now)) return text`Not used: it expired at ${{ minute: expiresAt }}.`;
    if (status === 'planning') return text`The plan of this run uses it, until ${{ minute: expiresAt }}.`;
    return 'Not used: it ended with the plan of this run.';
  };
  const held = describeHeld({ count: allowed, operation, stream });
  return { text: text`Approved: ${held}, held in ${linkToRun(runId)}. ${ending()}` };
}

/** Limits are counted over a whole stream: after single keys, the approved run plans all of it. */
export function describeApprovedRun({ kind, stream }: Pick<RunHold, 'kind' | 'stream'>): string | undefined {
  return kind === 'incremental'
    ? `It was held as single keys. The approved run plans all of ${stream}, because limits count the whole stream, and sends no more than the number approved.`
    : undefined;
}

/** `r001, r002, … All of them: slotsync failures rooms --status held --all` */
export function describeKeys({ count, firstKeys, stream }: Pick<RunHold, 'count' | 'firstKeys' | 'stream'>) {
  const named = firstKeys.map((key) => `'${key}'`).join(', ');
  if (count <= firstKeys.length) return `Held: ${named}.`;
  return `Held: ${named}, … All of them, until they are planned again: ${listCommand(stream)}`;
}

/** Lists every key that is held. */
export const listCommand = (stream: string) => `slotsync failures ${stream} --status held --all`;

/** The reason of a hold as a sentence, without the command that approves it: for where the command stands beside it. */
export const reasonOfHold = (hold: RunHold): string => {
  const reason = describeReason(hold);
  return `${reason.slice(0, 1).toUpperCase()}${reason.slice(1)}${hold.approvable ? '.' : ''}`;
};

/** Some of the held records as they would change at the service, field by field. */
export function describeSamples({ samples = [] }: Pick<Hold, 'samples'>): string[] {
  return samples.flatMap(({ key, externalId, changes }) => [
    `  '${key}' → ${externalId}`,
    ...changes.map((change) => `    ${describeChange(change)}`),
  ]);
}
