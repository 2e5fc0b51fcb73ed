// Who has an external id. At most one record owns the object. The mirror says which row gives the id now: so a row that
// came back under another key, or in another stream, takes its object over.
import { formerKey } from '../../state/records/change-hands.js';
import { readLinks, readLinksTo, type Link } from '../../state/records/links.js';
import type { RecordKey } from '../../state/records/outcome-types.js';
import { readOwners, type StandingRecord } from '../../state/records/standing-records.js';
import { mayGive } from '../../streams/external-id.js';
import { readRowIds, type IdentityDeps } from './row-ids.js';

/** Who has an object. */
export interface Holder {
  /** The record that owns it. */
  record: StandingRecord | undefined;
  /** The link to it: whichever row the template names, it does not have the object. */
  link: Link | undefined;
  /** What the row of the record gives now: this object, another one, or nothing because it is gone. */
  ownerRow: 'same' | 'other' | 'gone';
}

/**
 * By external id, who has the object, where anybody has. A row that cannot be read may give it still. A few queries for all
 * of them; the mirror is asked for rows of owners alone.
 */
export async function whoHas(
  deps: IdentityDeps,
  externalIds: readonly string[],
): Promise<Map<string, Holder>> {
  const holders = new Map<string, Holder>();
  if (externalIds.length === 0) return holders;
  const records = await readOwners(deps.state.db, externalIds);
  const links = await readLinksTo(deps.state.db, externalIds);
  // No row has the key of the record that keeps a former object.
  const keysFormer = ({ localKey, externalId }: StandingRecord) => localKey === formerKey(externalId);
  const rowOf = await readRowIds(
    deps,
    [...records.values()].filter((record) => !keysFormer(record)),
  );
  for (const externalId of new Set([...records.keys(), ...links.keys()])) {
    const record = records.get(externalId);
    const { row, id } = record ? rowOf(record) : { row: 'gone' as const };
    const isSame = row === 'unreadable' || (row === 'here' && id === externalId);
    const ownerRow = row === 'gone' ? row : isSame ? 'same' : 'other';
    holders.set(externalId, { record, link: links.get(externalId), ownerRow });
  }
  return holders;
}

/**
 * By external id, the rows of any stream that give it now, by their template or by a link, whether or not the state knows
 * them.
 */
export async function findGivers(
  { mirror, state, streams }: IdentityDeps,
  externalIds: readonly string[],
): Promise<Map<string, RecordKey[]>> {
  const givers = new Map<string, RecordKey[]>();
  if (externalIds.length === 0) return givers;
  const linked = [...(await readLinksTo(state.db, externalIds)).values()];
  for (const stream of streams.values()) {
    const add = (id: string, keys: readonly string[]) => {
      const found = keys.map((localKey) => ({ stream: stream.name, localKey }));
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
  return givers;
}
