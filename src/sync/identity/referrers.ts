// Records refer to others by key, and their objects by external id. Whenever the object that a key represents changes, also to
// none, the records that refer to the key are checked again.
import { recordName, type RecordKey } from '../../state/records/outcome-types.js';
import { checkAgain, checkingAgain, type RecordKeys } from '../../state/records/record-state.js';
import type { Stream } from '../../streams/stream.js';
import type { IdentityDeps } from './row-ids.js';

/** The streams that refer to a stream. */
export function childrenOf(streams: ReadonlyMap<string, Stream>, name: string): Stream[] {
  return [...streams.values()].filter(({ references }) => references.some(({ stream }) => stream === name));
}

/** The keys of records that refer to any of these, by stream, as the mirror has them now. */
async function readReferrers(
  { mirror, streams }: IdentityDeps,
  changed: readonly RecordKey[],
): Promise<RecordKeys[]> {
  const found: RecordKeys[] = [];
  for (const parent of new Set(changed.map(({ stream }) => stream))) {
    const keys = changed.flatMap(({ stream, localKey }) => (stream === parent ? localKey : []));
    for (const child of childrenOf(streams, parent))
      found.push({ stream: child.name, keys: await mirror.findReferrers(child, parent, keys) });
  }
  return found;
}

/** The records that refer to keys which represent another object from the next transaction on, or none. */
export async function findReferrers(deps: IdentityDeps, changed: readonly RecordKey[]) {
  const known = await readReferrers(deps, changed);
  const isKnown = new Set(
    known.flatMap(({ stream, keys }) => keys.map((localKey) => recordName({ stream, localKey }))),
  );
  return {
    /** Let them be checked again: statements for the transaction that commits the change. */
    checks: known.filter(({ keys }) => keys.length > 0).map((children) => checkingAgain(children)),

    /** The same for rows that have come to refer to them meanwhile: after that transaction. */
    async checkLater(): Promise<void> {
      for (const { stream, keys } of await readReferrers(deps, changed)) {
        const later = keys.filter((localKey) => !isKnown.has(recordName({ stream, localKey })));
        await checkAgain(deps.state.db, { stream, keys: later });
      }
    },
  };
}
