// Why something is held, as a sentence made from the facts of its hold.
import type { DriftSummary, Hold, HoldOperation } from '../../state/schema.js';
import { formatNumber, plural } from '../../text/format.js';
import { describeWholeLoad } from './load-age.js';

/** A hold as the sentence needs it. `runId`: the run that holds it; undefined for a preview. */
interface Held extends Pick<Hold, 'count' | 'facts'> {
  stream: string;
  operation: HoldOperation;
  approvable: boolean;
  runId?: number | undefined;
}

type Counted = Exclude<HoldOperation, 'refused' | 'frozen'>;

const DONE = {
  create: 'created',
  update: 'updated',
  retire: 'deactivated',
  repair: 'repaired',
} as const;
/** From this share of the missing among the drifting on, a hold says what that looks like. */
const MOST = 0.5;

/** `12 of 100 records would be deactivated, more than 10 and more than 10 %`. */
export function describeReason({
  operation,
  count,
  facts,
}: Pick<Held, 'operation' | 'count' | 'facts'>): string {
  if (operation === 'frozen')
    return `${plural(count, 'record')} ${count === 1 ? 'was' : 'were'} not sent because the stream was frozen: ${facts.frozen}`;
  if (operation === 'refused') return describeRefusals(count, facts);
  const counted = describeCount(operation, count, facts.accepted);
  if (facts.isSourceEmpty)
    return `${counted}, but the source is empty, and an empty source deactivates nothing: check the mirror, then: slotsync sync`;
  const { earlier, limit, alsoHeld, approval } = facts;
  const look = describeLook(facts);
  const what = look === undefined ? '' : `${look}; `;
  const before = earlier === undefined ? '' : ` after ${formatNumber(earlier)} within 24 hours`;
  const beyond =
    limit === undefined || limit.count === 0
      ? ''
      : `, more than ${formatNumber(limit.count)} and more than ${limit.percent} %`;
  const waiting = alsoHeld ? `, and run ${alsoHeld.runId} holds ${formatNumber(alsoHeld.count)} of them` : '';
  return `${what}${counted}${before}${beyond}${waiting}${describeApproval(approval)}`;
}

/** The same with the command that approves it, where an approval helps. */
export function describeReasonAndCommand(hold: Held): string {
  const { stream, operation, approvable, runId, facts } = hold;
  const reason = describeReason(hold);
  if (!approvable) return reason;
  if (runId === undefined) return `${reason}; a run would hold them for: slotsync approve`;
  const looksSo = describeLook(facts) === undefined ? 'this is intended' : 'that is so';
  const condition = operation === 'refused' ? 'the rest is to be sent all the same' : looksSo;
  return `${reason}; if ${condition}: slotsync approve ${facts.alsoHeld?.runId ?? runId} --stream ${stream} --operation ${operation}`;
}

/** The holds of one stream by operation, with their reasons, as JSON documents show them. `runId` is undefined for a preview. */
export function withReasons(
  holds: Partial<Record<HoldOperation, Hold>>,
  of: Pick<Held, 'stream' | 'runId'>,
): Record<string, Hold & { reason: string }> {
  return Object.fromEntries(
    Object.entries(holds).map(([name, hold]) => {
      const operation = name as HoldOperation;
      return [name, { ...hold, reason: describeReasonAndCommand({ ...of, ...hold, operation }) }];
    }),
  );
}

/** `60 of 1 000 records sent were refused, more than 50 and more than 10 %, most often refused_400: no; 9 000 wait`. */
function describeRefusals(count: number, { refused, limit, released, approval }: Held['facts']): string {
  const { records = 0, sent = 0, code, message } = refused ?? {};
  const beyond = limit ? `, more than ${formatNumber(limit.count)} and more than ${limit.percent} %` : '';
  const gone = released?.retire ? `, ${formatNumber(released.retire)} of them to be deactivated` : '';
  const allows = approval ? `, and the approval allows ${formatNumber(approval.allowed)}` : '';
  return `${formatNumber(records)} of ${formatNumber(sent)} records sent were refused${beyond}${allows}, most often ${code}: ${message}; ${formatNumber(count)} ${count === 1 ? 'waits' : 'wait'}${gone}`;
}

function describeCount(operation: Counted, count: number, accepted: number): string {
  if (operation === 'overwrite')
    return `${formatNumber(count)} of ${formatNumber(accepted)} records that were never accepted would overwrite objects at the service`;
  const of = accepted === 0 ? '' : ` of ${formatNumber(accepted)}`;
  return `${formatNumber(count)}${of} records would be ${DONE[operation]}`;
}

function describeApproval(approval: Held['facts']['approval']): string {
  if (!approval) return '';
  const { allowed, isOther } = approval;
  const only = isOther
    ? `exactly the ${formatNumber(allowed)} records that were held, and these are others`
    : formatNumber(allowed);
  return `, and the approval allows ${only}`;
}

/** The likely cause, for somebody who has to decide; undefined: nothing in particular. */
function describeLook({ mirrorChange, load, drift, accepted }: Held['facts']): string | undefined {
  if (mirrorChange !== undefined)
    return `the mirror ${mirrorChange}: approve only if its data is whole and not older than before`;
  if (load) return `${describeWholeLoad(load)}; after a load: slotsync sync`;
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
