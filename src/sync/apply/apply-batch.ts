// A batch becomes accepted objects: claim the records, read the rows as they are now, map them, drop what the
// service already holds, read what the mapping does not own whole, write once, and settle every record with
// its outcome in one transaction. Nothing is recorded as accepted that the service did not accept.
import { randomUUID } from 'node:crypto';
import type { ServiceObject, PutResult } from '../../destination/destination.js';
import type { Context } from '../../destination/client.js';
import type { Lane } from '../../destination/quota/limiter.js';
import { SlotsyncError } from '../../errors.js';
import { noMeter } from '../../meter.js';
import { settleBatch } from '../../state/runs/finish-batch.js';
import type { Batch } from '../../state/runs/batches.js';
import {
  claimRecords,
  CLAIM_SECONDS,
  releaseClaim,
  renewClaim,
  type Claim,
  type ClaimedRecord,
} from '../../state/records/claims.js';
import { countOutcomes, type Outcome } from '../../state/records/outcome-types.js';
import { isSameObject, type DestinationObject } from '../../streams/destination-object.js';
import type { Stream } from '../../streams/stream.js';
import { externalIdTaken, ofPut, unchanged, type Settle, type Write } from '../outcome-reasons.js';
import { mergeWithService } from '../render.js';
import { chooseRetirements } from '../retire.js';
import type { SyncDeps } from '../sync-deps.js';
import { claimLost, prepareBatch } from './prepare.js';
import { putHalving } from './put-halving.js';

export interface ApplyDeps extends SyncDeps {
  /** Milliseconds since any moment, never going back. */
  clock?: () => number;
}

const CLAIM_MS = CLAIM_SECONDS * 1000;
/** A write ends so long before its claim does. */
const MARGIN_MS = 10_000;
/** A write may take at least this long: before it, a claim that stands for less is renewed. */
const WRITE_MS = 40_000;

/** `until`: by `clock`. */
type StandingClaim = Claim & { records: ReadonlyMap<string, ClaimedRecord>; until: number };

/**
 * Applies one batch; its run may then be advanced. Throws SlotsyncError when records remain without an outcome; those
 * that have one are settled all the same. Try again with the same batch.
 */
export async function applyBatch(deps: ApplyDeps, batch: Batch, signal?: AbortSignal): Promise<void> {
  const { state, log, meter = noMeter, clock = () => performance.now() } = deps;
  const stream = deps.streams.get(batch.stream);
  if (!stream) {
    throw new SlotsyncError('configuration', `the configuration has no stream '${batch.stream}' any more`, {
      remedy: 'Put it back, or let the run end and start another.',
    });
  }
  const token = `batch ${batch.id} ${randomUUID()}`;
  const outcomes = new Map<string, Outcome>();
  const attempt = { sent: false };
  let failure: unknown;
  const until = clock() + CLAIM_MS;
  const { keys, runId } = batch;
  const externalIds = await deps.mirror.readExternalIdsOfKeys(stream, keys);
  const claimed = await claimRecords(state.db, { token, stream: stream.name, keys, runId, externalIds });
  const claim = { token, stream: stream.name, records: claimed, until };
  try {
    await settleInto(outcomes, { ...deps, clock }, stream, batch, claim, { attempt, signal });
  } catch (error) {
    failure = error;
  }
  const remaining = await settleBatch(state, batch, {
    token,
    outcomes: [...outcomes.values()],
    isReferredTo: [...deps.streams.values()].some(({ references }) =>
      references.some((parent) => parent.stream === stream.name),
    ),
  });
  const open = new Set(remaining);
  const settled = [...outcomes.values()].filter(({ localKey }) => !open.has(localKey));
  meter.settled(stream.name, countOutcomes(settled));
  if (open.size > 0) {
    const claimedOpen = [...claimed.keys()].filter((key) => open.has(key));
    await releaseClaim(state.db, claim, claimedOpen, attempt.sent);
  }

  if (remaining.length === 0) {
    log.info({ ...countOutcomes(outcomes.values()) }, 'batch applied');
    return;
  }
  if (failure !== undefined) throw failure;
  if (claimed.size < keys.length)
    throw new SlotsyncError('claimed', 'another batch is writing some of these records');
  throw new SlotsyncError('answer_incomplete', 'the service said nothing final of some objects', {
    facts: { objects: remaining.length },
  });
}

/** Gives the records of a claimed batch their outcomes. What is settled stays settled when it throws. */
async function settleInto(
  outcomes: Map<string, Outcome>,
  deps: ApplyDeps & { clock: () => number },
  stream: Stream,
  batch: Batch,
  claim: StandingClaim,
  run: { attempt: { sent: boolean }; signal: AbortSignal | undefined },
): Promise<void> {
  const context: Context = { lane: batch.lane as Lane, signal: run.signal };
  const settle = (outcome: Outcome) => {
    outcomes.set(outcome.localKey, outcome);
    return [];
  };

  const prepared = await prepareBatch(deps, stream, batch, claim, settle);
  const toRead = prepared.filter(({ retires }) => retires || stream.owns === 'fields');
  const extIds = toRead.map(({ object }) => object.extId);
  const found =
    extIds.length === 0
      ? new Map<string, ServiceObject>()
      : await deps.destination.findObjects(extIds, stream.type, context);
  const retirements = prepared.filter(({ retires }) => retires);
  const toWrite = [
    ...chooseWrites(stream, batch, prepared, found, settle),
    ...(await chooseRetirements(deps, stream, retirements, found, context, settle)),
  ];
  if (toWrite.length === 0) return;

  const results = new Map<string, PutResult>();
  const put = async (objects: readonly DestinationObject[]) => {
    await renewWhenOld(deps, claim, () => toWrite.filter(({ object }) => !results.has(object.extId)));
    const within = AbortSignal.timeout(Math.max(0, Math.floor(claim.until - MARGIN_MS - deps.clock())));
    const signal = run.signal ? AbortSignal.any([run.signal, within]) : within;
    run.attempt.sent = true;
    return deps.destination.putObjects(objects, { ...context, signal });
  };
  const objects = toWrite.map(({ object }) => object);
  try {
    await putHalving(put, objects, results);
  } finally {
    const isAnyAccepted = [...results.values()].some(({ accepted }) => accepted);
    for (const write of toWrite) {
      const result = results.get(write.object.extId);
      const final = result && ofPut(write, result, isAnyAccepted);
      if (final) settle(final);
    }
  }
}

/** Renews a claim that might end before a write does. Throws `claim_lost` when another batch has taken it over. */
async function renewWhenOld(
  { state, clock }: Pick<ApplyDeps, 'state'> & { clock: () => number },
  claim: StandingClaim,
  openWrites: () => readonly Write[],
): Promise<void> {
  if (claim.until - clock() >= WRITE_MS + MARGIN_MS) return;
  const keys = openWrites().map(({ record }) => record.localKey);
  const until = clock() + CLAIM_MS;
  if (!(await renewClaim(state.db, claim, keys))) throw claimLost();
  claim.until = until;
}

/** The writes of rows, merged with what stands at the service; what would change nothing is settled. */
function chooseWrites(
  stream: Stream,
  { isForced }: Batch,
  prepared: readonly Write[],
  found: ReadonlyMap<string, ServiceObject>,
  settle: Settle,
): Write[] {
  return prepared.flatMap((write) => {
    if (write.retires) return [];
    const standing = found.get(write.object.extId);
    if (standing && standing.typeId !== stream.type)
      return settle(externalIdTaken(write, standing, stream.type));
    const merged = mergeWithService(stream, write.object, standing);
    if (standing && !write.record.inDoubt && !isForced && isSameObject(merged, standing))
      return settle(unchanged(write, standing.id));
    return [{ ...write, object: merged }];
  });
}
