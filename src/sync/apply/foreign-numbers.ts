// An object has a number that no other record has. Otherwise the service has one object for the external ids of both records,
// and the write has changed it for the other record as well.
import type { PutResult, ServiceObject } from '../../destination/destination.js';
import { recordName, type Outcome, type RecordKey } from '../../state/records/outcome-types.js';
import { checkAgain, doubtNumber } from '../../state/records/record-state.js';
import { readOwners } from '../../state/records/read/owners.js';
import { readOtherOwners } from '../identity/who-has.js';
import type { Write } from '../object/outcome-reasons.js';
import type { SyncDeps } from '../run/sync-deps.js';
import type { BatchWork } from './batch-work.js';

/**
 * Replaces acceptances with the number of an object that was found by another external id, or of a record whose row has the
 * object still: the object of that record is not certain either. A record whose row is gone, or has another external id, had
 * the same object under a former name.
 */
export async function refuseForeignNumbers(
  deps: SyncDeps,
  { stream }: BatchWork,
  { writes, found }: { writes: readonly Write[]; found: ReadonlyMap<string, ServiceObject> },
  results: Map<string, PutResult>,
): Promise<void> {
  const given = writes.flatMap(({ object: { extId }, record: { localKey, destinationId } }) => {
    const result = results.get(extId);
    const isNew = result?.accepted && result.id !== undefined && result.id !== destinationId;
    return isNew ? [{ extId, stream: stream.name, localKey, destinationId: result.id ?? 0 }] : [];
  });
  const refuse = (extId: string, number: number, other: string) => {
    const message = `the service gave '${extId}' the number ${number}, which is that of '${other}'`;
    results.set(extId, { accepted: false, status: undefined, message });
  };
  const answers = answersOf(deps.state);
  for (const { destinationId, ...record } of given) {
    const answer = answers.get(destinationId) ?? { holders: new Map(), unsettled: new Set() };
    answers.set(destinationId, answer);
    answer.holders.set(recordName(record), record);
    answer.unsettled.add(recordName(record));
  }
  const foundAs = new Map([...found.values()].map(({ id, extId }) => [id, extId]));
  const overwritten = given.flatMap(({ extId, destinationId }) => {
    const other = foundAs.get(destinationId);
    if (other === undefined || other === extId) return [];
    refuse(extId, destinationId, other);
    return other;
  });
  for (const { stream: name, localKey } of (await readOwners(deps.state.db, overwritten)).values())
    await checkAgain(deps.state.db, { stream: name, keys: [localKey] });
  for (const { extId, destinationId, owner } of await readOtherOwners(deps, given)) {
    refuse(extId, destinationId, owner.externalId);
    await checkAgain(deps.state.db, { stream: owner.stream, keys: [owner.localKey] });
  }
}

/**
 * Puts objects in doubt whose numbers another batch of this process got meanwhile: neither of the two was settled when the other
 * looked. Call it when the batch is settled. Two processes at the same moment are not seen here; `verify` finds the objects.
 */
export async function doubtSharedNumbers(
  deps: SyncDeps,
  { stream }: Pick<BatchWork, 'stream'>,
  outcomes: Iterable<Outcome>,
): Promise<void> {
  const answers = answersOf(deps.state);
  for (const outcome of outcomes) {
    const { localKey, destinationId = NaN } = { destinationId: undefined, ...outcome };
    const answer = answers.get(destinationId);
    if (!answer?.unsettled.delete(recordName({ stream: stream.name, localKey }))) continue;
    if (answer.unsettled.size === 0) answers.delete(destinationId);
    if (answer.holders.size < 2) continue;
    for (const holder of answer.holders.values())
      await doubtNumber(deps.state.db, { stream: holder.stream, keys: [holder.localKey] });
  }
}

/** The records for which the service answered a number, until all of them are settled. */
interface Answer {
  holders: Map<string, RecordKey>;
  unsettled: Set<string>;
}

const ANSWERS = new WeakMap<object, Map<number, Answer>>();
function answersOf(state: object): Map<number, Answer> {
  const answers = ANSWERS.get(state) ?? new Map<number, Answer>();
  ANSWERS.set(state, answers);
  return answers;
}
