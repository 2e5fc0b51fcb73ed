// Limits: how much a run may change unasked. What exceeds a limit is held until an operator approves it. Weighed over
// a stream's whole plan, before the first of its writes. Pure. What else stops a retirement stands in retire.ts.
import type { Hold, LimitedOperation } from '../state/schema.js';
import type { Stream } from '../streams/stream.js';

export interface LimitFacts {
  operation: LimitedOperation;
  /** Records the plan would create, update or retire. */
  count: number;
  /** Of them, those that an earlier plan has released and that wait for the end of their reservations since. */
  released?: number;
  /** Incremental retirements, and overwritings, within 24 hours count too. */
  earlier?: number;
  /** Records the service is believed to hold; of `overwrite`, those that the plan would create. */
  accepted: number;
  /** What a valid approval allows. */
  allowed?: number | undefined;
  /** The run that would hold it; undefined for a preview. */
  runId?: number | undefined;
  /** What it looks like to somebody who has to decide. */
  looksLike?: string | undefined;
}

const DONE = {
  create: 'created',
  update: 'updated',
  retire: 'retired',
  repair: 'repaired',
} as const;

/** Whether a stream has a limit for the operation; without one it is never held. */
export function hasLimit({ limits }: Stream, operation: LimitedOperation): boolean {
  return limits[operation] !== undefined;
}

/** Whether so many records of a plan are never held, whatever else it has. Those of earlier runs do not count here. */
export function isWithinLimit({ limits }: Stream, operation: LimitedOperation, count: number): boolean {
  return count <= (limits[operation]?.count ?? Infinity);
}

/** Why the operation must wait for an operator, if it must, and the command that approves it. */
export function explainHold(stream: Stream, facts: LimitFacts): Hold | undefined {
  const { operation, count, released = 0, earlier = 0, accepted, allowed, runId, looksLike } = facts;
  const limit = stream.limits[operation];
  if (limit === undefined || count === released) return undefined;
  // The first filling of a stream is no mass change.
  if (operation === 'create' && accepted === 0) return undefined;
  const weighed = count - released + earlier;
  if (weighed <= limit.count || weighed <= ((accepted + earlier) * limit.percent) / 100) return undefined;
  if (allowed !== undefined && count <= allowed) return undefined;

  const before = earlier === 0 ? '' : ` after ${earlier} within 24 hours`;
  const outgrown = allowed === undefined ? '' : `, and the approval allows ${allowed}`;
  const command =
    runId === undefined
      ? 'a run would hold them for: slotsync approve'
      : `if ${looksLike === undefined ? 'this is intended' : 'that is so'}: slotsync approve ${runId} --stream ${stream.name} --operation ${operation}`;
  const what = looksLike === undefined ? '' : `${looksLike}; `;
  const most = limit.count === 0 ? '' : `, more than ${limit.count} and more than ${limit.percent} %`;
  const reason = `${what}${describeCount(facts)}${before}${most}${outgrown}; ${command}`;
  return { count, reason, approvable: true };
}

/** `12 of 100 records would be retired` */
export function describeCount({ operation, count, accepted }: LimitFacts): string {
  if (operation === 'overwrite')
    return `${count} of ${accepted} records that were never accepted would overwrite objects at the service`;
  return `${count} of ${accepted} records would be ${DONE[operation]}`;
}
