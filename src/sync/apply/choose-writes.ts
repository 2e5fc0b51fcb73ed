// Decides what a batch writes, after reading objects at the service. Reads objects to merge or check, and skips objects
// that are already equal.
import { setTimeout as sleep } from 'node:timers/promises';
import type { FoundObject, ServiceObject, Unreadable } from '../../destination/destination.js';
import { REFERENCE_CIRCLE } from '../../state/records/outcome-types.js';
import {
  createObject,
  hashObject,
  isSameObject,
  mergeObject,
  type DestinationObject,
} from '../../streams/destination-object.js';
import { mayGive } from '../../streams/external-id.js';
import { acceptedText, applyRules } from '../../streams/field-rules.js';
import { readsFirst, sends, type Stream } from '../../streams/stream.js';
import { isNobodys, whoHas } from '../identity/who-has.js';
import {
  contradicted,
  createLeftOut,
  externalIdChangedThere,
  externalIdTaken,
  isContradicted,
  linkBroken,
  objectUnreadable,
  unchanged,
  updateLeftOut,
  type Write,
} from '../object/decide-outcome.js';
import { isWanted, type BatchWork } from './batch-claim.js';
import { keyReferences, mergeWithService } from '../object/render.js';
import type { SyncDeps } from '../run/sync-deps.js';
import { suspectsOf } from './narrow-failures.js';
import type { Matched } from './match-objects.js';

/** Objects read from the service, by the external id under which they are written. */
export interface ObjectsThere {
  found: ReadonlyMap<string, ServiceObject>;
  /** External ids that the writes assign to objects without one. */
  unnamed: ReadonlySet<string>;
  /**
   * Accepted objects whose external id was changed or removed at the service. The keys are the former external ids.
   */
  renamed: ReadonlyMap<string, FoundObject>;
  /** External ids that linked objects have instead of the ids of their links, which are the keys. */
  otherIds: ReadonlyMap<string, string>;
}

/**
 * Reads the objects on which the writes depend: objects with fields to keep, of several possible types, in doubt,
 * inactive, never accepted or linked. Returns the writes that remain possible. Fails records whose objects cannot be
 * read.
 */
export async function readObjectsThere(
  deps: SyncDeps,
  work: BatchWork,
  { writes, seen }: Matched,
): Promise<ObjectsThere & { isRead: boolean; readable: Write[] }> {
  const { stream, context, note } = work;
  const { destination } = deps;
  const found = new Map([...seen].flatMap(([extId, object]) => (object ? [[extId, object] as const] : [])));
  const unnamed = new Set<string>();
  const unreadable: Unreadable = new Map();
  const unreadableNumbers: Unreadable = new Map();
  const readsAll =
    readsFirst(stream, destination) || stream.objectTypes.size > 1 || stream.operations !== undefined;
  /** Objects of records not in sync are read too, because they may still have values that a deactivation set. */
  const reads = ({ status }: Write['record']) =>
    readsAll || (stream.retireFields.size > 0 && status !== 'synced');
  const toRead = writes.filter(
    ({ retires, record, link, object }) =>
      !seen.has(object.extId) &&
      (retires || link || reads(record) || record.sourceHash === null || isLookedAt(record)),
  );
  const extIds = toRead.flatMap(({ object, link }) => (link?.assignsId ? [] : object.extId));
  const find = async (ids: readonly string[]) => {
    if (ids.length === 0) return;
    const objects = await destination.findObjects(ids, stream.type, context, unreadable, suspectsOf(writes));
    for (const [extId, object] of objects) found.set(extId, object);
  };
  await find(extIds);
  // Search results may be older than the last acceptance. An object that seems absent is searched for again later.
  const isAbsent = (extId: string) => !found.has(extId) && !unreadable.has(extId);
  // An outdated search result may also show old values. A field rule would keep these as a person's values.
  const young = toRead.filter((write) => {
    const { retires, hasNumberOfRow, record, object } = write;
    if (!isJustAccepted(deps, record)) return false;
    if (!retires && keepsOfService(stream, write, found.get(object.extId))) return true;
    return (retires || !sends(stream, 'create')) && !hasNumberOfRow && isAbsent(object.extId);
  });
  if (young.length > 0) {
    const seconds = young.reduce((most, { record }) => Math.max(most, lagLeft(deps, record)), 0);
    await sleep(seconds * 1000, undefined, context.signal ? { signal: context.signal } : {});
    await find(young.map(({ object }) => object.extId));
  }
  const isRead = seen.size > 0 || toRead.length > 0;
  const absent = toRead.filter(({ object, link }) => !link?.assignsId && isAbsent(object.extId));
  const renamed = await findRenamedThere(deps, work, absent, unreadableNumbers);
  // Assigns a lost external id again if the object is certainly the accepted one: the hashes are equal.
  const absentBy = new Map(absent.map((write) => [write.object.extId, write]));
  if (destination.assignsExternalIds)
    for (const [extId, object] of renamed)
      if (object.extId === undefined && isAccepted(stream, { ...object, extId }, absentBy.get(extId))) {
        found.set(extId, { ...object, extId });
        unnamed.add(extId);
        renamed.delete(extId);
      }
  const otherIds = new Map<string, string>();
  const links = toRead.flatMap(({ link }) => (link?.assignsId ? link : []));
  const numbers = links.flatMap(({ destinationId }) => destinationId ?? []);
  const byNumber = await destination.findObjectsByNumber(numbers, stream.type, context, unreadableNumbers);
  for (const { externalId, destinationId } of links) {
    const object = byNumber.get(destinationId ?? '');
    // An object that has another external id now is no longer the linked object.
    const otherId = object?.extId !== externalId ? object?.extId : undefined;
    if (otherId !== undefined) otherIds.set(externalId, otherId);
    if (!object || otherId !== undefined) continue;
    found.set(externalId, { ...object, extId: externalId });
    if (object.extId === undefined) unnamed.add(externalId);
  }
  const readable = writes.filter((write) => {
    const { object, record, link } = write;
    const reason = [
      unreadable.get(object.extId),
      ...[record.destinationId, link?.destinationId].map((id) => unreadableNumbers.get(id ?? '')),
    ];
    // If the number belongs to another row's object, an error of reading that object does not concern this record.
    const error = write.hasNumberOfRow ? undefined : reason.find((one) => one);
    if (error) note(objectUnreadable(write, error));
    return !error;
  });
  return { found, unnamed, renamed, otherIds, isRead, readable };
}

/**
 * Returns true if an object equals the object accepted last, compared by hash: in mapped fields, or as a whole if
 * inactive. Fields with a field rule are compared by the row's value.
 */
function isAccepted({ owned, rules }: Stream, object: ServiceObject, write: Write | undefined): boolean {
  const fields = object.fields.filter(({ fieldId }) => owned.has(fieldId));
  const mapped = write?.object.fields.filter(({ fieldId }) => rules.has(fieldId)) ?? [];
  const values = [...fields.filter(({ fieldId }) => !rules.has(fieldId)), ...mapped];
  const { extId, typeId, active } = object;
  const asMapped = createObject(
    extId,
    typeId,
    active,
    values.map((given) => [given.fieldId, given.values] as const),
  );
  return [{ ...object, fields }, object, asMapped].some(
    (one) => hashObject(one) === write?.record.objectHash,
  );
}

/** Returns true if a field rule keeps a value of the service in this object. */
const keepsOfService = (
  { rules }: Stream,
  { object, record }: Write,
  there: ServiceObject | undefined,
): boolean =>
  rules.size > 0 && !isSameObject(applyRules(rules, object, there, record.acceptedFields).object, object);

/**
 * Searches by number for accepted objects that are absent under their external id. Returns those that have another
 * external id or none now; the keys are the former external ids. Leaves out objects of other owners, because the
 * service has reused the number.
 */
async function findRenamedThere(
  deps: SyncDeps,
  { stream, context }: BatchWork,
  absent: readonly Write[],
  unreadable: Unreadable,
): Promise<Map<string, FoundObject>> {
  const numbers = new Map(
    absent.flatMap(({ record, object }) =>
      record.destinationId === null || record.objectHash === null
        ? []
        : [[record.destinationId, object.extId] as const],
    ),
  );
  if (numbers.size === 0) return new Map();
  const asked = [...numbers.keys()];
  const objects = await deps.destination.findObjectsByNumber(asked, stream.type, context, unreadable);
  const ofType = [...objects.values()].filter(({ typeId }) => stream.objectTypes.has(typeId));
  const ids = ofType.flatMap(({ extId }) => extId ?? []);
  const holderOf = await whoHas(deps, ids, { rows: 'all' });
  return new Map(
    ofType
      .filter(({ id, extId = '' }) => extId !== numbers.get(id) && isNobodys(holderOf(extId)))
      .map((object) => [numbers.get(object.id) ?? '', object] as const),
  );
}

/** Returns true if the object was accepted so recently that a search may not show it yet. */
function isJustAccepted(deps: Pick<SyncDeps, 'destination'>, record: Write['record']): boolean {
  return lagLeft(deps, record) > 0;
}

const lagLeft = (
  { destination }: Pick<SyncDeps, 'destination'>,
  { objectHash, acceptedSecondsAgo }: Write['record'],
): number => destination.findLagSeconds - ((objectHash === null ? null : acceptedSecondsAgo) ?? Infinity);

/** Returns true if the record is in doubt, and no late write can change its object after the object is read. */
function isLookedAt({ inDoubt, isCheckPending }: Write['record']): boolean {
  return inDoubt && !isCheckPending;
}

/**
 * Adds references to an object that was created without them, because records referred to each other in a circle. Only
 * for streams without updates. Returns undefined for other writes.
 */
function completeCreate(
  stream: Stream,
  { record, object, sourceHash }: Write,
  standing: ServiceObject | undefined,
): DestinationObject | undefined {
  const isSecond = record.errorCode === REFERENCE_CIRCLE && record.sourceHash === sourceHash;
  if (!standing || !isSecond || sends(stream, 'update')) return undefined;
  const own = stream.references.filter((reference) => reference.stream === stream.name);
  const owned = new Set(own.map(({ fieldId }) => fieldId));
  const { typeId, active, spelling } = standing;
  const fields = object.fields.filter(({ fieldId }) => owned.has(fieldId));
  return { ...mergeObject({ ...object, typeId, active, fields }, standing, owned), spelling };
}

/** Returns the writes of rows, merged with the objects at the service. Settles writes that would change nothing. */
export function chooseWrites(
  deps: SyncDeps,
  { stream, note }: BatchWork,
  prepared: readonly Write[],
  { found, unnamed, renamed, otherIds }: ObjectsThere,
): Write[] {
  const streams = [...deps.streams.values()];
  return prepared.flatMap((write) => {
    if (write.retires) return [];
    const { record, link } = write;
    const standing = found.get(write.object.extId);
    const elsewhere = renamed.get(write.object.extId);
    if (elsewhere) return note(externalIdChangedThere(write, elsewhere));
    // A search result that contradicts a recent acceptance may be outdated. The object is written again.
    const isCurrent = record.objectHash === write.objectHash || !isJustAccepted(deps, record);
    if (link && !standing && isCurrent) return note(linkBroken(write, link, otherIds.get(link.externalId)));
    const formerType = standing && !stream.objectTypes.has(standing.typeId) ? standing.typeId : undefined;
    if (!standing && !sends(stream, 'create')) return note(createLeftOut(write));
    if (formerType !== undefined && !(deps.destination.canChangeTypes && record.objectHash !== null))
      return note(externalIdTaken(write, formerType));
    if (!standing && isContradicted(write)) return note(contradicted(write, record.errorMessage ?? ''));
    const keepers =
      formerType === undefined ? [] : streams.filter(({ objectTypes }) => objectTypes.has(formerType));
    const keeper = keepers.find(({ externalId }) => mayGive(externalId, write.object.extId)) ?? keepers[0];
    // The object gets a new type. Fields of the former mapping are removed, since the new type may not have them.
    const mapping = keeper ? { ...stream, owned: new Set([...stream.owned, ...keeper.owned]) } : stream;
    const completed = completeCreate(stream, write, standing);
    const { object: merged, kept } = completed
      ? { object: completed, kept: [] }
      : mergeWithService(mapping, write.object, standing, record.acceptedFields);
    const noted =
      stream.rules.size === 0
        ? write
        : {
            ...write,
            acceptedFields: acceptedText(
              stream.rules,
              write.object,
              record.acceptedFields,
              standing && keyReferences(stream, standing),
            ),
          };
    const isSettling = !record.inDoubt || isLookedAt(record);
    const isNamed = !unnamed.has(write.object.extId);
    if (standing && isNamed && isSettling && isCurrent && !isWanted(record) && isSameObject(merged, standing))
      return note(unchanged({ ...noted, standing }, standing.id));
    if (standing && !completed && !sends(stream, 'update')) return note(updateLeftOut(write, standing.id));
    // Most writes of a first load are as they were prepared. Copying them takes time.
    if (!standing && noted === write && merged === write.object) return [write];
    const former = formerType === undefined ? undefined : { typeId: formerType, keptBy: keeper?.name };
    return [{ ...noted, object: merged, kept, former, standing }];
  });
}
