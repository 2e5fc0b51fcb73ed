// What is held for approval and what has been approved, as `status`, `approve` and `reject` print it.
import type { Approval } from '../state/runs/approvals.js';
import type { RunHold } from '../state/runs/holds.js';
import type { Hold } from '../state/schema.js';
import { describeChange } from './values.js';
import { formatNumber, formatMinute, plural } from '../format.js';

const NOUNS = {
  create: 'creation',
  update: 'update',
  retire: 'retirement',
  overwrite: 'overwriting',
  repair: 'repair',
} as const;

/** `12 retirements of rooms`. */
export function describeHeld({ count, operation, stream }: Pick<RunHold, 'count' | 'operation' | 'stream'>) {
  return `${plural(count, NOUNS[operation])} of ${stream}`;
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

/** What became of the approvals that a run was started for. */
export function describeUse({ allowed, operation, stream, runId, usedBy, sameKeys }: Approval): string {
  const held = `${describeHeld({ count: allowed, operation, stream })}, held in run ${runId}`;
  if (usedBy === null) return `Approved: ${held}. Not used, and it has ended with this run.`;
  const same = sameKeys ? 'the same records' : 'not the same records, though no more';
  return `Approved: ${held}. Used for ${same}.`;
}

/** `r001, r002, … All of them: slotsync failures rooms --status held --all` */
export function describeKeys({ count, firstKeys, stream }: Pick<RunHold, 'count' | 'firstKeys' | 'stream'>) {
  const named = firstKeys.map((key) => `'${key}'`).join(', ');
  if (count <= firstKeys.length) return `Held: ${named}.`;
  return `Held: ${named}, … All of them, until they are planned again: ${listCommand(stream)}`;
}

/** Lists every key that is held. */
export const listCommand = (stream: string) => `slotsync failures ${stream} --status held --all`;

/** Why it is held, without the command that approves it, for where the command stands beside it. */
export function reasonWithoutCommand(reason: string): string {
  return reason.replace(/; (?:if [^:]*|a run would hold them for): slotsync approve.*$/, '');
}

/** What some of the held records would change at the service, field by field. */
export function describeSamples({ samples = [] }: Pick<Hold, 'samples'>): string[] {
  return samples.flatMap(({ key, externalId, changes }) => [
    `  '${key}' → ${externalId}`,
    ...changes.map((change) => `    ${describeChange(change)}`),
  ]);
}

/** One line for each stream and operation, with the reason of the latest run. */
export function describeHolds(holds: readonly RunHold[]): string[] {
  const groups = new Map<string, RunHold[]>();
  for (const hold of holds) {
    const group = `${hold.kind === 'incremental'} ${hold.operation} ${hold.stream}`;
    groups.set(group, [...(groups.get(group) ?? []), hold]);
  }
  return [...groups.values()].flatMap(([hold, ...others]) => {
    if (!hold) return [];
    const runs = others.length === 1 ? 'an earlier run' : 'earlier runs';
    const more = others.length === 0 ? '' : `\n  and ${formatNumber(others.length)} more of ${runs}`;
    const reason = `Held in run ${hold.runId}: ${hold.stream}: ${hold.reason}${more}`;
    return [[reason, ...describeSamples(hold)].join('\n')];
  });
}
