// An object has a number that no other record has. Otherwise the service has one object for the external ids of both records,
// and the write has changed it for the other record as well.
import type { PutResult, ServiceObject } from '../../destination/destination.js';
import type { Outcome } from '../../state/records/outcome-types.js';
import { checkAgain, doubtNumber } from '../../state/records/record-state.js';
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
  const foundAs = new Map([...found.values()].map(({ id, extId }) => [id, extId]));
  for (const { extId, destinationId } of given) {
    const other = foundAs.get(destinationId);
    if (other !== undefined && other !== extId) refuse(extId, destinationId, other);
  }
  for (const { extId, destinationId, owner } of await readOtherOwners(deps, given)) {
    refuse(extId, destinationId, owner.externalId);
    await checkAgain(deps.state.db, { stream: owner.stream, keys: [owner.localKey] });
  }
}

/**
 * Puts objects in doubt that got their numbers together with another record: a batch that had the same answer at the same
 * time was not settled yet when its number was looked for.
 */
export async function doubtSharedNumbers(
  deps: SyncDeps,
  { stream, claim }: Pick<BatchWork, 'stream' | 'claim'>,
  outcomes: Iterable<Outcome>,
): Promise<void> {
  const given = [...outcomes].flatMap((one) => {
    const { localKey, destinationId } = { destinationId: undefined, ...one };
    const isNew = destinationId !== undefined && destinationId !== claim.records.get(localKey)?.destinationId;
    return isNew ? [{ stream: stream.name, localKey, destinationId }] : [];
  });
  for (const { localKey, owner } of await readOtherOwners(deps, given)) {
    await doubtNumber(deps.state.db, { stream: stream.name, keys: [localKey] });
    await doubtNumber(deps.state.db, { stream: owner.stream, keys: [owner.localKey] });
  }
}
