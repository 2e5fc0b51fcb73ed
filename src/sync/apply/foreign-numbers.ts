// An object has a number that no other record has. Otherwise the service has one object for the external ids of both records,
// and the write has changed it for the other record as well.
import type { PutResult, ServiceObject } from '../../destination/destination.js';
import { recordName, type RecordKey } from '../../state/records/outcome-types.js';
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
  { stream, claim }: BatchWork,
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
  const { holdersOf, numbersOf } = answersOf(deps.state);
  for (const { destinationId, ...record } of given)
    holdersOf.set(destinationId, [
      ...(holdersOf.get(destinationId) ?? []),
      { ...record, token: claim.token },
    ]);
  const numbers = given.map(({ destinationId }) => destinationId);
  numbersOf.set(claim.token, [...(numbersOf.get(claim.token) ?? []), ...numbers]);
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
export async function doubtSharedNumbers(deps: SyncDeps, token: string): Promise<void> {
  const { holdersOf, numbersOf } = answersOf(deps.state);
  for (const number of numbersOf.get(token) ?? []) {
    const holders = holdersOf.get(number) ?? [];
    if (holders.every((holder) => !numbersOf.has(holder.token) || holder.token === token))
      holdersOf.delete(number);
    if (new Set(holders.map(recordName)).size < 2) continue;
    for (const { stream, localKey } of holders)
      await doubtNumber(deps.state.db, { stream, keys: [localKey] });
  }
  numbersOf.delete(token);
}

/** Answers of the service to the batches of this process that are not settled yet. */
interface Answers {
  /** By number, the records for which it was answered, each with the token of its batch. */
  holdersOf: Map<number, (RecordKey & { token: string })[]>;
  /** By token. */
  numbersOf: Map<string, number[]>;
}

const ANSWERS = new WeakMap<object, Answers>();
function answersOf(state: object): Answers {
  const answers = ANSWERS.get(state) ?? { holdersOf: new Map(), numbersOf: new Map() };
  ANSWERS.set(state, answers);
  return answers;
}
