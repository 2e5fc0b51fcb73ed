// List entries of closed gates and of holds of past runs: reason, sample changes by field, and the operator's answer.
import { approveCommand, rejectCommand } from '../situation/commands.js';
import { isApprovable, waitsForOperator, type Gate } from '../state/gates/gates.js';
import type { Hold } from '../state/schema.js';
import { describeOpening, describeReason } from '../sync/limits/hold-reason.js';
import { formatMinute, plural, present } from '../text/format.js';
import {
  addressOfRun,
  linkToRun,
  text,
  withQuery,
  type Action,
  type Point,
  type Text,
  describeChange,
} from './document.js';

const NOUNS = {
  create: 'creation',
  update: 'update',
  retire: 'deactivation',
  overwrite: 'overwriting',
  repair: 'repair',
  '*': 'record',
} as const;

/** Returns text such as `12 deactivations of rooms`. */
export function describeHeld({ count, operation, stream }: Pick<Gate, 'count' | 'operation' | 'stream'>) {
  return `${plural(count, NOUNS[operation])} of ${stream}`;
}

/** List entry of a closed gate with the operator's answer, or with buttons to approve and reject. */
export function gateToPoint(gate: Gate): Point {
  return {
    status: gate.approval ? 'approved' : gate.rejectedAt ? 'rejected' : 'held',
    text: text`${describeHeld(gate)}, held in ${linkToRun(gate.runId)}`,
    details: [reasonOfHold(gate), describeKeys(gate)],
    samples: describeSamples(gate),
    next: describeNext(gate),
    commands: present<Action>(
      waitsForOperator(gate) && isApprovable(gate) && answerTo(gate, 'approve', 'Approve …'),
      waitsForOperator(gate) && answerTo(gate, 'reject', 'Reject …'),
    ),
  };
}

/** List entry of a hold from a past run: the gate has opened since, or belongs to a later run. */
export const holdToPoint = (stream: string, hold: Hold): Point => ({
  text: `${describeHeld({ ...hold, stream })}, held then`,
  details: [reasonOfHold(hold)],
  samples: describeSamples(hold),
  next: 'The records were sent or planned again since then. To see current holds: slotsync status',
});

/** The gate as shown on the page that asks an operator to confirm an approval or a rejection. */
export const gateToQuestion = (gate: Gate): Point => ({
  text: describeHeld(gate),
  details: [reasonOfHold(gate), describeKeys(gate)],
  samples: describeSamples(gate),
});

/** Returns the operator's answer to the gate. Without an answer, returns the step that opens the gate. */
function describeNext(gate: Gate): Text | undefined {
  const { approval, rejectedAt, rejectedBy } = gate;
  if (approval) {
    const by = approval.runId !== null && text`, for ${linkToRun(approval.runId)}`;
    const opening = gate.facts.waitsForWrites && ` ${describeOpening(gate)}.`;
    return text`Approved until ${{ minute: approval.expiresAt }}${by}.${opening}`;
  }
  if (rejectedAt)
    return text`Rejected ${{ minute: rejectedAt }}${rejectedBy !== null && ` by ${rejectedBy}`}. No action needed until its records change.`;
  return describeOpening(gate);
}

function answerTo(gate: Gate, verb: 'approve' | 'reject', label: string): Action {
  const { runId, stream, operation, reason } = gate;
  return {
    command: verb === 'approve' ? approveCommand(gate) : rejectCommand(gate),
    href: withQuery(`${addressOfRun(runId)}/${verb}`, {
      stream,
      operation: operation === '*' ? null : operation,
      gate: reason,
    }),
    label,
    about: `${describeHeld(gate)} of run ${runId}`,
  };
}

/** Says how many records an approval allows, and until when. Empty if the gate is not approved. */
export function describeApproval({ operation, stream, runId, approval }: Gate, timeZone: string): string {
  if (!approval) return '';
  const { allowed, digest, expiresAt, runId: by } = approval;
  const held = describeHeld({ count: allowed, operation, stream });
  const what = digest === null ? `up to ${held}` : `exactly the ${held}`;
  return `Approved: ${what} until ${formatMinute(expiresAt, timeZone)} (held in run ${runId}), for run ${by}.`;
}

/** Returns text such as `Held: 'r001', 'r002', … All of them: slotsync failures rooms --status held --all`. */
export function describeKeys({ count, firstKeys, stream }: Pick<Gate, 'count' | 'firstKeys' | 'stream'>) {
  const named = firstKeys.map((key) => `'${key}'`).join(', ');
  if (count <= firstKeys.length) return `Held: ${named}.`;
  return `Held: ${named}, … All of them: ${listCommand(stream)}`;
}

const listCommand = (stream: string) => `slotsync failures ${stream} --status held --all`;

/** Reason for a hold as a sentence, without the approve command, because surfaces show the command beside it. */
const reasonOfHold = (hold: Pick<Hold, 'operation' | 'reason' | 'count' | 'facts'>): string => {
  const reason = describeReason(hold);
  return `${reason.slice(0, 1).toUpperCase()}${reason.slice(1)}${reason.endsWith('.') ? '' : '.'}`;
};

/** Lines that show, for some of the held records, how each field would change at the service. */
export function describeSamples({ samples = [] }: Pick<Hold, 'samples'>): string[] {
  return samples.flatMap(({ key, externalId, changes }) => [
    `  '${key}' → ${externalId}`,
    ...changes.map((change) => `    ${describeChange(change)}`),
  ]);
}
