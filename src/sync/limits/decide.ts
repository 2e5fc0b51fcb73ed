// The one decision whether the records of an operation are sent or kept back. Every way of sending goes through it: the nightly
// sync, an incremental run, a backfill, a retry, a repair, an approval. Pure.
import type { PlanGate, StreamStanding } from '../../state/streams.js';
import type { DriftSummary, GateFacts, GateReason, LimitedOperation, LoadFacts } from '../../state/schema.js';
import type { Stream } from '../../streams/stream.js';

export interface Weighed {
  operation: LimitedOperation;
  /** Records that the plan would send. */
  count: number;
  /** Records among them that an earlier plan has let go: their retirement was put off since. */
  released?: number;
  /** Records that the service is believed to hold; of `overwrite`, those that the plan would create. */
  accepted: number;
  /** Records of other runs that were sent for the operation within a day, or still will be. */
  earlier: number;
  /** The plan reads all of the stream. */
  isWhole: boolean;
  standing: Pick<StreamStanding, 'frozen' | 'gates' | 'mirrorChange' | 'refusals'>;
  /** The load of the mirror has a problem that holds what would be sent. */
  load?: LoadFacts | undefined;
  /** Only for `retire`: the source has no row. */
  isSourceEmpty?: boolean;
  /** Only for `retire`: creates or updates of the stream are kept back, so that none of the retirements would be sent now. */
  hasUnsentWrites?: boolean;
  /** Only for `overwrite`: streams that left the configuration and own the objects. */
  formerStreams?: Readonly<Record<string, number>>;
  /** A freeze of one of these streams is in force, and keeps its objects as they are. */
  isFormerFrozen?: boolean;
  /** Only for `repair`: the drift that it is about. */
  drift?: DriftSummary;
  /** The digest of the keys, where an approval is for exactly some. */
  digest?: string | undefined;
}

/** `isExempt`: it does not count towards later limits. `keepsApproval`: an approval stands that could not be used yet. */
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
 * Gates that a batch closes. A whole plan tries again, unless an operator has rejected what was refused; until then they keep
 * back whatever a part of the stream would send.
 */
const MET_WHILE_SENDING: ReadonlySet<GateReason> = new Set(['refused', 'forbidden']);
/** Gates that a part of a stream cannot open: it is kept back beside the others. */
const KEEPS_PARTS: ReadonlySet<GateReason> = new Set(['limit', 'owned_by_former_stream']);

/** The first filling of a stream is no mass change; from a load that is not recent it waits, too. */
const isFirstFilling = ({ operation, accepted, load }: Pick<Weighed, 'operation' | 'accepted' | 'load'>) =>
  operation === 'create' && accepted === 0 && load === undefined;

/** Decides about one operation of a plan of a stream. */
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

  // Its data may be older than what was sent: nothing of it is sent unasked.
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

/** The closed gate that keeps back an operation whatever there is of it: of a part of the stream, or rejected. */
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

/** The approval for an operation. One of a gate of all operations allows as many of each as the gate keeps back. */
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

/** The number that a percentage is of. What was retired or overwritten within the day is not among the accepted any more, or yet. */
const baseOf = ({ operation, accepted, earlier }: Weighed): number =>
  operation === 'retire' || operation === 'overwrite' ? accepted + earlier : accepted;

/** Whether the service refused too much of what was sent. `allowed`: refusals that an approval allows. */
export function isRefusedTooOften(
  { limits: { refused: limit } }: Pick<Stream, 'limits'>,
  { refused, answered, allowed }: { refused: number; answered: number; allowed: number },
): boolean {
  return refused > limit.count && refused > (answered * limit.percent) / 100 && refused > allowed;
}
