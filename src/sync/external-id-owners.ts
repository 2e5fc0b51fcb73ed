// Which row stands for an object, where several records have its external id. The mirror decides: a record whose row
// is gone owns nothing any more, so a row that came back under another key, or in a renamed stream, takes its object
// over.
import { readOwners, type Owner } from '../state/records/external-ids.js';
import type { Stream } from '../streams/stream.js';
import type { Write } from './outcome-reasons.js';
import type { SyncDeps } from './sync-deps.js';

/**
 * By key, another record whose row is in the mirror and has the same external id. `counts` says which of the state's
 * records count as owners of the claimant's object.
 */
export async function findOtherOwners(
  { mirror, state, streams }: Pick<SyncDeps, 'mirror' | 'state' | 'streams'>,
  stream: Stream,
  claimants: readonly Write[],
  counts: (owner: Owner, claimant: Write) => boolean = () => true,
): Promise<Map<string, Pick<Owner, 'stream' | 'localKey'>>> {
  const found = new Map<string, Owner>();
  if (claimants.length === 0) return found;
  const extIds = claimants.map(({ object }) => object.extId);
  const owners = await readOwners(state.db, extIds);
  for (const claimant of claimants) {
    const { localKey } = claimant.record;
    for (const owner of owners.get(claimant.object.extId) ?? []) {
      if (owner.stream === stream.name && owner.localKey === localKey) continue;
      const source = counts(owner, claimant) ? streams.get(owner.stream) : undefined;
      if (!source || !(await mirror.readRows(source, [owner.localKey])).has(owner.localKey)) continue;
      found.set(localKey, owner);
      break;
    }
  }
  return found;
}
