// The one answer to "who has this external id". At most one record owns the object, and at most one key is linked to it.
// The mirror says which rows have the id now: so a row that came back under another key, or in another stream, takes its
// object over.
import type { Destination, FoundObject } from '../../destination/destination.js';
import { readLinks, readLinksTo, readLinksToNumbers, type Link } from '../../state/records/links.js';
import { recordName, type RecordKey } from '../../state/records/outcome-types.js';
import { readOwners, readOwnersByNumber, type OwnerRecord } from '../../state/records/read/owners.js';
import { isReservedKey, isStorable } from '../../streams/local-key.js';
import type { Stream } from '../../streams/stream.js';
import { readRowIds, type IdentityDeps } from './row-ids.js';

/** Who has an object. */
export interface Holder {
  /** The record that owns it. */
  record: OwnerRecord | undefined;
  /** The link to it: whichever row the template names, only the linked key has the object. */
  link: Link | undefined;
  /** The row of the record: it has this external id, or another one, or is gone. One that cannot be read may have it still. */
  ownerRow: 'same' | 'other' | 'gone';
  /** The rows of any stream that have the external id now, known to the state or not; of one stream at most six. */
  rows: readonly RecordKey[];
}

/** Questions to the mirror, beside what the state knows. */
interface Asked {
  /** The rows of the records: `ownerRow` is 'gone' without. */
  ownerRows?: boolean;
  /** The rows that have the external ids: all, or only where no record of a configured stream owns the object. */
  rows?: 'all' | 'where unowned';
}

const NOBODY: Holder = { record: undefined, link: undefined, ownerRow: 'gone', rows: [] };

/** Whether no record, no link and no row has an object. */
export const isNobodys = ({ record, link, rows }: Holder): boolean => !record && !link && rows.length === 0;

/** Whether a record of a configured stream owns the object, and has not lost its row to another external id. */
export const ownedBy = ({ streams }: Pick<IdentityDeps, 'streams'>, { record }: Holder) =>
  record && !record.isFormer && streams.has(record.stream) ? record : undefined;

/**
 * Whether the object of a record, which has one of these types, may become that of a row of the stream: it is of its types, or
 * the service is to be asked for another type. The service has been asked for an object that is kept without a row.
 */
export const mayBecome = (
  { canChangeTypes }: Pick<Destination, 'canChangeTypes'>,
  { localKey }: Pick<RecordKey, 'localKey'>,
  types: Iterable<string> = [],
  stream?: Stream,
): boolean =>
  (canChangeTypes && !isReservedKey(localKey)) || [...types].every((type) => stream?.objectTypes.has(type));

/** Who has each of these external ids: a few queries for all of them. Throws what mirror and state throw. */
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
 * Who has each of these objects of the service: by its external id, and by its number for a link to it. An external id that
 * the state cannot hold is nobody's.
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

/** Returns the records whose number is that of another record, the owner, if the row of the owner is still there. */
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
  // No row has the key of the record that keeps a former object.
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

/** By external id, the rows that have it now, by their template or by a link. `links`: to these external ids. */
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
