// Which row stands for an object, where several records have its external id, or none. The mirror decides: a record owns an
// external id only while its row is there and gives it, so a row that came back under another key, or in another stream,
// takes its object over.
import { readLinks, readLinksTo } from '../state/records/links.js';
import { readOwners, type Owner } from '../state/records/external-ids.js';
import { mayGive } from '../streams/external-id.js';
import type { Stream } from '../streams/stream.js';
import type { Write } from './outcome-reasons.js';
import { externalIdOfRow } from './render.js';
import type { SyncDeps } from './sync-deps.js';

type OwnerDeps = Pick<SyncDeps, 'mirror' | 'state' | 'streams'>;
/** Which row: its stream, and its key in it. */
type RowName = Pick<Owner, 'stream' | 'localKey'>;

/**
 * By key, another record whose row is in the mirror and gives the same external id. `counts` says which of the state's
 * records count as owners of the claimant's object.
 */
export async function findOtherOwners(
  { mirror, state, streams }: OwnerDeps,
  stream: Stream,
  claimants: readonly Write[],
  counts: (owner: Owner, claimant: Write) => boolean,
): Promise<Map<string, RowName>> {
  if (claimants.length === 0) return new Map();
  const owners = await readOwners(
    state.db,
    claimants.map(({ object }) => object.extId),
  );
  const isSelf = (owner: Owner, { record }: Write) =>
    owner.stream === stream.name && owner.localKey === record.localKey;
  const others = claimants.flatMap((claimant) =>
    (owners.get(claimant.object.extId) ?? [])
      .filter((owner) => !isSelf(owner, claimant) && counts(owner, claimant))
      .map((owner) => ({ claimant, owner })),
  );
  const gives = await readGivenIds(
    { mirror, state, streams },
    others.map(({ owner }) => owner),
  );
  const found = new Map<string, RowName>();
  for (const { claimant, owner } of others)
    if (gives(owner, claimant.object.extId)) found.set(claimant.record.localKey, owner);
  return found;
}

/** Whether the row of one of these records gives an external id now. */
async function readGivenIds({ mirror, state, streams }: OwnerDeps, wanted: readonly RowName[]) {
  const ids = new Map<string, string | undefined>();
  const unknown = new Set<string>();
  const nameOf = ({ stream, localKey }: RowName) => JSON.stringify([stream, localKey]);
  for (const name of new Set(wanted.map((owner) => owner.stream))) {
    const source = streams.get(name);
    if (!source) continue;
    const keys = wanted.filter((owner) => owner.stream === name).map(({ localKey }) => localKey);
    const { rows, unreadable } = await mirror.readRowsOrReasons(source, keys);
    const links = await readLinks(state.db, name, keys);
    for (const [localKey, { row }] of rows) {
      const given = links.get(localKey)?.externalId ?? externalIdOfRow(source, row);
      ids.set(nameOf({ stream: name, localKey }), given);
    }
    for (const localKey of unreadable.keys()) unknown.add(nameOf({ stream: name, localKey }));
  }
  /** A row that cannot be read may give it still. */
  return (owner: RowName, externalId: string) =>
    ids.get(nameOf(owner)) === externalId || unknown.has(nameOf(owner));
}

/** A row that gives an external id now, and whether the service has accepted the object as that row's. */
export type Giver = RowName & { isAccepted: boolean };

/**
 * By external id, the rows of any stream that give it now, by their template or by a link, whether or not the state knows
 * them.
 */
export async function findGivers(
  { mirror, state, streams }: OwnerDeps,
  externalIds: readonly string[],
): Promise<Map<string, Giver[]>> {
  const givers = new Map<string, Giver[]>();
  if (externalIds.length === 0) return givers;
  const linked = [...(await readLinksTo(state.db, externalIds)).values()];
  for (const stream of streams.values()) {
    const add = (id: string, keys: readonly string[]) => {
      const found = keys.map((localKey) => ({ stream: stream.name, localKey, isAccepted: false }));
      if (found.length > 0) givers.set(id, [...(givers.get(id) ?? []), ...found]);
    };
    const possible = externalIds.filter((id) => mayGive(stream.externalId, id));
    if (possible.length > 0) {
      const found = await mirror.findKeysByExternalId(stream, possible);
      const elsewhere = await readLinks(state.db, stream.name, [...found.values()].flat());
      for (const [id, keys] of found)
        add(
          id,
          keys.filter((key) => !elsewhere.has(key)),
        );
    }
    const links = linked.filter((link) => link.stream === stream.name);
    if (links.length === 0) continue;
    const { rows, unreadable } = await mirror.readRowsOrReasons(
      stream,
      links.map(({ localKey }) => localKey),
    );
    for (const { externalId, localKey } of links)
      if (rows.has(localKey) || unreadable.has(localKey)) add(externalId, [localKey]);
  }
  if (givers.size === 0) return givers;
  const owners = await readOwners(state.db, [...givers.keys()]);
  for (const [id, found] of givers)
    for (const giver of found)
      giver.isAccepted = (owners.get(id) ?? []).some(
        ({ stream, localKey, isAccepted }) =>
          stream === giver.stream && localKey === giver.localKey && isAccepted,
      );
  return givers;
}
