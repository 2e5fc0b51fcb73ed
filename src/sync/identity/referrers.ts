// Finds records that refer to other records. When a key gets another object, or loses it, objects that refer to the key
// contain an outdated external id. So these objects are checked again.
import { recordName, type RecordKey } from '../../state/records/outcome-types.js';
import { checkAgain, checkingAgain, type RecordKeys } from '../../state/records/record-state.js';
import type { Stream } from '../../streams/stream.js';
import type { IdentityDeps } from './row-ids.js';

export function childrenOf(streams: ReadonlyMap<string, Stream>, name: string): Stream[] {
  return [...streams.values()].filter(({ references }) => references.some(({ stream }) => stream === name));
}

/** Reads from the mirror which rows refer to any of the given keys. Returns the keys of these rows by stream. */
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

/** Finds records that refer to the given keys. The caller then changes or removes the objects of these keys. */
export async function findReferrers(deps: IdentityDeps, changed: readonly RecordKey[]) {
  const known = await readReferrers(deps, changed);
  const isKnown = new Set(
    known.flatMap(({ stream, keys }) => keys.map((localKey) => recordName({ stream, localKey }))),
  );
  return {
    /** SQL statements that schedule a check of the found records, for the transaction that changes the objects. */
    checks: known.filter(({ keys }) => keys.length > 0).map((children) => checkingAgain(children)),

    /** Schedules a check of rows that refer to the keys only since the first query. Call after the transaction. */
    async checkLater(): Promise<void> {
      for (const { stream, keys } of await readReferrers(deps, changed)) {
        const later = keys.filter((localKey) => !isKnown.has(recordName({ stream, localKey })));
        await checkAgain(deps.state.db, { stream, keys: later });
      }
    },
  };
}
