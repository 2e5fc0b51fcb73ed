// Limits: how much a run may change unasked. What exceeds a limit is held until an operator approves it. Weighed over
// a stream's whole plan and what other runs did within a day, before the first of its writes. Pure. What else stops a retirement stands in retire.ts.
import type { MirrorChange } from '../state/databases.js';
import type { Hold, LimitedOperation } from '../state/schema.js';
import type { Stream } from '../streams/stream.js';

export interface LimitFacts {
  operation: LimitedOperation;
  /** Records the plan would create, update or retire. */
  count: number;
  /** Of them, those that an earlier plan has released and that wait for the end of their reservations since. */
  released?: number;
  /** Other records of which other runs did the same within a day. */
  earlier?: number;
  /** Of them, those that another run holds: they wait for that hold. */
  alsoHeld?: { runId: number; count: number } | undefined;
  /** Records the service is believed to hold; of `overwrite`, those that the plan would create. */
  accepted: number;
  /** What an approval allows. */
  allowed?: number | undefined;
  /** The approval is for exactly the keys that were held, and these are others. */
  isOther?: boolean;
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

/** The first filling of a stream is no mass change. */
export function isFirstFilling({ operation, accepted }: Pick<LimitFacts, 'operation' | 'accepted'>): boolean {
  return operation === 'create' && accepted === 0;
}

/** Why the operation must wait for an operator, if it must, and the command that approves it. */
export function explainHold(stream: Stream, facts: LimitFacts): Hold | undefined {
  const { operation, count, released = 0, earlier = 0, alsoHeld, allowed, isOther = false } = facts;
  const limit = stream.limits[operation];
  if (limit === undefined || count === released || isFirstFilling(facts)) return undefined;
  const weighed = count - released + earlier;
  const isWithin = weighed <= limit.count || weighed <= (baseOf(facts) * limit.percent) / 100;
  if (isWithin && !alsoHeld) return undefined;
  if (allowed !== undefined && count <= allowed && !isOther) return undefined;

  const { looksLike, runId } = facts;
  const what = looksLike === undefined ? '' : `${looksLike}; `;
  const before = earlier === 0 ? '' : ` after ${earlier} within 24 hours`;
  const beyond =
    isWithin || limit.count === 0 ? '' : `, more than ${limit.count} and more than ${limit.percent} %`;
  const waiting = alsoHeld ? `, and run ${alsoHeld.runId} holds ${alsoHeld.count} of them` : '';
  const only = isOther ? `exactly the ${allowed} records that were held, and these are others` : allowed;
  const outgrown = allowed === undefined ? '' : `, and the approval allows ${only}`;
  const command =
    runId === undefined
      ? 'a run would hold them for: slotsync approve'
      : `if ${looksLike === undefined ? 'this is intended' : 'that is so'}: slotsync approve ${alsoHeld?.runId ?? runId} --stream ${stream.name} --operation ${operation}`;
  const reason = `${what}${describeCount(facts)}${before}${beyond}${waiting}${outgrown}; ${command}`;
  return { count, reason, approvable: true };
}

/** What a percentage is of. What was retired or overwritten within the day is not among the accepted any more, or yet. */
function baseOf({ operation, accepted, earlier = 0 }: LimitFacts): number {
  return operation === 'retire' || operation === 'overwrite' ? accepted + earlier : accepted;
}

const NONE = { count: 0, percent: 0 };

/** The stream while its mirror may be older than what was sent: nothing of it is sent unasked. */
export function withoutAnyUnasked(stream: Stream): Stream {
  const limits = { create: NONE, update: NONE, retire: NONE, overwrite: NONE, repair: NONE };
  return { ...stream, limits };
}

export function describeMirrorChange({ why }: MirrorChange): string {
  return `the mirror ${why}: approve only if its data is whole and not older than before`;
}

/** `12 of 100 records would be retired` */
export function describeCount({ operation, count, accepted }: LimitFacts): string {
  if (operation === 'overwrite')
    return `${count} of ${accepted} records that were never accepted would overwrite objects at the service`;
  return `${count} of ${accepted} records would be ${DONE[operation]}`;
}
