// A batch becomes accepted objects: claim the records, read the rows as they are now, map them, drop what the
// service already holds, read what the mapping does not own whole, write once, and settle every record with
// its outcome in one transaction. Nothing is recorded as accepted that the service did not accept.
import { randomUUID } from 'node:crypto';
import type { Destination, ServiceObject, PutResult } from '../../destination/destination.js';
import type { Context } from '../../destination/client.js';
import type { Lane } from '../../destination/quota/limiter.js';
import { SlotsyncError } from '../../errors.js';
import type { Logger } from '../../logger.js';
import { noMeter, type Meter } from '../../meter.js';
import { settleBatch, type Batch } from '../../state/runs/batches.js';
import {
  claimRecords,
  CLAIM_SECONDS,
  releaseClaim,
  renewClaim,
  type Claim,
  type ClaimedRecord,
} from '../../state/records/claims.js';
import { countOutcomes, RETIREMENT_REFUSED, type Outcome } from '../../state/records/outcomes.js';
import {
  createObject,
  hashObject,
  isSameObject,
  mergeObject,
  type DestinationObject,
} from '../../streams/destination-object.js';
import type { Stream } from '../../streams/stream.js';
import {
  chooseCandidates,
  claimLost,
  findNewOwners,
  type Candidate,
  type CandidateDeps,
  type Settle,
} from './prepare.js';
import { putHalving } from './put-halving.js';
import { deferReserved } from './reserved.js';

export interface ApplyDeps extends CandidateDeps {
  destination: Destination;
  log: Logger;
  meter?: Meter;
  /** Milliseconds since any moment, never going back. */
  clock?: () => number;
}

const CLAIM_MS = CLAIM_SECONDS * 1000;
/** A write ends so long before its claim does. */
const MARGIN_MS = 10_000;
/** A write may take at least this long: before it, a claim that stands for less is renewed. */
const WRITE_MS = 40_000;

/** A batch's claim while it stands. */
interface StandingClaim extends Claim {
  records: ReadonlyMap<string, ClaimedRecord>;
  /** By `clock`. */
  until: number;
}

/**
 * Applies one batch. Returns the batches its run queues next. Throws SlotsyncError when records remain without an
 * outcome; those that have one are settled all the same. Try again with the same batch.
 */
export async function applyBatch(
  deps: ApplyDeps,
  batch: Batch,
  signal?: AbortSignal,
): Promise<{ queue: number[] }> {
  const { state, log, meter = noMeter } = deps;
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
  const { clock = () => performance.now() } = deps;
  const until = clock() + CLAIM_MS;
  const { keys, runId } = batch;
  const externalIds = await deps.mirror.readExternalIdsOfKeys(stream, keys);
  const claimed = await claimRecords(state.db, { token, stream: stream.name, keys, runId, externalIds });
  try {
    const claim = { token, stream: stream.name, records: claimed, until };
    await settleInto(outcomes, { ...deps, clock }, stream, batch, claim, { attempt, signal });
  } catch (error) {
    failure = error;
  }
  const settled = await settleBatch(state, batch, {
    token,
    outcomes: [...outcomes.values()],
    isReferredTo: isReferredTo(deps.streams, stream),
  });
  const open = new Set(settled.remaining);
  meter.settled(
    stream.name,
    countOutcomes([...outcomes.values()].filter(({ localKey }) => !open.has(localKey))),
  );
  if (open.size > 0) {
    const keys = [...claimed.keys()].filter((key) => open.has(key));
    await releaseClaim(state.db, token, { stream: stream.name, keys }, attempt.sent);
  }

  if (settled.remaining.length === 0) {
    log.info({ ...countOutcomes(outcomes.values()) }, 'batch applied');
    return { queue: settled.queue };
  }
  if (failure !== undefined) throw failure;
  if (claimed.size < batch.keys.length) {
    throw new SlotsyncError('claimed', 'another batch is writing some of these records', {});
  }
  throw new SlotsyncError('answer_incomplete', 'the service said nothing final of some objects', {
    facts: { objects: settled.remaining.length },
  });
}

function isReferredTo(streams: ReadonlyMap<string, Stream>, { name }: Stream): boolean {
  return [...streams.values()].some(({ references }) => references.some(({ stream }) => stream === name));
}

async function settleInto(
  outcomes: Map<string, Outcome>,
  deps: ApplyDeps & { clock: () => number },
  stream: Stream,
  batch: Batch,
  claim: StandingClaim,
  run: { attempt: { sent: boolean }; signal: AbortSignal | undefined },
): Promise<void> {
  const context: Context = { lane: batch.lane as Lane, signal: run.signal };
  const settle = (outcome: Outcome) => outcomes.set(outcome.localKey, outcome);

  const open = await chooseCandidates(deps, stream, batch, claim, settle);
  if (open.length === 0) return;

  const merged = await mergeWithThere(deps, stream, batch, open, context, settle);
  const toWrite = await deferReserved(deps, stream, merged, context, settle);
  if (toWrite.length === 0) return;

  const results = new Map<string, PutResult>();
  const write = async (objects: readonly DestinationObject[]) => {
    if (claim.until - deps.clock() < WRITE_MS + MARGIN_MS) {
      const open = toWrite.filter(({ object }) => !results.has(object.extId));
      const keys = open.map(({ candidate }) => candidate.localKey);
      const until = deps.clock() + CLAIM_MS;
      if (!(await renewClaim(deps.state.db, claim, keys))) throw claimLost();
      claim.until = until;
    }
    const within = AbortSignal.timeout(Math.max(0, Math.floor(claim.until - MARGIN_MS - deps.clock())));
    const signal = run.signal ? AbortSignal.any([run.signal, within]) : within;
    run.attempt.sent = true;
    return deps.destination.putObjects(objects, { ...context, signal });
  };
  try {
    await putHalving(
      write,
      toWrite.map(({ object }) => object),
      results,
    );
  } finally {
    for (const { candidate } of toWrite) {
      const result = results.get(candidate.object.extId);
      const outcome = result && toOutcome(candidate, result);
      if (outcome) settle(outcome);
    }
  }
}

/** What is really written: the mapped object over what stands there, where the mapping does not own it whole. */
async function mergeWithThere(
  deps: ApplyDeps,
  stream: Stream,
  batch: Batch,
  candidates: readonly Candidate[],
  context: Context,
  settle: Settle,
): Promise<{ candidate: Candidate; object: DestinationObject }[]> {
  const toRead = candidates.filter(({ retires }) => retires || stream.owns === 'fields');
  const extIds = toRead.map(({ object }) => object.extId);
  const there: Map<string, ServiceObject> =
    extIds.length === 0 ? new Map() : await deps.destination.findObjects(extIds, stream.type, context);
  const heirs = await findNewOwners(deps, stream, candidates);

  return candidates.flatMap((candidate) => {
    const { localKey, object, record } = candidate;
    const found = there.get(object.extId);
    if (found && found.typeId !== stream.type) {
      const message = `'${object.extId}' exists at the service as a ${found.typeId}, not a ${stream.type}`;
      settle({
        localKey,
        outcome: 'dead',
        code: 'external_id_taken',
        message,
        sourceHash: candidate.sourceHash,
      });
      return [];
    }
    if (!candidate.retires) {
      const merged = stream.owns === 'object' ? object : mergeObject(object, found, stream.owned);
      if (found && !record.inDoubt && !batch.isForced && isSameObject(merged, found)) {
        settle({ ...accepted(candidate, found.id), outcome: 'unchanged' });
        return [];
      }
      return [{ candidate, object: merged }];
    }
    if (!found || heirs.has(localKey)) {
      settle({ localKey, outcome: 'gone' });
      return [];
    }
    const kept = found.fields.map(({ fieldId, values }) => [fieldId, values] as const);
    const inactive = createObject(found.extId, found.typeId, false, kept);
    const retired = { ...candidate, objectHash: hashObject(inactive) };
    if (!found.active) {
      settle({ ...accepted(retired, found.id), outcome: 'unchanged' });
      return [];
    }
    return [{ candidate: retired, object: inactive }];
  });
}

function accepted(
  { localKey, object, sourceHash, objectHash, retires }: Candidate,
  destinationId: number | undefined,
) {
  return { localKey, externalId: object.extId, destinationId, sourceHash, objectHash, retired: retires };
}

/** An item the service would take later (408, 425, 429, 5xx) has no outcome yet: the batch is tried again. */
function toOutcome(candidate: Candidate, result: PutResult): Outcome | undefined {
  if (result.accepted) return { ...accepted(candidate, result.id), outcome: 'synced' };
  const { status, message } = result;
  if (status >= 500 || status === 408 || status === 425 || status === 429) return undefined;
  const { localKey, object, sourceHash, retires } = candidate;
  return {
    localKey,
    externalId: object.extId,
    outcome: 'dead',
    code: `${retires ? RETIREMENT_REFUSED : 'refused'}_${status}`,
    message,
    sourceHash,
  };
}
