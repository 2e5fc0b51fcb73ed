// Finds the holders of an external id: the record that owns the object, the key that is linked to it, and the rows of
// the mirror that have the external id now. If a row returns under another key or in another stream, it is found by its
// external id and takes over the object.
import type { Destination, FoundObject } from '../../destination/destination.js';
import { readLinks, readLinksTo, readLinksToNumbers, type Link } from '../../state/records/links.js';
import { recordName, type RecordKey } from '../../state/records/outcome-types.js';
import { readOwners, readOwnersByNumber, type OwnerRecord } from '../../state/records/read/owners.js';
import { isReservedKey, isStorable } from '../../streams/local-key.js';
import type { Stream } from '../../streams/stream.js';
import { readRowIds, type IdentityDeps } from './row-ids.js';

/** Holders of an object: the record that owns it, the key linked to it, and rows with its external id. */
export interface Holder {
  record: OwnerRecord | undefined;
  /** Link to the object. If set, only the linked key has the object, whatever the templates of other rows render. */
  link: Link | undefined;
  /** Row of `record`: has the `same` external id (or is unreadable), has an `other` one, or is `gone`. */
  ownerRow: 'same' | 'other' | 'gone';
  /** Rows of any stream that have the object's external id now. At most six rows of one stream. */
  rows: readonly RecordKey[];
}

/** Data to read from the mirror in addition to the state. */
interface Asked {
  /** If true, reads the rows of owning records, to determine `ownerRow`. Otherwise `ownerRow` is always `gone`. */
  ownerRows?: boolean;
  /**
   * If set, finds rows with these external ids: for `all`, or only for ids that no record of a configured stream owns.
   */
  rows?: 'all' | 'where unowned';
}

const NOBODY: Holder = { record: undefined, link: undefined, ownerRow: 'gone', rows: [] };

/** Returns true if no record owns the object, no key is linked to it, and no row has its external id. */
export const isNobodys = ({ record, link, rows }: Holder): boolean => !record && !link && rows.length === 0;

/** Returns the object's owner, unless its stream is not configured or its row has another external id. */
export const ownedBy = ({ streams }: Pick<IdentityDeps, 'streams'>, { record }: Holder) =>
  record && !record.isFormer && streams.has(record.stream) ? record : undefined;

/**
 * Returns true if a record's object may pass to a row of another stream. That stream must have all possible types of
 * the object, or the service must be able to change types. The type of an object kept without a row never changes.
 */
export const mayBecome = (
  { canChangeTypes }: Pick<Destination, 'canChangeTypes'>,
  { localKey }: Pick<RecordKey, 'localKey'>,
  types: Iterable<string> = [],
  stream?: Stream,
): boolean =>
  (canChangeTypes && !isReservedKey(localKey)) || [...types].every((type) => stream?.objectTypes.has(type));

/** Returns a function that looks up the holders of each external id. Throws errors of mirror and state. */
export async function whoHas(
  deps: IdentityDeps,
  externalIds: readonly string[],
  asked: Asked,
): Promise<(externalId: string) => Holder> {
  const ids = [...new Set(externalIds)];
  if (ids.length === 0) return () => NOBODY;
  const [records, links] = await Promise.all([
    readOwners(deps.state.db, ids),
    readLinksTo(deps.state.db, ids),
  ]);
  const ownerRowOf = await (asked.ownerRows ? readOwnerRows(deps, [...records.values()]) : undefined);
  const known = (externalId: string): Holder => {
    const [record, link] = [records.get(externalId), links.get(externalId)];
    return { ...NOBODY, record, link, ownerRow: (record && ownerRowOf?.(record)) ?? 'gone' };
  };
  const isAsked = (id: string) => asked.rows === 'all' || !ownedBy(deps, known(id));
  const rows = asked.rows && (await findRows(deps, ids.filter(isAsked), links));
  return (externalId) => ({ ...known(externalId), rows: rows?.get(externalId) ?? [] });
}

/**
 * Returns a function that looks up the holders of objects read from the service, by external id and by the service's
 * number. An external id that the state cannot store has no holders.
 */
export async function whoHasObjects(
  deps: IdentityDeps,
  objects: readonly FoundObject[],
  asked: Asked,
): Promise<(object: FoundObject) => Holder> {
  const externalIds = objects.flatMap(({ extId }) => (extId !== undefined && isStorable(extId) ? extId : []));
  const numbers = objects.map(({ id }) => id);
  const holderOf = await whoHas(deps, externalIds, asked);
  const linkOf = await readLinksToNumbers(deps.state.db, numbers);
  return ({ id, extId }) => {
    const holder = extId === undefined ? NOBODY : holderOf(extId);
    return { ...holder, link: linkOf.get(id) ?? holder.link };
  };
}

/** Returns the records whose number at the service is also the number of another record with an existing row. */
export async function readOtherOwners<T extends RecordKey & { destinationId: string | null }>(
  deps: IdentityDeps,
  records: readonly T[],
): Promise<(T & { owner: OwnerRecord })[]> {
  const numbers = records.flatMap(({ destinationId }) => destinationId ?? []);
  const owners = await readOwnersByNumber(deps.state.db, numbers);
  if (owners.length === 0) return [];
  const own = new Map(records.map((record) => [recordName(record), record.destinationId]));
  const others = owners.filter((owner) => own.get(recordName(owner)) !== owner.destinationId);
  if (others.length === 0) return [];
  const rowOf = await readOwnerRows(deps, others);
  return records.flatMap((record) =>
    others
      .filter((owner) => owner.destinationId === record.destinationId && rowOf(owner) === 'same')
      .map((owner) => ({ ...record, owner })),
  );
}

async function readOwnerRows(deps: IdentityDeps, records: readonly OwnerRecord[]) {
  // A record with a `formerKey` keeps an object without a row, so there is no row to read.
  const rowOf = await readRowIds(
    deps,
    records.filter(({ formerKey }) => formerKey === null),
  );
  return (record: OwnerRecord): Holder['ownerRow'] => {
    const { row, id } = rowOf(record);
    if (row === 'gone') return row;
    return row === 'unreadable' || id === record.externalId ? 'same' : 'other';
  };
}

/** Returns the rows that have each external id now, by their template or by a link. `links`: all links to the ids. */
async function findRows(
  { mirror, state, streams }: IdentityDeps,
  externalIds: readonly string[],
  links: ReadonlyMap<string, Link>,
): Promise<Map<string, RecordKey[]>> {
  const rowsOf = new Map<string, RecordKey[]>();
  const linked = externalIds.flatMap((id) => links.get(id) ?? []);
  for (const stream of streams.values()) {
    const add = (id: string, keys: readonly string[]) => {
      const found = keys.map((localKey) => ({ stream: stream.name, localKey }));
      if (found.length > 0) rowsOf.set(id, [...(rowsOf.get(id) ?? []), ...found]);
    };
    const found = await mirror.findKeysByExternalId(stream, externalIds);
    const elsewhere = await readLinks(state.db, stream.name, [...found.values()].flat());
    for (const [id, keys] of found)
      add(
        id,
        keys.filter((key) => !elsewhere.has(key)),
      );
    const linksOfStream = linked.filter((link) => link.stream === stream.name);
    if (linksOfStream.length === 0) continue;
    const { rows, unreadable } = await mirror.readRows(
      stream,
      linksOfStream.map(({ localKey }) => localKey),
    );
    for (const { externalId, localKey } of linksOfStream)
      if (rows.has(localKey) || unreadable.has(localKey)) add(externalId, [localKey]);
  }
  return rowsOf;
}
