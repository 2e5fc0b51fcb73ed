// Which row stands for an object, where several records have its external id. The mirror decides: a record whose row
// is gone owns nothing any more, so a row that came back under another key, or in a renamed stream, takes its object
// over.
import type { Mirror } from '../mirror/mirror.js';
import type { State } from '../state/database.js';
import { readOwners, type Owner } from '../state/records/external-ids.js';
import type { Stream } from '../streams/stream.js';

export interface OwnerDeps {
  mirror: Mirror;
  state: State;
  streams: ReadonlyMap<string, Stream>;
}

interface Claimant {
  localKey: string;
  extId: string;
}

type RecordName = Pick<Owner, 'stream' | 'localKey'>;

/**
 * By key, another record whose row is in the mirror and has the same external id. `counts` says which of the state's
 * records count as owners of the claimant's object.
 */
export async function findOtherOwners<T extends Claimant>(
  { mirror, state, streams }: OwnerDeps,
  stream: Stream,
  claimants: readonly T[],
  counts: (owner: Owner, claimant: T) => boolean = () => true,
): Promise<Map<string, RecordName>> {
  const found = new Map<string, RecordName>();
  if (claimants.length === 0) return found;
  const owners = await readOwners(
    state.db,
    claimants.map(({ extId }) => extId),
  );
  for (const claimant of claimants) {
    const others = (owners.get(claimant.extId) ?? []).filter(
      (owner) =>
        (owner.stream !== stream.name || owner.localKey !== claimant.localKey) && counts(owner, claimant),
    );
    for (const other of others) {
      const source = streams.get(other.stream);
      if (!source || !(await mirror.readRows(source, [other.localKey])).has(other.localKey)) continue;
      found.set(claimant.localKey, other);
      break;
    }
  }
  return found;
}
