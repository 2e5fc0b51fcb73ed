// Decides whether a run may send the records of one operation, or a gate keeps the records back. Every run uses this
// pure function: nightly sync, incremental run, backfill, retry, repair and approval.
import type { PlanGate, StreamStanding } from '../../state/streams.js';
import type { DriftSummary, GateFacts, GateReason, LimitedOperation, LoadFacts } from '../../state/schema.js';
import type { Stream } from '../../streams/stream.js';

export interface Weighed {
  operation: LimitedOperation;
  /** Number of records that the plan would send for the operation. */
  count: number;
  /** Number of records in `count` that an earlier plan already released. The limit does not count released records. */
  released?: number;
  /**
   * Number of objects that the service is believed to hold. For `overwrite`: creates whose objects were searched for.
   */
  accepted: number;
  /** Number of records that other runs have sent for this operation within 23 hours, or are still to send. */
  earlier: number;
  /** True if the plan covers the whole stream, not only some of its keys. */
  isWhole: boolean;
  standing: Pick<StreamStanding, 'frozen' | 'gates' | 'mirrorChange' | 'refusals'>;
  /** Problem of the mirror's load, such as its age, for which records are held. Undefined without a problem. */
  load?: LoadFacts | undefined;
  /** True if the stream's source has no row at all. Only for `retire`. */
  isSourceEmpty?: boolean;
  /** True if creates or updates of the stream are held. Then deactivations must wait. Only for `retire`. */
  hasUnsentWrites?: boolean;
  /** Number of objects that streams no longer configured own, by stream. Only for `overwrite`. */
  formerStreams?: Readonly<Record<string, number>>;
  /** True if an operator froze a stream of `formerStreams`. The objects of a frozen stream must not change. */
  isFormerFrozen?: boolean;
  /** Number and kind of the objects that drift. Only for `repair`. */
  drift?: DriftSummary;
  /** Digest of the planned keys. If an approval was given for exactly certain keys, their digest must be equal. */
  digest?: string | undefined;
}

/**
 * `isExempt`: later limits do not count these records. `keepsApproval`: an unused approval stays valid for later runs.
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
 * Gates that a batch closes when the service refuses records. A whole sync ignores such a gate unless an operator
 * rejected it. A run of single keys is always stopped by it.
 */
const MET_WHILE_SENDING: ReadonlySet<GateReason> = new Set(['refused', 'forbidden']);
/** Gates that only a whole sync can open. A run of single keys adds its records to the held records. */
const KEEPS_PARTS: ReadonlySet<GateReason> = new Set(['limit', 'owned_by_former_stream']);

/** Returns true if the stream is filled for the first time. Then no limit applies, unless the load is outdated. */
const isFirstFilling = ({ operation, accepted, load }: Pick<Weighed, 'operation' | 'accepted' | 'load'>) =>
  operation === 'create' && accepted === 0 && load === undefined;

/** Decides whether a plan may send its records of one operation. If not, returns the gate and its reason. */
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

  // The mirror may be a restored copy, or not loaded recently. So the limit is 0 until an operator approves.
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

/** Returns the closed gate that holds an operation, however few the records. Undefined if the limit decides. */
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
 * Returns an operator's approval of the operation. If a gate of all operations was approved, the number allowed is the
 * number of the operation's records that the gate holds.
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

/** Returns the number of which the limit's percentage is taken. Objects deactivated today are added again. */
const baseOf = ({ operation, accepted, earlier }: Weighed): number =>
  operation === 'retire' || operation === 'overwrite' ? accepted + earlier : accepted;

/** Returns true if the service refused too many records. `allowed`: refusals that an operator approved. */
export function isRefusedTooOften(
  { limits: { refused: limit } }: Pick<Stream, 'limits'>,
  { refused, answered, allowed }: { refused: number; answered: number; allowed: number },
): boolean {
  return refused > limit.count && refused > (answered * limit.percent) / 100 && refused > allowed;
}
