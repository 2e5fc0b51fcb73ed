// Limits: how much a run may change unasked. What exceeds a limit is held until an operator approves it. Weighed over
// a stream's whole plan and what other runs did within a day, before the first of its writes. Pure. What else stops a retirement stands in retire.ts.
import type { DriftSummary, Hold, LimitedOperation, LoadFacts } from '../../state/schema.js';
import type { Stream } from '../../streams/stream.js';

export interface LimitFacts {
  operation: LimitedOperation;
  /** Records the plan would create, update or retire. */
  count: number;
  /** Records among them that an earlier plan has released, and that wait for the end of their reservations since. */
  released?: number;
  /** Other records of which other runs did the same within a day. */
  earlier?: number;
  /** Records among them that another run holds: they wait for that hold. */
  alsoHeld?: { runId: number; count: number } | undefined;
  /** Records the service is believed to hold; of `overwrite`, those that the plan would create. */
  accepted: number;
  /** Records that an approval allows. */
  allowed?: number | undefined;
  /** The approval is for exactly the keys that were held, and these are others. */
  isOther?: boolean;
  /** The run that would hold it; undefined for a preview. */
  runId?: number | undefined;
  /** How the mirror is another one than before. */
  mirrorChange?: string | undefined;
  /** The load of the mirror has a problem. */
  load?: LoadFacts | undefined;
  /** The drift that a repair is about. */
  drift?: DriftSummary;
}

/** Whether a stream has a limit for the operation; without one it is never held. */
export function hasLimit({ limits }: Stream, operation: LimitedOperation): boolean {
  return limits[operation] !== undefined;
}

/** Whether so many records of a plan are never held, whatever else it has. Those of earlier runs do not count here. */
export function isWithinLimit({ limits }: Stream, operation: LimitedOperation, count: number): boolean {
  return count <= (limits[operation]?.count ?? Infinity);
}

/** The first filling of a stream is no mass change; from a load that is not recent it waits, too. */
export function isFirstFilling({
  operation,
  accepted,
  load,
}: Pick<LimitFacts, 'operation' | 'accepted' | 'load'>): boolean {
  return operation === 'create' && accepted === 0 && load === undefined;
}

/** The hold of an operation that must wait for an operator; undefined: it need not. */
export function explainHold(stream: Stream, facts: LimitFacts): Hold | undefined {
  const { operation, count, released = 0, earlier = 0, alsoHeld, allowed, isOther = false } = facts;
  const limit = stream.limits[operation];
  if (limit === undefined || count === released || isFirstFilling(facts)) return undefined;
  const weighed = count - released + earlier;
  const isWithin = weighed <= limit.count || weighed <= (baseOf(facts) * limit.percent) / 100;
  if (isWithin && !alsoHeld) return undefined;
  if (allowed !== undefined && count <= allowed && !isOther) return undefined;

  const { accepted, mirrorChange, load, drift } = facts;
  return {
    count,
    approvable: true,
    facts: {
      accepted,
      ...(earlier > 0 && { earlier }),
      ...(!isWithin && { limit }),
      ...(alsoHeld && { alsoHeld }),
      ...(allowed !== undefined && { approval: { allowed, isOther } }),
      ...(mirrorChange !== undefined && { mirrorChange }),
      ...(load && { load }),
      ...(drift && { drift }),
    },
  };
}

/** The number that a percentage is of. What was retired or overwritten within the day is not among the accepted any more, or yet. */
function baseOf({ operation, accepted, earlier = 0 }: LimitFacts): number {
  return operation === 'retire' || operation === 'overwrite' ? accepted + earlier : accepted;
}

/** Whether the service refused too much of what was sent, so that the rest waits. `allowed`: refusals that an approval allows. */
export function isRefusedTooOften(
  { limits: { refused: limit } }: Pick<Stream, 'limits'>,
  { refused, sent, allowed }: { refused: number; sent: number; allowed: number },
): boolean {
  return refused > limit.count && refused > (sent * limit.percent) / 100 && refused > allowed;
}

const NONE = { count: 0, percent: 0 };

/** The stream while its mirror, or the load of it, may be older than what was sent: nothing of it is sent unasked. */
export function withoutAnyUnasked(stream: Stream): Stream {
  const limits = { create: NONE, update: NONE, retire: NONE, overwrite: NONE, repair: NONE };
  return { ...stream, limits: { ...stream.limits, ...limits } };
}
