// Before a record is created, an object is looked for that is at the service already: one whose values of all fields in
// `match` are those of the row. It is linked under a claim on the object, so that of two batches one links it; the record
// goes on as an update of that object. Where it is not certain which object it is, nothing is created.
import type { Context } from '../../destination/client.js';
import type { FoundObject, ServiceObject } from '../../destination/destination.js';
import { readOwners } from '../../state/records/external-ids.js';
import { linkRecords, readLinksToNumbers, type NewLink } from '../../state/records/link-records.js';
import { readLinksTo, type Link } from '../../state/records/links.js';
import type { RecordKey } from '../../state/records/outcome-types.js';
import { hashObject, type DestinationObject } from '../../streams/destination-object.js';
import { isTooLong, MAX_ID_BYTES } from '../../streams/local-key.js';
import type { Stream } from '../../streams/stream.js';
import { findGivers } from '../external-id-owners.js';
import { matchValues } from '../match-values.js';
import * as outcome from '../outcome-reasons.js';
import type { Settle, Write } from '../outcome-reasons.js';
import type { SyncDeps } from '../sync-deps.js';
import type { BatchClaim } from './batch-claim.js';

/** Objects or rows named in a message. */
const NAMED = 5;

/** Writes, and what was seen at the service of those that were looked for and not linked, by external id. */
export interface Matched {
  writes: Write[];
  seen: ReadonlyMap<string, ServiceObject | undefined>;
}

/** An object that matches, and who has it. */
interface Candidate {
  object: FoundObject;
  /** Undefined: nobody. `true`: a record or a row, by its external id. */
  owner: RecordKey | true | undefined;
  isMatched: boolean;
}

/**
 * Links the writes that would create an object where another one is meant; the others remain as they are, are settled, or
 * left to a later attempt. Sends at most two requests, or reads the type.
 */
export async function matchObjects(
  deps: SyncDeps,
  stream: Stream,
  { claim, writes }: { claim: BatchClaim; writes: readonly Write[] },
  context: Context,
  settle: Settle,
): Promise<Matched> {
  const first = stream.match ? writes.filter(isFirst) : [];
  if (first.length === 0) return { writes: [...writes], seen: new Map() };
  const extIds = first.map(({ object }) => object.extId);
  const standing = await deps.destination.findObjects(extIds, stream.type, context);
  const absent = first.filter(({ object }) => !standing.has(object.extId));
  const found = await findCandidates(deps, stream, absent, context);

  const linking = new Map<Write, NewLink>();
  const settled = new Set<Write>();
  for (const [values, group] of groupByValues(stream, absent)) {
    const candidates = found.filter(({ object }) => matchValues(stream, object) === values);
    const why = explainAmbiguity(stream, group, candidates);
    for (const write of group) {
      const [only] = candidates.filter(({ owner }) => owner === undefined);
      if (why === undefined && !only) continue; // nothing to link: it is created
      settled.add(write);
      // What was sent may still be carried out, and would be a second object.
      if (write.record.isCheckPending) claim.leave(write.record.localKey);
      else if (why !== undefined) settle(outcome.matchAmbiguous(write, why(write)));
      else if (only) {
        const link = toLink(deps, stream, write, only.object);
        if ('outcome' in link) settle(link);
        else linking.set(write, link);
      }
    }
  }
  const linked = await linkClaimed(deps, claim, linking, settle);
  const unlinked = first.filter((write) => !settled.has(write)).map(({ object }) => object.extId);
  const seen = new Map(unlinked.map((extId) => [extId, standing.get(extId)] as const));
  return { writes: [...writes.filter((write) => !settled.has(write)), ...linked], seen };
}

/** The service never had an object of the record, as far as is known. */
function isFirst({ record, retires, link }: Write): boolean {
  return !retires && !link && record.objectHash === null && record.formerExternalId === null;
}

function groupByValues(stream: Stream, writes: readonly Write[]): Map<string, Write[]> {
  const groups = new Map<string, Write[]>();
  for (const write of writes) {
    const values = matchValues(stream, write.object);
    if (values !== undefined) groups.set(values, [...(groups.get(values) ?? []), write]);
  }
  return groups;
}

/** Objects of the type that match any of the writes, by search or by reading the type whole. */
async function findCandidates(
  deps: SyncDeps,
  stream: Stream,
  writes: readonly Write[],
  context: Context,
): Promise<Candidate[]> {
  const { destination, state } = deps;
  const groups = groupByValues(stream, writes);
  if (groups.size === 0) return [];
  const isCandidate = (object: FoundObject) =>
    object.typeId === stream.type && groups.has(matchValues(stream, object) ?? '');
  const objects = destination.searchesByFields
    ? (await destination.findObjectsByFields(stream.type, valuesToFind(stream, groups), context)).filter(
        isCandidate,
      )
    : await destination.readType(stream.type, context, async (pages) => {
        const matching: FoundObject[] = [];
        for await (const page of pages) matching.push(...page.filter(isCandidate));
        return matching;
      });

  const extIds = objects.flatMap(({ extId }) => (isStorable(extId) ? extId : []));
  const owners = await readOwners(state.db, extIds);
  const givers = await findGivers(deps, extIds);
  const links = await readLinksTo(state.db, extIds);
  const numbers = await readLinksToNumbers(
    state.db,
    objects.map(({ id }) => id),
  );
  return objects.map((object): Candidate => {
    const extId = object.extId ?? '';
    const link: RecordKey | undefined = numbers.get(object.id) ?? links.get(extId);
    const isOwned =
      (owners.get(extId) ?? []).some(({ isAccepted, isWritten }) => isAccepted || isWritten) ||
      givers.has(extId);
    return { object, owner: link ?? (isOwned || undefined), isMatched: link !== undefined };
  });
}

/** The values of each field in `match` over all writes: a search answers any of them, and whole objects are compared here. */
function valuesToFind(stream: Stream, groups: ReadonlyMap<string, readonly Write[]>) {
  const wanted = new Map<string, string[]>();
  for (const fieldId of stream.match ?? []) {
    const values = [...groups.values()].flatMap(
      ([write]) => write?.object.fields.find((field) => field.fieldId === fieldId)?.values ?? [],
    );
    wanted.set(fieldId, [...new Set(values)]);
  }
  return wanted;
}

/** Why it cannot be said which object a row means, for each of the rows that give these values; undefined: it can. */
function explainAmbiguity(
  stream: Stream,
  group: readonly Write[],
  candidates: readonly Candidate[],
): ((write: Write) => string) | undefined {
  const fields = (stream.match ?? []).join(', ');
  const free = candidates.filter(({ owner }) => owner === undefined);
  const names = list(free.map(({ object }) => nameOf(object)));
  if (free.length > 1) return () => `${free.length} objects have its values of ${fields}: ${names}`;
  if (free.length === 1 && group.length > 1)
    return (write) => {
      const others = group.filter((other) => other !== write).map(({ record }) => `'${record.localKey}'`);
      return `the object ${names} has its values of ${fields}, and those of ${stream.name} ${list(others)}`;
    };
  const taken = candidates.find(({ isMatched }) => isMatched);
  const owner = taken?.owner;
  if (free.length > 0 || !taken || typeof owner !== 'object') return undefined;
  return () =>
    `the object ${nameOf(taken.object)} has its values of ${fields}, but is linked to ${owner.stream} '${owner.localKey}'`;
}

function nameOf({ extId, id, active }: FoundObject): string {
  return (extId === undefined ? `number ${id}` : `'${extId}'`) + (active ? '' : ' (inactive)');
}

function list(names: readonly string[]): string {
  const more = names.length - NAMED;
  return names.slice(0, NAMED).join(', ') + (more > 0 ? ` and ${more} more` : '');
}

/** The link of a write to the one object it means, or why there can be none. */
function toLink({ destination }: SyncDeps, stream: Stream, write: Write, { extId, id }: FoundObject) {
  const { localKey } = write.record;
  if (extId === undefined && !destination.assignsExternalIds) return outcome.matchUnassignable(write, id);
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

function isStorable(extId: string | undefined): extId is string {
  return extId !== undefined && !isTooLong(extId) && !extId.includes('\0') && extId.isWellFormed();
}

/** Links writes whose objects no other batch has, and returns what is to be written of them. */
async function linkClaimed(
  { state }: SyncDeps,
  claim: BatchClaim,
  linking: ReadonlyMap<Write, NewLink>,
  settle: Settle,
): Promise<Write[]> {
  const wanted = new Map(
    [...linking].map(([{ record }, link]) => {
      const made: Link = { ...link, linkedAt: '' };
      return [record.localKey, { extId: link.externalId, link: made }] as const;
    }),
  );
  if (wanted.size === 0) return [];
  await claim.claimRowIds(wanted);
  const claimed = [...linking].filter(([{ record }]) => claim.records.has(record.localKey));
  const { linked, refused } = await linkRecords(
    state,
    claimed.map(([, link]) => link),
    claim.token,
  );
  const reasons = new Map(refused.map(({ link, reason }) => [link.localKey, reason]));
  const isLinked = new Set(linked.map(({ localKey }) => localKey));
  return claimed.flatMap(([write]): Write[] => {
    const { localKey } = write.record;
    const [record, given] = [claim.records.get(localKey), wanted.get(localKey)];
    if (!record || !given || !isLinked.has(localKey))
      return settle(outcome.linkRefused(write, reasons.get(localKey) ?? 'it was not linked'));
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
