// Before a record's object is created, searches for an existing object with equal values, and links the record to it.
// The record then updates this object. Claims the object first, so that only one batch can link it. If the choice is
// ambiguous, nothing is created.
import type { FoundObject, ServiceObject, Unreadable } from '../../destination/destination.js';
import { listFormerObjects } from '../../state/records/read/owners.js';
import { linkRecords, type NewLink, type Link } from '../../state/records/links.js';
import { hashObject, type DestinationObject } from '../../streams/destination-object.js';
import { isStorable, MAX_ID_BYTES } from '../../streams/local-key.js';
import { sends, type Stream } from '../../streams/stream.js';
import { findMeant } from '../identity/match-candidates.js';
import * as outcome from '../object/decide-outcome.js';
import type { Write } from '../object/decide-outcome.js';
import type { SyncDeps } from '../run/sync-deps.js';
import type { BatchWork } from './batch-claim.js';
import { suspectsOf } from './narrow-failures.js';

/** Result of matching. `seen`: objects that were read meanwhile, by external id; undefined if there is no object. */
export interface Matched {
  writes: Write[];
  seen: ReadonlyMap<string, ServiceObject | undefined>;
}

/**
 * Links records to existing objects instead of creating objects. Records with an ambiguous choice are settled. Sends at
 * most two requests, or reads all objects of the type.
 */
export async function matchObjects(
  deps: SyncDeps,
  work: BatchWork,
  writes: readonly Write[],
): Promise<Matched> {
  const { stream, claim, context, note } = work;
  const possible = stream.match ? writes.filter(isFirst) : [];
  const former = await listFormerObjects(
    deps.state.db,
    stream.name,
    possible.map(({ record }) => record.localKey),
  );
  // An operator has ordered a new object for a record that had another one, so no search is needed.
  const hadObject = new Set(former.map(({ formerKey }) => formerKey));
  const sought = possible.filter(({ record }) => !hadObject.has(record.localKey));
  if (sought.length === 0) return { writes: [...writes], seen: new Map() };
  const extIds = sought.map(({ object }) => object.extId);
  const unreadable: Unreadable = new Map();
  const suspects = suspectsOf(sought);
  const standing = await deps.destination.findObjects(extIds, stream.type, context, unreadable, suspects);
  const first = sought.filter(({ object }) => !unreadable.has(object.extId));
  const absent = first.filter(({ object }) => !standing.has(object.extId));
  const meant = await findMeant(
    deps,
    stream,
    absent.map(({ record, object }) => ({ key: record.localKey, object })),
    context,
  );
  const linking = new Map<Write, NewLink>();
  const isCreated = ({ record }: Write) => !meant.has(record.localKey);
  for (const write of absent) {
    const found = meant.get(write.record.localKey);
    if (!found) continue;
    // An earlier write without an answer may still create a second object. Tries again later.
    if (write.record.isCheckPending) claim.leave(write.record.localKey);
    else if ('error' in found) note(outcome.objectUnreadable(write, found.error));
    else if ('ambiguity' in found) note(outcome.matchAmbiguous(write, found.ambiguity));
    else {
      const link = toLink(deps, stream, write, found.object);
      if ('outcome' in link) note(link);
      else linking.set(write, link);
    }
  }
  const linked = await linkClaimed(deps, work, linking);
  const seen = first
    .filter(isCreated)
    .map(({ object }) => [object.extId, standing.get(object.extId)] as const);
  return { writes: [...writes.filter(isCreated), ...linked], seen: new Map(seen) };
}

/** Returns true if the service has never accepted an object of the record. */
function isFirst({ record, retires, link }: Write): boolean {
  return !retires && !link && record.objectHash === null;
}

/** Returns the link from a record to its matching object. If it may not be linked, returns the outcome instead. */
function toLink({ destination }: SyncDeps, stream: Stream, write: Write, { extId, id }: FoundObject) {
  const { localKey } = write.record;
  if (extId === undefined && !(destination.assignsExternalIds && sends(stream, 'update')))
    return outcome.matchUnassignable(write, id);
  if (extId !== undefined && !isStorable(extId))
    return outcome.matchAmbiguous(
      write,
      `the object with number ${id} has an external id that is longer than ${MAX_ID_BYTES} bytes, or is no text`,
    );
  return {
    stream: stream.name,
    localKey,
    externalId: extId ?? write.object.extId,
    destinationId: id,
    assignsId: extId === undefined,
    linkedBy: 'match' as const,
    fields: [...(stream.match ?? [])],
  };
}

/** Links records to objects that no other batch has claimed. Returns the writes of these objects. */
async function linkClaimed(
  { state }: SyncDeps,
  { claim, note }: BatchWork,
  linking: ReadonlyMap<Write, NewLink>,
): Promise<Write[]> {
  const wanted = new Map(
    [...linking].map(([{ record }, link]) => {
      const made: Link = { ...link, linkedAt: new Date() };
      return [record.localKey, { extId: link.externalId, link: made }] as const;
    }),
  );
  if (wanted.size === 0) return [];
  await claim.claimRowIds(wanted);
  const claimed = [...linking].filter(([{ record }]) => claim.records.has(record.localKey));
  const { linked, refused } = await linkRecords(
    state,
    claimed.map(([, link]) => link),
    claim.right.token,
  );
  const reasons = new Map(refused.map(({ link, reason }) => [link.localKey, reason]));
  const isLinked = new Set(linked.map(({ localKey }) => localKey));
  return claimed.flatMap(([write]): Write[] => {
    const { localKey } = write.record;
    const [record, given] = [claim.records.get(localKey), wanted.get(localKey)];
    if (!record || !given || !isLinked.has(localKey))
      return note(outcome.linkRefused(write, reasons.get(localKey) ?? 'the link was not stored'));
    const object: DestinationObject = { ...write.object, extId: given.extId };
    return [
      {
        ...write,
        record: { ...record, externalId: given.extId },
        object,
        objectHash: hashObject(object),
        link: given.link,
      },
    ];
  });
}
