// An object has a number that no other record has. Otherwise the service has one object for the external ids of both records,
// and the write has changed it for the other record as well.
import type { PutResult, ServiceObject } from '../../destination/destination.js';
import { recordName, type RecordKey } from '../../state/records/outcome-types.js';
import { doubtNumber, doubtObjects } from '../../state/records/record-state.js';
import { readOwners } from '../../state/records/read/owners.js';
import { readOtherOwners } from '../identity/who-has.js';
import type { Write } from '../object/decide-outcome.js';
import type { SyncDeps } from '../run/sync-deps.js';
import type { BatchWork } from './batch-claim.js';

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
  const { holdersOf, answeredTo } = answersOf(deps.state);
  const given: Holder[] = [];
  for (const { object, record } of writes) {
    const result = results.get(object.extId);
    if (!result?.accepted || result.id === undefined || result.id === record.destinationId) continue;
    const { localKey } = record;
    const destinationId = result.id;
    const next = holdersOf.get(destinationId);
    const holder = {
      extId: object.extId,
      stream: stream.name,
      localKey,
      destinationId,
      token: claim.right.token,
      next,
    };
    holdersOf.set(destinationId, holder);
    given.push(holder);
  }
  answeredTo.set(claim.right.token, [...(answeredTo.get(claim.right.token) ?? []), ...given]);
  const refuse = (extId: string, number: string, other: string) => {
    const message = `the service gave '${extId}' the number ${number}, which is that of '${other}'`;
    results.set(extId, { accepted: false, status: undefined, message });
  };
  const foundAs = new Map([...found.values()].map(({ id, extId }) => [id, extId]));
  const overwritten = given.flatMap(({ extId, destinationId }) => {
    const other = foundAs.get(destinationId);
    if (other === undefined || other === extId) return [];
    refuse(extId, destinationId, other);
    return other;
  });
  for (const { stream: name, localKey } of (await readOwners(deps.state.db, overwritten)).values())
    await doubtObjects(deps.state.db, { stream: name, keys: [localKey] });
  for (const { extId, destinationId, owner } of await readOtherOwners(deps, given)) {
    refuse(extId, destinationId, owner.externalId);
    await doubtObjects(deps.state.db, { stream: owner.stream, keys: [owner.localKey] });
  }
}

/**
 * Puts objects in doubt whose numbers another batch of this process got meanwhile: neither of the two was settled when the other
 * looked. Call it when the batch is settled. Two processes at the same moment are not seen here; `verify` finds the objects.
 */
export async function doubtSharedNumbers(deps: SyncDeps, token: string): Promise<void> {
  const { holdersOf, answeredTo } = answersOf(deps.state);
  for (const { destinationId } of answeredTo.get(token) ?? []) {
    const holders: Holder[] = [];
    for (let one = holdersOf.get(destinationId); one; one = one.next) holders.push(one);
    if (holders.every((one) => one.token === token || !answeredTo.has(one.token)))
      holdersOf.delete(destinationId);
    if (holders.length < 2 || new Set(holders.map(recordName)).size < 2) continue;
    for (const { stream, localKey } of holders)
      await doubtNumber(deps.state.db, { stream, keys: [localKey] });
  }
  answeredTo.delete(token);
}

/** A record for which the service answered a number, and others for which it answered the same. */
interface Holder extends RecordKey {
  extId: string;
  destinationId: string;
  /** The token of its batch. */
  token: string;
  next: Holder | undefined;
}

/** Answers of the service to the batches of this process that are not settled yet. */
interface Answers {
  /** By number, the last record for which it was answered. */
  holdersOf: Map<string, Holder>;
  /** By the token of a batch. */
  answeredTo: Map<string, Holder[]>;
}

const ANSWERS = new WeakMap<object, Answers>();
function answersOf(state: object): Answers {
  const answers = ANSWERS.get(state) ?? { holdersOf: new Map(), answeredTo: new Map() };
  ANSWERS.set(state, answers);
  return answers;
}
