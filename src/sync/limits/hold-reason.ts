// Explains in one sentence why a gate holds records back, for example because a limit is exceeded.
import type { DriftSummary, GateReason, Hold, LimitedOperation } from '../../state/schema.js';
import { isApprovable, nameOfGate } from '../../state/gates/gates.js';
import { formatNumber, plural } from '../../text/format.js';
import { describeWholeLoad } from './load-age.js';

/** Facts about held records, from which the sentence is made. A gate has these facts, and so has a run's history. */
export type Held = Pick<Hold, 'operation' | 'reason' | 'count' | 'facts'>;

const DONE = {
  create: 'created',
  update: 'updated',
  retire: 'deactivated',
  repair: 'repaired',
} as const;
/** If at least this share of the drifting objects is missing, the sentence suspects that a backup was restored. */
const MOST = 0.5;

/** Returns why records are held, such as `12 of 100 records would be deactivated, more than 10 and more than 10 %`. */
export function describeReason({ operation, reason, count, facts }: Held): string {
  const wait = `${plural(count, 'record')} ${count === 1 ? 'waits' : 'wait'}`;
  if (reason === 'frozen') return `${wait} because the stream was frozen: ${facts.message}`;
  if (reason === 'forbidden') return `${wait} because the service forbids the request: ${facts.message}`;
  if (reason === 'refused') return describeRefusals(wait, facts);
  const counted =
    operation === '*' ? `${plural(count, 'record')} would be sent` : describeCount(operation, count, facts);
  if (reason === 'empty_source')
    return `${counted}, but the source is empty, and an empty source deactivates nothing`;
  const { earlier, limit, held, approval } = facts;
  const look = describeLook(facts);
  const before = earlier === undefined ? '' : ` in addition to ${formatNumber(earlier)} in the last 23 hours`;
  const alsoHeld = held === undefined ? '' : `, beside ${formatNumber(held)} that were held before`;
  return `${look === undefined ? '' : `${look}; `}${counted}${before}${alsoHeld}${describeLimit(limit)}${describeApproval(approval)}`;
}

/** Returns what an operator has to do so that the records are sent. Undefined if only an approval is needed. */
export function describeOpening({
  stream,
  reason,
  facts,
}: Pick<Held, 'reason' | 'facts'> & { stream: string }): string | undefined {
  switch (reason) {
    case 'empty_source':
      return `Check the mirror, then: slotsync sync ${stream}`;
    case 'forbidden':
      return `Let the service permit the request, then: slotsync sync ${stream}`;
    case 'frozen':
      return 'No action needed: a worker plans it when the freeze has ended';
    case 'owned_by_former_stream': {
      const [former = '<old>'] = Object.keys(facts.formerStreams ?? {});
      return `If the stream was renamed: slotsync rename-stream ${former} ${stream}`;
    }
    case 'stale':
      return `Load the mirror, then: slotsync sync ${stream}`;
    default:
      return facts.waitsForWrites
        ? 'The approval stands. Correct or approve the creates and updates that are not sent'
        : undefined;
  }
}

/** Returns why records are held, and the command that releases them. `runId`: undefined in a preview. */
export function describeReasonAndCommand(
  hold: Held & { stream: string; runId?: number | undefined },
): string {
  const { stream, runId, facts } = hold;
  const reason = describeReason(hold);
  const opening = describeOpening(hold);
  if (!isApprovable(hold)) return opening === undefined ? reason : `${reason}. ${opening}`;
  const looksSo = describeLook(facts) === undefined ? 'this is intended' : 'that is so';
  const condition = hold.reason === 'refused' ? 'the rest is to be sent all the same' : looksSo;
  const approval =
    runId === undefined
      ? 'a run would hold them for: slotsync approve'
      : `if ${condition}: slotsync approve ${runId} --stream ${stream} ${optionOfGate(hold)}`;
  return opening === undefined ? `${reason}; ${approval}` : `${reason}. ${opening}; or ${approval}`;
}

/** Returns the option that names a gate in commands: its operation, or its reason if it holds all operations. */
export const optionOfGate = (gate: Pick<Held, 'operation' | 'reason'>): string =>
  `--${gate.operation === '*' ? 'gate' : 'operation'} ${nameOfGate(gate)}`;

/** Returns a stream's held records as JSON output shows them. `gate` is the reason's code, `reason` the sentence. */
export function withReasons(
  holds: Readonly<Record<string, Hold>>,
  of: { stream: string; runId?: number | undefined },
): Record<string, Omit<Hold, 'reason'> & { gate: GateReason; reason: string }> {
  return Object.fromEntries(
    Object.entries(holds).map(([name, hold]) => [
      name,
      { ...hold, gate: hold.reason, reason: describeReasonAndCommand({ ...of, ...hold }) },
    ]),
  );
}

/** Returns why refusals hold records, such as `9 000 records wait: 60 of 1 000 records sent were refused, …`. */
function describeRefusals(wait: string, { refused, limit, byOperation, approval }: Held['facts']): string {
  const retired = byOperation?.retire;
  const gone = retired === undefined ? '' : `, ${formatNumber(retired)} of them to be deactivated`;
  if (!refused) return `${wait}${gone}, because the service refused too many others`;
  const { records, sent, code, message } = refused;
  return `${wait}${gone}: ${formatNumber(records)} of ${formatNumber(sent)} records sent were refused${describeLimit(limit)}${describeApproval(approval)}, for example ${code}: ${message}`;
}

function describeCount(
  operation: LimitedOperation,
  count: number,
  { accepted, formerStreams }: Held['facts'],
) {
  if (operation !== 'overwrite') {
    const of = accepted === 0 ? '' : ` of ${formatNumber(accepted)}`;
    return `${formatNumber(count)}${of} records would be ${DONE[operation]}`;
  }
  const never = `${formatNumber(count)} of ${formatNumber(accepted)} records that were never accepted`;
  if (!formerStreams) return `${never} would overwrite objects at the service`;
  const owners = Object.entries(formerStreams).map(([name, objects]) => `${name} ${formatNumber(objects)}`);
  return `${never} would take over objects of streams that left the configuration (${owners.join(', ')})`;
}

function describeLimit(limit: Held['facts']['limit']): string {
  if (limit === undefined || limit.count === 0) return '';
  return `, more than ${formatNumber(limit.count)} and more than ${limit.percent} %`;
}

function describeApproval(approval: Held['facts']['approval']): string {
  if (!approval) return '';
  const { allowed, isOther } = approval;
  const only = isOther
    ? `exactly the ${formatNumber(allowed)} records that were held, and these are others`
    : formatNumber(allowed);
  return `, and the approval allows ${only}`;
}

/** Returns the likely cause of a large change, to help an operator decide. Undefined if no cause is known. */
function describeLook({ mirrorChange, load, drift, accepted }: Held['facts']): string | undefined {
  if (mirrorChange !== undefined)
    return `the mirror ${mirrorChange}: approve only if its data is whole and not older than before`;
  if (load) return describeWholeLoad(load);
  return drift && describeDrift(drift, accepted);
}

function describeDrift(
  { total, missing, inactive, changed, commonField }: DriftSummary,
  accepted: number,
): string | undefined {
  if (missing > 0 && missing >= accepted)
    return `the service holds none of the ${formatNumber(accepted)} objects: it may have been restored empty or from a backup`;
  if (missing >= total * MOST)
    return `the service lacks ${formatNumber(missing)} of the ${formatNumber(accepted)} objects: it may have been restored from a backup`;
  if (inactive === total)
    return `all ${formatNumber(total)} objects that drift were made inactive at the service, perhaps on purpose`;
  if (changed === total && commonField !== null)
    return `all ${formatNumber(total)} objects that drift differ in ${commonField}, perhaps because it was changed at the service on purpose`;
  return undefined;
}
