// Decides whether a run may send the records of one operation, or a gate keeps the records back. Every run uses this
// pure function: nightly sync, incremental run, backfill, retry, repair and approval.
import type { PlanGate, StreamStanding } from '../../state/streams.js';
import type { DriftSummary, GateFacts, GateReason, LimitedOperation, LoadFacts } from '../../state/schema.js';
import type { Stream } from '../../streams/stream.js';

export interface Weighed {
  operation: LimitedOperation;
  /** Number of records that the plan would send for the operation. */
  count: number;
  /** Records of `count` that an earlier plan released for deactivation. The limit does not count them again. */
  released?: number;
  /** Records whose objects the service is believed to hold. For `overwrite`: records that the plan would create. */
  accepted: number;
  /** Number of records that other runs sent for this operation within 23 hours, or will still send. */
  earlier: number;
  /** True if the plan covers the whole stream, not only some of its keys. */
  isWhole: boolean;
  standing: Pick<StreamStanding, 'frozen' | 'gates' | 'mirrorChange' | 'refusals'>;
  /** Facts of the mirror's load, if its age or time is a problem that holds the stream's records. */
  load?: LoadFacts | undefined;
  /** True if the stream's source has no row at all. Only for `retire`. */
  isSourceEmpty?: boolean;
  /** True if creates or updates of the stream are held, which postpones its deactivations. Only for `retire`. */
  hasUnsentWrites?: boolean;
  /** Number of affected objects of each owning stream that left the configuration. Only for `overwrite`. */
  formerStreams?: Readonly<Record<string, number>>;
  /** True if an operator froze a former stream that owns some of the objects. Its objects must not change. */
  isFormerFrozen?: boolean;
  /** Summary of the drift that the repair would correct. Only for `repair`. */
  drift?: DriftSummary;
  /** Digest of the planned keys. It is compared with the digest of an approval that allows only certain keys. */
  digest?: string | undefined;
}

/**
 * `isExempt`: later limits do not count these records. `keepsApproval`: an approval stays, to be used by a later run.
 */
export type Verdict =
  | { send: true; isExempt: boolean }
  | {
      send: false;
      gate: { operation: LimitedOperation | '*'; reason: GateReason };
      facts: GateFacts;
      keepsApproval: boolean;
    };

const NONE = { count: 0, percent: 0 };

/**
 * Reasons of gates that a batch closes while it sends. A whole sync ignores such a gate, unless an operator rejected
 * the refused records. A run of single keys never passes the gate.
 */
const MET_WHILE_SENDING: ReadonlySet<GateReason> = new Set(['refused', 'forbidden']);
/** Gates that a run of single keys cannot open. Its records are held together with those held before. */
const KEEPS_PARTS: ReadonlySet<GateReason> = new Set(['limit', 'owned_by_former_stream']);

/** True for the first creates of a stream, which are no unusual change. An old mirror load holds them nevertheless. */
const isFirstFilling = ({ operation, accepted, load }: Pick<Weighed, 'operation' | 'accepted' | 'load'>) =>
  operation === 'create' && accepted === 0 && load === undefined;

/** Decides whether a plan may send the records of one operation. If not, returns the reason and facts of the gate. */
export function decide({ limits }: Pick<Stream, 'limits'>, weighed: Weighed): Verdict {
  const { operation, count, released = 0, accepted, isWhole, standing, load, isSourceEmpty } = weighed;
  const keep = (reason: GateReason, facts: GateFacts, of: LimitedOperation | '*' = operation): Verdict => ({
    send: false,
    gate: { operation: of, reason },
    facts,
    keepsApproval: false,
  });
  if (standing.frozen !== null) return keep('frozen', { accepted, message: standing.frozen }, '*');
  const closed = findClosed(standing.gates, weighed);
  if (closed && MET_WHILE_SENDING.has(closed.reason))
    return keep(closed.reason, closed.facts, closed.operation);
  const { refusals } = standing;
  if (!isWhole && refusals && isRefusedTooOften({ limits }, refusals)) {
    const { refused: records, answered: sent, code, message } = refusals;
    return keep(
      'refused',
      { accepted, limit: limits.refused, refused: { records, sent, code, message } },
      '*',
    );
  }
  if (isSourceEmpty) return keep('empty_source', { accepted });

  // The mirror's data may be older than the data sent before. So the limit is 0 until an operator approves.
  const isDoubtful = standing.mirrorChange !== null || load !== undefined || weighed.isFormerFrozen === true;
  const limit = isDoubtful ? NONE : limits[operation];
  if (limit === undefined || count === released || isFirstFilling(weighed))
    return { send: true, isExempt: isFirstFilling(weighed) };
  const held = closed?.count ?? 0;
  const { earlier } = weighed;
  const sum = count - released + earlier + held;
  const isWithin = sum <= limit.count || sum <= (baseOf(weighed) * limit.percent) / 100;
  if (isWithin && !closed) return { send: true, isExempt: false };

  const approval = isWhole ? findApproval(standing.gates, operation) : undefined;
  const isOther = (approval?.digest ?? null) !== null && approval?.digest !== weighed.digest;
  const isAllowed = approval !== undefined && count <= approval.allowed && !isOther;
  if (isAllowed && !weighed.hasUnsentWrites) return { send: true, isExempt: true };
  const reason = reasonOf(weighed);
  return {
    send: false,
    gate: { operation, reason },
    keepsApproval: isAllowed,
    facts: {
      accepted,
      ...(earlier > 0 && { earlier }),
      ...(held > 0 && { held }),
      ...(!isWithin && { limit }),
      ...(isAllowed && { waitsForWrites: true as const }),
      ...(approval && !isAllowed && { approval: { allowed: approval.allowed, isOther } }),
      ...(standing.mirrorChange && { mirrorChange: standing.mirrorChange.why }),
      ...(load && { load }),
      ...(weighed.drift && { drift: weighed.drift }),
      ...(reason === 'owned_by_former_stream' && { formerStreams: { ...weighed.formerStreams } }),
    },
  };
}

function reasonOf({ operation, load, standing, formerStreams = {} }: Weighed): GateReason {
  if (load) return 'stale';
  if (standing.mirrorChange) return 'restored';
  const isTaken = operation === 'overwrite' && Object.keys(formerStreams).length > 0;
  return isTaken ? 'owned_by_former_stream' : 'limit';
}

/** Returns the closed gate that keeps back any number of records: in a whole sync only a rejected gate of refusals. */
function findClosed(
  gates: readonly PlanGate[],
  { operation, isWhole }: Pick<Weighed, 'operation' | 'isWhole'>,
): PlanGate | undefined {
  const own = gates.filter((gate) => gate.operation === operation || gate.operation === '*');
  if (isWhole) return own.find(({ reason, isRejected }) => reason === 'refused' && isRejected);
  return (
    own.find(({ reason }) => MET_WHILE_SENDING.has(reason)) ??
    own.find(({ reason }) => KEEPS_PARTS.has(reason))
  );
}

/**
 * Returns the operation's approval. An approved gate of all operations allows as many as it holds of the operation.
 */
export function findApproval(
  gates: readonly PlanGate[],
  operation: LimitedOperation,
): { allowed: number; digest: string | null } | undefined {
  const approved = gates.filter(({ allowed }) => allowed !== null);
  const own = approved.find((gate) => gate.operation === operation);
  if (own) return { allowed: own.allowed ?? 0, digest: own.allowedDigest };
  const all = approved.find((gate) => gate.operation === '*');
  return all && { allowed: all.facts.byOperation?.[operation] ?? 0, digest: null };
}

/** Base of the limit's percentage. `accepted` no longer includes records deactivated today, so `earlier` is added. */
const baseOf = ({ operation, accepted, earlier }: Weighed): number =>
  operation === 'retire' || operation === 'overwrite' ? accepted + earlier : accepted;

/** True if the service refused more records than the limit permits. `allowed`: refusals that an operator approved. */
export function isRefusedTooOften(
  { limits: { refused: limit } }: Pick<Stream, 'limits'>,
  { refused, answered, allowed }: { refused: number; answered: number; allowed: number },
): boolean {
  return refused > limit.count && refused > (answered * limit.percent) / 100 && refused > allowed;
}
