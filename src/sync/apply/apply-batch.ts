// A batch becomes accepted objects: claim the records and objects, read the rows as they are now, map them, drop what the
// service already holds, read what the mapping does not own whole or what is in doubt, write once, and settle every record
// with its outcome in one transaction. Nothing is recorded as accepted that the service did not accept.
import { setTimeout as sleep } from 'node:timers/promises';
import type { FoundObject, PutObject, ServiceObject, PutResult } from '../../destination/destination.js';
import type { Context } from '../../destination/client.js';
import type { Lane } from '../../destination/quota/limiter.js';
import { SlotsyncError } from '../../errors.js';
import { noMeter } from '../../meter.js';
import { settleBatch } from '../../state/runs/finish-batch.js';
import { isToBeSent, type Batch } from '../../state/runs/batches.js';
import { countOutcomes, type Outcome, type RecordKey } from '../../state/records/outcome-types.js';
import { MOST_OBJECTS } from '../../streams/config-schema.js';
import { isSameObject } from '../../streams/destination-object.js';
import type { Stream } from '../../streams/stream.js';
import { requireLookups } from '../current-streams.js';
import {
  externalIdChangedThere,
  externalIdTaken,
  failsOnObject,
  linkBroken,
  ofPut,
  unchanged,
  type Settle,
  type Write,
} from '../outcome-reasons.js';
import { noteInSpan } from '../../tracing.js';
import { childrenOf, findReferrers } from '../identity/referrers.js';
import { findGivers, whoHas } from '../identity/who-has.js';
import { mergeWithService } from '../render.js';
import { chooseRetirements } from '../retire.js';
import { openRequests, type RequestFiller } from './fill-requests.js';
import { FAILS_ON_OBJECT, NO_FAILURES, type Attempt, type EarlierFailures } from './narrow-failures.js';
import { claimBatch, type BatchClaim, type ClaimDeps } from './batch-claim.js';
import { matchObjects, type Matched } from './match-objects.js';
import { prepareBatch } from './prepare.js';

export interface ApplyDeps extends ClaimDeps {
  /** The lines that batches share to fill their requests; unless given, each batch has its own. */
  requests?: RequestFiller;
  /** What earlier attempts of the batch have shown. */
  earlier?: EarlierFailures;
}

/** What was read at the service decides what is written for so long; what is not sent by then is read again. */
const READING_GOOD_FOR_MS = 10_000;

/**
 * Applies one batch; its run may then be advanced. Throws SlotsyncError when records remain without an outcome; those
 * that have one are settled all the same. Try again with the same batch.
 */
export async function applyBatch(deps: ApplyDeps, batch: Batch, signal?: AbortSignal): Promise<void> {
  const { state, log, meter = noMeter } = deps;
  const stream = deps.streams.get(batch.stream);
  if (!stream) {
    throw new SlotsyncError('configuration', `the configuration has no stream '${batch.stream}' any more`, {
      remedy: 'Put it back, or let the run end and start another.',
    });
  }
  requireLookups(stream);
  const claim = await claimBatch(deps, stream, batch);
  const outcomes = new Map<string, Outcome>();
  /** Keys of records of which a write was sent and nothing final is known. */
  const unanswered = new Set<string>();
  let failure: unknown;
  let settled: Awaited<ReturnType<typeof settleBatch>>;
  try {
    await settleInto(outcomes, deps, stream, batch, claim, { unanswered, signal });
  } catch (error) {
    failure = error;
  }
  for (const [key, outcome] of outcomes) if (!('isUnanswered' in outcome)) unanswered.delete(key);
  const changed = listChanged(stream, outcomes);
  const referrers = await findReferrers(deps, changed).catch((error: unknown) => {
    failure ??= error;
    for (const { localKey } of changed) outcomes.delete(localKey);
    return undefined;
  });
  try {
    await claim.doubt([...unanswered]);
    settled = await settleBatch(state, batch, {
      token: claim.token,
      outcomes: [...outcomes.values()],
      isReferredTo: childrenOf(deps.streams, stream.name).length > 0,
      lookAtReferrers: referrers?.look,
    });
    // Not only of open keys: a batch that has ended elsewhere has none, and may still hold claims.
    await claim.release(batch.keys.filter((key) => !outcomes.has(key)));
  } finally {
    claim.stopRenewing();
  }
  await referrers?.lookAtLater();
  const counts = countOutcomes(settled.written);
  meter.settled(stream.name, counts);
  noteInSpan(
    Object.fromEntries(
      Object.entries(counts).map(([outcome, count]) => [`slotsync.records.${outcome}`, count]),
    ),
  );

  if (settled.open.length === 0) {
    log.info({ ...counts }, 'batch applied');
    return;
  }
  if (failure !== undefined) throw failure;
  if (unanswered.size === 0)
    throw new SlotsyncError('claimed', 'another batch is writing some of these records');
  throw new SlotsyncError('answer_incomplete', 'the service said nothing final of some objects', {
    facts: { objects: settled.open.length },
  });
}

/** Gives the records of a claimed batch their outcomes. What is settled stays settled when it throws. */
async function settleInto(
  outcomes: Map<string, Outcome>,
  deps: ApplyDeps,
  stream: Stream,
  batch: Batch,
  claim: BatchClaim,
  run: { unanswered: Set<string>; signal: AbortSignal | undefined },
): Promise<void> {
  const context: Context = { lane: batch.lane as Lane, signal: run.signal };
  const { clock = () => performance.now() } = deps;
  const settle = (outcome: Outcome) => {
    outcomes.set(outcome.localKey, outcome);
    return [];
  };

  const matched = await matchObjects(
    deps,
    stream,
    { claim, writes: await prepareBatch(deps, stream, batch, claim, settle) },
    context,
    settle,
  );
  const { requests: filler = openRequests(deps), earlier = NO_FAILURES } = deps;
  const attempt = { earlier, isAnswered: false };
  const put = { requests: filler, attempt, context, unanswered: run.unanswered };
  let requests = 0;
  async function require(): Promise<void> {
    // Slot first, clock second: however long the quota is waited for, the claim outlives the request.
    await claim.require();
    // Whether its run stands was seen when the batch was taken; much of it may be sent later.
    if (requests++ > 0 && !(await isToBeSent(deps.state.db, batch.id)))
      throw new SlotsyncError(
        'run_stopped',
        'its run was paused or cancelled, so no more of the batch is sent',
      );
  }
  let { writes: rest, seen } = matched;
  /** How often in a row a reading was too old before its writes had their slots. */
  let late = 0;
  /** Milliseconds that choosing what is written took then, which asks for bookings. */
  let choosing = 0;
  // What stands at the service is read for so many as are soon sent.
  while (rest.length > 0) {
    const writes = rest.slice(0, MOST_OBJECTS);
    rest = rest.slice(MOST_OBJECTS);
    const { isRead, ...standing } = await readObjects(deps, stream, { writes, seen }, context);
    const { unnamed } = standing;
    const readAt = clock();
    // Good for longer each time: where slots are waited for even longer, everything is still sent.
    const goodFor = Math.max(READING_GOOD_FOR_MS * 2 ** late, late > 0 ? 2 * choosing : 0);
    const goodUntil = isRead ? readAt + goodFor : Infinity;
    const retirements = writes.filter(({ retires }) => retires);
    const toWrite = [
      ...chooseWrites(deps, stream, batch, writes, standing, settle),
      ...(await chooseRetirements(deps, stream, { batch, retirements, ...standing }, context, settle)),
    ];
    choosing = clock() - readAt;
    seen = new Map();
    if (toWrite.length === 0) continue;
    const chosen = { require, toWrite, unnamed, goodUntil, isAgain: late > 0 };
    const unsent = await putWrites(put, stream, chosen, settle);
    rest = [...writes.filter(({ record }) => unsent.has(record.localKey)), ...rest];
    late = unsent.size > 0 ? late + 1 : 0;
  }
}

/**
 * Writes objects, and settles each by its answer. Returns the keys of those that were not sent before `goodUntil`. Throws
 * the first failure of a request; what was answered is settled all the same.
 */
async function putWrites(
  put: {
    requests: RequestFiller;
    attempt: Attempt;
    context: Context;
    unanswered: Set<string>;
  },
  stream: Stream,
  chosen: {
    /** Called right before each request. What it throws keeps these objects out of it. */
    require: () => Promise<void>;
    toWrite: readonly Write[];
    unnamed: ReadonlySet<string>;
    goodUntil: number;
    isAgain: boolean;
  },
  settle: Settle,
): Promise<Set<string>> {
  const { require, toWrite, unnamed, goodUntil, isAgain } = chosen;
  const keys = new Map(toWrite.map(({ object, record }) => [object.extId, record.localKey]));
  const results = new Map<string, PutResult>();
  const culprits = new Map<string, unknown>();
  const suspects = toWrite.filter(({ record }) => record.errorCode === FAILS_ON_OBJECT);
  let isAnyAccepted = false;
  try {
    const unsent = await put.requests.put(stream, put.context, {
      // An object without an external id is named by its number, and gets one.
      objects: toWrite.map(({ object, link, record }): PutObject =>
        unnamed.has(object.extId)
          ? { ...object, id: link?.destinationId ?? record.destinationId ?? undefined }
          : object,
      ),
      results,
      suspects: new Set(suspects.map(({ object }) => object.extId)),
      attempt: put.attempt,
      noteCulprit: ({ extId }, error) => culprits.set(extId, error),
      goodUntil,
      isAgain,
      require,
      // Those that the answer settles are taken off again.
      noteSent: (objects) => objects.forEach(({ extId }) => put.unanswered.add(keys.get(extId) ?? '')),
      noteAccepted: () => (isAnyAccepted = true),
    });
    return new Set(unsent.map(({ extId }) => keys.get(extId) ?? ''));
  } finally {
    for (const write of toWrite) {
      const result = results.get(write.object.extId);
      const final = result && ofPut(write, result, isAnyAccepted);
      if (final) settle(final);
      else if (culprits.has(write.object.extId))
        settle(failsOnObject(write, FAILS_ON_OBJECT, culprits.get(write.object.extId)));
    }
  }
}

/** Objects as they stand at the service, by the external id that their writes give them. */
interface Standing {
  found: ReadonlyMap<string, ServiceObject>;
  /** Those that have no external id yet. */
  unnamed: ReadonlySet<string>;
  /** Those that were accepted, and have another external id at the service now, or none. */
  renamed: ReadonlyMap<string, FoundObject>;
}

/**
 * Reads the objects that must be looked at before they are written: those the mapping does not own whole, those in doubt or
 * retired, those that were never accepted, which may be another type's, and those that records are linked to, which nothing
 * is made in place of.
 */
async function readObjects(
  deps: ApplyDeps,
  stream: Stream,
  { writes, seen }: Matched,
  context: Context,
): Promise<Standing & { isRead: boolean }> {
  const { destination } = deps;
  const found = new Map([...seen].flatMap(([extId, object]) => (object ? [[extId, object] as const] : [])));
  const unnamed = new Set<string>();
  const toRead = writes.filter(
    ({ retires, record, link, object }) =>
      !seen.has(object.extId) &&
      (retires || link || stream.owns === 'fields' || record.objectHash === null || isLookedAt(record)),
  );
  const extIds = toRead.flatMap(({ object, link }) => (link?.assignsId ? [] : object.extId));
  const find = async (ids: readonly string[]) => {
    if (ids.length === 0) return;
    for (const [extId, object] of await destination.findObjects(ids, stream.type, context))
      found.set(extId, object);
  };
  await find(extIds);
  // A record is not forgotten because of a find that lags behind its latest acceptance: it is asked once more after that.
  const young = toRead.filter(
    ({ retires, record, object }) => retires && !found.has(object.extId) && isJustAccepted(deps, record),
  );
  if (young.length > 0) {
    const seconds = Math.max(...young.map(({ record }) => lagLeft(deps, record)));
    await sleep(seconds * 1000, undefined, context.signal ? { signal: context.signal } : {});
    await find(young.map(({ object }) => object.extId));
  }
  const isRead = seen.size > 0 || toRead.length > 0;
  const absent = toRead.filter(({ object, link }) => !link?.assignsId && !found.has(object.extId));
  const renamed = await findRenamedThere(deps, stream, absent, context);
  // One that has lost its external id gets it back, where the service takes that.
  if (destination.assignsExternalIds)
    for (const [extId, object] of renamed)
      if (object.extId === undefined) {
        found.set(extId, { ...object, extId });
        unnamed.add(extId);
        renamed.delete(extId);
      }
  const links = toRead.flatMap(({ link }) => (link?.assignsId ? link : []));
  if (links.length === 0) return { found, unnamed, renamed, isRead };
  const numbers = links.flatMap(({ destinationId }) => destinationId ?? []);
  const byNumber = await destination.findObjectsByNumber(numbers, stream.type, context);
  for (const { externalId, destinationId } of links) {
    const object = byNumber.get(destinationId ?? NaN);
    // One that has got another external id is not the object that was linked any more.
    if (!object || (object.extId !== undefined && object.extId !== externalId)) continue;
    found.set(externalId, { ...object, extId: externalId });
    if (object.extId === undefined) unnamed.add(externalId);
  }
  return { found, unnamed, renamed, isRead };
}

/**
 * Of objects that were accepted and are not found by their external ids: those that the service has under another one, or
 * under none, by the external id they had. An object that anybody else has is not the one that was accepted: the service
 * has given the number anew.
 */
async function findRenamedThere(
  deps: ApplyDeps,
  stream: Stream,
  absent: readonly Write[],
  context: Context,
): Promise<Map<string, FoundObject>> {
  const numbers = new Map(
    absent.flatMap(({ record, object }) =>
      record.destinationId === null || record.objectHash === null
        ? []
        : [[record.destinationId, object.extId] as const],
    ),
  );
  if (numbers.size === 0) return new Map();
  const objects = await deps.destination.findObjectsByNumber([...numbers.keys()], stream.type, context);
  const ofType = [...objects.values()].filter(({ typeId }) => typeId === stream.type);
  const ids = ofType.flatMap(({ extId }) => extId ?? []);
  const [holders, givers] = [await whoHas(deps, ids), await findGivers(deps, ids)];
  return new Map(
    ofType
      .filter(({ id, extId = '' }) => extId !== numbers.get(id) && !holders.has(extId) && !givers.has(extId))
      .map((object) => [numbers.get(object.id) ?? '', object] as const),
  );
}

/** So lately that a find may still answer what was before. */
function isJustAccepted(deps: Pick<ApplyDeps, 'destination'>, record: Write['record']): boolean {
  return lagLeft(deps, record) > 0;
}

const lagLeft = (
  { destination }: Pick<ApplyDeps, 'destination'>,
  { objectHash, acceptedSecondsAgo }: Write['record'],
): number => destination.findLagSeconds - ((objectHash === null ? null : acceptedSecondsAgo) ?? Infinity);

/** In doubt, and no write is under way any more that could change the object after it was looked at. */
function isLookedAt({ inDoubt, isCheckPending }: Write['record']): boolean {
  return inDoubt && !isCheckPending;
}

/** The writes of rows, merged with what stands at the service; what would change nothing is settled. */
function chooseWrites(
  deps: ApplyDeps,
  stream: Stream,
  { isForced }: Batch,
  prepared: readonly Write[],
  { found, unnamed, renamed }: Standing,
  settle: Settle,
): Write[] {
  return prepared.flatMap((write) => {
    if (write.retires) return [];
    const { record, link } = write;
    const standing = found.get(write.object.extId);
    const elsewhere = renamed.get(write.object.extId);
    if (elsewhere) return settle(externalIdChangedThere(write, elsewhere));
    // What contradicts an acceptance of a moment ago may be older than it: it is written over.
    const isCurrent = record.objectHash === write.objectHash || !isJustAccepted(deps, record);
    if (link && !standing && isCurrent) return settle(linkBroken(write, link));
    if (standing && standing.typeId !== stream.type)
      return settle(externalIdTaken(write, standing, stream.type));
    const merged = mergeWithService(stream, write.object, standing);
    const isSettling = !record.inDoubt || isLookedAt(record);
    const isNamed = !unnamed.has(write.object.extId);
    if (standing && isNamed && isSettling && isCurrent && !isForced && isSameObject(merged, standing))
      return settle(unchanged(write, standing.id));
    return [{ ...write, object: merged }];
  });
}

/** Records that stand for no object any more by these outcomes, or for one that their row does not give. */
function listChanged({ name }: Stream, outcomes: ReadonlyMap<string, Outcome>): RecordKey[] {
  return [...outcomes.values()].flatMap((one) => {
    const isLost =
      one.outcome === 'forgotten' ? one.externalId !== undefined : 'changedId' in one && one.changedId;
    return isLost ? [{ stream: name, localKey: one.localKey }] : [];
  });
}
