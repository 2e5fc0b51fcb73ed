// Detects that the service has one object for two records: it answers a write with the number of another record's
// object. Then the write has changed the other record's object too.
import type { PutResult, ServiceObject } from '../../destination/destination.js';
import { recordName, type RecordKey } from '../../state/records/outcome-types.js';
import { doubtNumber, doubtObjects } from '../../state/records/record-state.js';
import { readOwners } from '../../state/records/read/owners.js';
import { readOtherOwners } from '../identity/who-has.js';
import type { Write } from '../object/decide-outcome.js';
import type { SyncDeps } from '../run/sync-deps.js';
import type { BatchWork } from './batch-claim.js';

/**
 * Treats a write as refused if the service answered with the number of another record's object. The other record is put
 * in doubt, because the write may have changed its object. Exception: if the other record's row no longer has the
 * object, the number is right.
 */
export async function refuseForeignNumbers(
  deps: SyncDeps,
  { stream, claim }: BatchWork,
  { writes, found }: { writes: readonly Write[]; found: ReadonlyMap<string, ServiceObject> },
  results: Map<string, PutResult>,
): Promise<void> {
  const { holdersOf, answeredTo } = answersOf(deps.state);
  const { token } = claim.right;
  const given = writes.flatMap(({ object: { extId }, record: { localKey, destinationId } }): Holder[] => {
    const result = results.get(extId);
    if (!result?.accepted || result.id === undefined || result.id === destinationId) return [];
    return [{ extId, stream: stream.name, localKey, destinationId: result.id, token }];
  });
  for (const one of given)
    holdersOf.set(one.destinationId, [...(holdersOf.get(one.destinationId) ?? []), one]);
  answeredTo.set(token, [...(answeredTo.get(token) ?? []), ...given]);
  const refuse = (extId: string, number: string, other: string) => {
    const message = `the service gave '${extId}' the number ${number}, which belongs to '${other}'`;
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
 * Puts records in doubt that got the same number in two batches of this process. Call it after a batch is settled:
 * while both batches run, neither sees the number of the other. `verify` finds such records of two processes.
 */
export async function doubtSharedNumbers(deps: SyncDeps, token: string): Promise<void> {
  const { holdersOf, answeredTo } = answersOf(deps.state);
  for (const { destinationId } of answeredTo.get(token) ?? []) {
    const holders = holdersOf.get(destinationId) ?? [];
    if (holders.every((one) => one.token === token || !answeredTo.has(one.token)))
      holdersOf.delete(destinationId);
    if (holders.length < 2 || new Set(holders.map(recordName)).size < 2) continue;
    for (const { stream, localKey } of holders)
      await doubtNumber(deps.state.db, { stream, keys: [localKey] });
  }
  answeredTo.delete(token);
}

/** A record with the number that the service answered. */
interface Holder extends RecordKey {
  extId: string;
  destinationId: string;
  /** Identifies the batch that wrote the record. */
  token: string;
}

/** Numbers in answers to batches that are not settled yet: records by number, and by the token of their batch. */
interface Answers {
  holdersOf: Map<string, Holder[]>;
  answeredTo: Map<string, Holder[]>;
}

const ANSWERS = new WeakMap<object, Answers>();
function answersOf(state: object): Answers {
  const answers = ANSWERS.get(state) ?? { holdersOf: new Map(), answeredTo: new Map() };
  ANSWERS.set(state, answers);
  return answers;
}
