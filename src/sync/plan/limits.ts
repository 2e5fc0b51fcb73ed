// The brake: a mass change waits for a person. Evaluated over a stream's whole plan, before the first of its writes.
// Pure.
import type { LimitedOperation, Hold } from '../../state/schema.js';
import type { Stream } from '../../streams/stream.js';

export interface LimitFacts {
  operation: LimitedOperation;
  /** Records the plan would create, update or retire. */
  count: number;
  /** Of them, those that an earlier plan has let through; they wait for the end of their bookings since. */
  passed?: number;
  /** Besides them, those that incremental runs have retired within a day: a flood that comes in drops is one all the same. */
  earlier?: number;
  /** Records the service is believed to hold. */
  accepted: number;
  /** The source has no row at all. */
  isEmpty: boolean;
  /** What an approval that still holds allows. */
  allowed?: number | undefined;
  /** The run that would hold it; none when the plan is only looked at. */
  runId?: number;
}

const DONE = { create: 'created', update: 'updated', retire: 'retired' } as const;

/** Whether a stream has a limit for the operation; without one it is never held. */
export function hasLimit({ limits }: Stream, operation: LimitedOperation): boolean {
  return limits[operation] !== undefined;
}

/** Why the operation must wait for a person, if it must, and what the person can do. */
export function explainHold(stream: Stream, facts: LimitFacts): Hold | undefined {
  const { operation, count, passed = 0, earlier = 0, accepted, isEmpty, allowed, runId } = facts;
  const limit = stream.limits[operation];
  if (limit === undefined || count === 0) return undefined;
  const records = `${count} of ${accepted} records would be ${DONE[operation]}`;
  if (operation === 'retire' && isEmpty) {
    const reason = `${records}, but the source is empty, and an empty source retires nothing: check the mirror, then: slotsync sync`;
    return { count, reason, approvable: false };
  }
  // The first filling of a stream is no mass change.
  if (operation === 'create' && accepted === 0) return undefined;
  const weighed = count - passed + earlier;
  if (count === passed || weighed <= limit.count || weighed <= ((accepted + earlier) * limit.percent) / 100)
    return undefined;
  if (allowed !== undefined && count <= allowed) return undefined;

  const before = earlier === 0 ? '' : ` after ${earlier} within a day`;
  const outgrown = allowed === undefined ? '' : `, and the approval allows ${allowed}`;
  const command =
    runId === undefined
      ? 'a run would hold them for: slotsync approve'
      : `if it is meant: slotsync approve ${runId} --stream ${stream.name} --operation ${operation}`;
  const reason = `${records}${before}, more than ${limit.count} and more than ${limit.percent} %${outgrown}; ${command}`;
  return { count, reason, approvable: true };
}
