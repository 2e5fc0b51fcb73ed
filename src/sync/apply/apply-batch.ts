// Applies a batch of keys: claims records and objects, reads and maps the current rows, skips objects that are already
// equal, reads objects to merge or check, and writes. Stores all outcomes in one transaction. An object counts as
// accepted only after the service has accepted it.
import type { PutObject } from '../../destination/destination.js';
import type { Lane } from '../../destination/quota/limiter.js';
import { codeOf, messageWithDetail, SlotsyncError } from '../../errors/errors.js';
import type { ClosedGate } from '../../state/gates/held.js';
import { noMeter } from '../../process/meter.js';
import { noteInSpan } from '../../process/tracing.js';
import { letGo, transferObjects } from '../../state/records/transfer-objects.js';
import { countOutcomes, type Outcome, type RecordKey } from '../../state/records/outcome-types.js';
import { isToBeSent, type Batch } from '../../state/runs/batches.js';
import { settleBatch } from '../../state/runs/finish-batch.js';
import { closeGate } from '../../state/gates/close-gates.js';
import { keptOfWrite, type HistoryRule } from '../../state/history.js';
import { MOST_OBJECTS } from '../../streams/config-schema.js';
import { patchOf, writtenFields } from '../../streams/destination-object.js';
import type { Stream } from '../../streams/stream.js';
import { childrenOf, findReferrers } from '../identity/referrers.js';
import { createRefusals, noAnswers, type Refusals } from '../limits/refusals.js';
import { failsOnObject, newRefusal, ofPut, type Write } from '../object/decide-outcome.js';
import { ownedOf } from '../object/render.js';
import { chooseRetirements } from '../object/retire.js';
import { requireLookups } from '../run/current-streams.js';
import { claimBatch, type ClaimDeps, type BatchWork } from './batch-claim.js';
import { chooseWrites, readObjectsThere } from './choose-writes.js';
import { openLines, type RequestFiller } from './fill-requests.js';
import { doubtSharedNumbers, refuseForeignNumbers } from './foreign-numbers.js';
import { matchObjects } from './match-objects.js';
import {
  FAILS_ON_OBJECT,
  NO_FAILURES,
  suspectsOf,
  type BatchAttempt,
  type EarlierFailures,
} from './narrow-failures.js';
import { prepareBatch } from './prepare.js';
import type { Written } from './send-request.js';

export interface ApplyDeps extends ClaimDeps {
  /** Lines in which batches share requests. If undefined, this batch has requests of its own. */
  requests?: RequestFiller;
  /** Streams that a run no longer sends because of refusals. If undefined, only this batch's refusals count. */
  refusals?: Refusals;
  /** Failures of earlier attempts of this batch, by which failing objects are found. */
  earlier?: EarlierFailures;
}

/** Milliseconds for which an object that was read may decide a write. After that, the object is read again. */
const READING_GOOD_FOR_MS = 10_000;

/**
 * Applies one batch; its run may then be advanced. The records of a frozen stream are held instead. Throws SlotsyncError if records
 * remain without an outcome, after the others were settled: try again with the same batch.
 */
export async function applyBatch(deps: ApplyDeps, batch: Batch, signal?: AbortSignal): Promise<void> {
  const { state, log, meter = noMeter } = deps;
  const stream = deps.streams.get(batch.stream);
  if (!stream) {
    throw new SlotsyncError('configuration', `the configuration has no stream '${batch.stream}' any more`, {
      remedy: 'Add the stream to the configuration again, or wait until the run has ended and start another.',
    });
  }
  if (batch.frozen !== null) {
    const facts = { accepted: 0, message: batch.frozen };
    const gate = { operation: '*', reason: 'frozen', runId: batch.runId, facts } as const;
    const records = await closeGate(state.db, stream.name, gate);
    log.info({ records }, 'batch not sent: its stream is frozen');
    return;
  }
  requireLookups(stream);
  const claim = await claimBatch(deps, stream, batch);
  const outcomes = new Map<string, Outcome>();
  /** Keys of records whose write was sent without a final answer. */
  const unanswered = new Set<string>();
  const note = (outcome: Outcome) => {
    outcomes.set(outcome.localKey, outcome);
    return [];
  };
  for (const localKey of claim.excepted) note({ localKey, outcome: 'skipped' });
  const context = { lane: batch.lane as Lane, signal };
  const { refusals = createRefusals() } = deps;
  const answers = noAnswers();
  let failure: unknown;
  try {
    await noteOutcomes(deps, { batch, stream, claim, context, note, refusals, answers }, unanswered);
  } catch (error) {
    failure = error;
  }
  for (const [key, outcome] of outcomes) if (!('isUnanswered' in outcome)) unanswered.delete(key);
  // Settles in five steps. First: find the records that refer to a changed one. Unless they are found, the changed ones stay open.
  const changed = listChanged(stream, outcomes);
  const referrers = await findReferrers(deps, changed).catch((error: unknown) => {
    failure ??= error;
    for (const { localKey } of changed) outcomes.delete(localKey);
    return undefined;
  });
  // Second: write what needs the claim. A renewal would lock the same rows, in an order of its own.
  await claim.stopRenewing();
  await claim.doubt([...unanswered]);
  const kept = [...outcomes.values()].flatMap((one) =>
    'keptBy' in one && one.keptBy && one.externalId
      ? letGo({ stream: stream.name, localKey: one.localKey, externalId: one.externalId }, one.keptBy)
      : [],
  );
  if (kept.length > 0) await state.db.transaction((tx) => transferObjects(tx, kept, claim.right));
  // Third: write the outcomes, end the batch and release the claim, in one transaction.
  const settled = await settleBatch(state, batch, {
    token: claim.right.token,
    outcomes: [...outcomes.values()],
    isReferredTo: childrenOf(deps.streams, stream.name).length > 0,
    checks: referrers?.checks,
    answered: answers.answered,
    // Releases the claims on all keys. If another process has ended this batch, no key is open, but claims may be left.
    releasing: claim.releasing(batch.keys.filter((key) => !outcomes.has(key))),
  });
  // Fourth: check what rows and other batches have changed meanwhile.
  await referrers?.checkLater();
  await doubtSharedNumbers(deps, claim.right.token);
  // Fifth: close a gate, which takes the open records as well, because their claim is released. Another batch may have closed it.
  let isLeft = false;
  const gate = gateOf(failure, batch);
  if (gate && settled.open.length > 0) {
    const held = await closeGate(state.db, stream.name, gate);
    if (held > 0) log.warn({ records: held, reason: gate.reason }, 'unsent records of the stream are held');
    isLeft = !(await isToBeSent(state.db, batch.id, claim.right.token));
  }
  const counts = countOutcomes(settled.written);
  meter.settled(stream.name, counts);
  const noted = Object.entries(counts).map(([outcome, count]) => [`slotsync.records.${outcome}`, count]);
  noteInSpan(Object.fromEntries(noted));

  if (settled.open.length === 0 || isLeft) {
    log.info({ ...counts }, 'batch applied');
    return;
  }
  if (failure !== undefined) throw failure;
  if (unanswered.size === 0)
    throw new SlotsyncError('claimed', 'another batch is writing some of these records');
  throw new SlotsyncError('answer_incomplete', 'the service gave no final answer for some objects', {
    facts: { objects: settled.open.length },
  });
}

/** Returns the gate to close after a failure, for the stream or the operation. Undefined if no gate is closed. */
function gateOf(failure: unknown, { runId, operation }: Batch): ClosedGate | undefined {
  if (failure instanceof RefusedTooOften)
    return { operation: '*', reason: 'refused', runId, facts: { accepted: 0 } };
  if (codeOf(failure) !== 'forbidden') return undefined;
  const facts = { accepted: 0, message: messageWithDetail(failure) };
  return { operation: operation ?? '*', reason: 'forbidden', runId, facts };
}

/** Error that ends the batch because the service refused too many records of the stream. */
class RefusedTooOften extends SlotsyncError {
  constructor() {
    super(
      'run_stopped',
      'the service refused too many records of the stream, so the rest of the batch is not sent',
    );
  }
}

/**
 * Notes the outcomes of a claimed batch. Outcomes noted before an error remain. Adds keys of records to `unanswered`
 * when their writes are sent.
 */
async function noteOutcomes(deps: ApplyDeps, work: BatchWork, unanswered: Set<string>): Promise<void> {
  const { destination, clock = () => performance.now(), requests = openLines(deps) } = deps;
  const { batch, stream, claim, context, note, refusals, answers } = work;
  const isStopped = () => refusals.count(deps.state.db, stream, batch.runId, answers);
  const attempt: BatchAttempt = { earlier: deps.earlier ?? NO_FAILURES, isAnswered: false };
  let { writes: rest, seen } = await matchObjects(deps, work, await prepareBatch(deps, work));
  /** Number of times in a row that the writes got their slots too late, so that objects had to be read again. */
  let late = 0;
  /** Milliseconds that it took to choose the last writes, including searches for reservations. */
  let choosing = 0;
  // Reads objects in small groups, so that each group can be sent soon after it was read.
  while (rest.length > 0) {
    const asked = { writes: rest.slice(0, MOST_OBJECTS), seen };
    rest = rest.slice(MOST_OBJECTS);
    const { isRead, readable: writes, ...standing } = await readObjectsThere(deps, work, asked);
    const { unnamed } = standing;
    const readAt = clock();
    // Objects may be older after each late slot. Otherwise nothing would be sent while slots are scarce.
    const goodFor = Math.max(READING_GOOD_FOR_MS * 2 ** late, late > 0 ? 2 * choosing : 0);
    const goodUntil = isRead ? readAt + goodFor : Infinity;
    const retirements = writes.filter(({ retires }) => retires);
    const toWrite = [
      ...chooseWrites(deps, work, writes, standing),
      ...(await chooseRetirements(deps, stream, { batch, retirements, ...standing }, context, note)),
    ];
    choosing = clock() - readAt;
    seen = new Map();
    if (toWrite.length === 0) continue;
    const byExtId = new Map(toWrite.map((write) => [write.object.extId, write]));
    const written = await requests.put(stream, context, {
      // If an object has no external id at the service, the write names its number and assigns the external id.
      objects: toWrite.map(({ object: whole, link, record, retires, kept, standing: before }): PutObject => {
        const patched = retires
          ? new Set(stream.retireFields.keys())
          : without(ownedOf(stream, before), kept);
        const object = destination.patches ? patchOf(whole, patched) : whole;
        return unnamed.has(object.extId)
          ? { ...object, id: link?.destinationId ?? record.destinationId ?? undefined }
          : object;
      }),
      suspects: suspectsOf(toWrite),
      attempt,
      goodUntil,
      isAgain: late > 0,
      claim: {
        async confirm() {
          if (await isStopped()) throw new RefusedTooOften();
          await claim.confirm();
        },
      },
      answered: (extId, result) => {
        const write = byExtId.get(extId);
        if (!write) return;
        answers.answered++;
        const refusal = newRefusal(write, result);
        if (refusal) Object.assign(answers, { ...refusal, refused: answers.refused + 1 });
      },
    });
    // If the answer contains no numbers, uses the numbers of the objects as they were read.
    for (const [extId, result] of written.results)
      if (result.accepted) result.id ??= standing.found.get(extId)?.id;
    await refuseForeignNumbers(deps, work, { writes: toWrite, found: standing.found }, written.results);
    noteWritten(deps, work, toWrite, written);
    const keysOf = (extIds: ReadonlySet<string>) =>
      new Set(toWrite.flatMap(({ object, record }) => (extIds.has(object.extId) ? record.localKey : [])));
    for (const key of keysOf(written.sent)) unanswered.add(key);
    const isRefusedTooOften = await isStopped();
    if (written.failure) throw written.failure.error;
    if (isRefusedTooOften && (rest.length > 0 || written.unsent.size > 0)) throw new RefusedTooOften();
    const unsent = keysOf(written.unsent);
    rest = [...writes.filter(({ record }) => unsent.has(record.localKey)), ...rest];
    late = unsent.size > 0 ? late + 1 : 0;
  }
}

/** Returns the fields that a write may change, without those whose values field rules keep. */
function without(owned: ReadonlySet<string>, kept: Write['kept'] = []): ReadonlySet<string> {
  const stays = new Set(kept.map(({ field }) => field));
  return stays.size === 0 ? owned : new Set([...owned].filter((field) => !stays.has(field)));
}

/** Notes the outcomes of objects that the service has answered, or on which it always fails. */
function noteWritten(
  history: HistoryRule,
  { stream, note }: BatchWork,
  toWrite: readonly Write[],
  { results, culprits, isAnyAccepted }: Written,
): void {
  for (const write of toWrite) {
    const { extId } = write.object;
    const result = results.get(extId);
    const final = result && ofPut(write, result, isAnyAccepted);
    const isFirst = write.record.objectHash === null;
    if (result?.accepted && final && 'objectHash' in final && final.objectHash !== undefined) {
      const written = writtenFields(write.object, write.standing, isFirst ? undefined : stream.owned);
      Object.assign(final, keptOfWrite(written, history));
    }
    if (final) note(final);
    else if (culprits.has(extId)) note(failsOnObject(write, FAILS_ON_OBJECT, culprits.get(extId)));
  }
}

/** Returns the records that lose their object by these outcomes. Records that refer to these are then checked. */
function listChanged({ name }: Stream, outcomes: ReadonlyMap<string, Outcome>): RecordKey[] {
  return [...outcomes.values()].flatMap((one) => {
    const isLost =
      one.outcome === 'forgotten'
        ? one.externalId !== undefined
        : one.outcome === 'dead' && (one.changedId ?? one.keptBy);
    return isLost ? [{ stream: name, localKey: one.localKey }] : [];
  });
}
