// Finds out who has an external id: at most one record owns the object, and at most one key is linked to it. The mirror
// shows which rows have the external id now. So a row that returns under another key, or in another stream, takes over
// its object.
import type { Destination, FoundObject } from '../../destination/destination.js';
import { readLinks, readLinksTo, readLinksToNumbers, type Link } from '../../state/records/links.js';
import { recordName, type RecordKey } from '../../state/records/outcome-types.js';
import { readOwners, readOwnersByNumber, type OwnerRecord } from '../../state/records/read/owners.js';
import { isReservedKey, isStorable } from '../../streams/local-key.js';
import type { Stream } from '../../streams/stream.js';
import { readRowIds, type IdentityDeps } from './row-ids.js';

/** The record, the link and the rows that have the external id of an object. */
export interface Holder {
  record: OwnerRecord | undefined;
  /** Link to the object. Only the linked key has the object, even if another row's template renders its id. */
  link: Link | undefined;
  /** State of the owning record's row. `same`: it has this external id, or is unreadable and may have it. */
  ownerRow: 'same' | 'other' | 'gone';
  /** Rows of any stream that have the external id now, with or without a record. At most six rows of one stream. */
  rows: readonly RecordKey[];
}

/** Facts to query from the mirror, in addition to the facts in the state. */
interface Asked {
  /** Reads the rows of the owning records. If not set, `ownerRow` is always `gone`. */
  ownerRows?: boolean;
  /**
   * Reads rows that have the external ids. `where unowned`: only if no record of a configured stream owns the object.
   */
  rows?: 'all' | 'where unowned';
}

const NOBODY: Holder = { record: undefined, link: undefined, ownerRow: 'gone', rows: [] };

/** Returns true if neither a record nor a link nor a row has the object. */
export const isNobodys = ({ record, link, rows }: Holder): boolean => !record && !link && rows.length === 0;

/** Returns the owning record, unless its stream is not configured or its row has another external id now. */
export const ownedBy = ({ streams }: Pick<IdentityDeps, 'streams'>, { record }: Holder) =>
  record && !record.isFormer && streams.has(record.stream) ? record : undefined;

/**
 * True if a record's object, which has one of these types, may pass to a row of the stream. The stream must have these
 * types, or the service must be able to change types. The type of an object kept without a row is never changed.
 */
export const mayBecome = (
  { canChangeTypes }: Pick<Destination, 'canChangeTypes'>,
  { localKey }: Pick<RecordKey, 'localKey'>,
  types: Iterable<string> = [],
  stream?: Stream,
): boolean =>
  (canChangeTypes && !isReservedKey(localKey)) || [...types].every((type) => stream?.objectTypes.has(type));

/** Looks up who has each external id, with a few queries for all of them. Throws errors of mirror and state. */
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
 * Returns a function that tells who has an object of the service. Looks for the external id, and for links by the
 * service's number. An external id that the state cannot store has no owner.
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

/** Returns the records whose number at the service another record has, if that owner's row still exists. */
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
  // A record that keeps a former object has a reserved key. No row has that key.
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

/** Returns the rows that have each external id now, by template or link. `links`: the links to these external ids. */
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
