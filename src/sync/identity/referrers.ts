// Finds the records that refer to a key. Objects refer to each other by external id, so the referring objects are
// checked again whenever the key's object changes or disappears.
import { recordName, type RecordKey } from '../../state/records/outcome-types.js';
import { checkAgain, checkingAgain, type RecordKeys } from '../../state/records/record-state.js';
import type { Stream } from '../../streams/stream.js';
import type { IdentityDeps } from './row-ids.js';

export function childrenOf(streams: ReadonlyMap<string, Stream>, name: string): Stream[] {
  return [...streams.values()].filter(({ references }) => references.some(({ stream }) => stream === name));
}

/** Reads from the mirror which rows refer to any of these keys now. Returns their keys by stream. */
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

/** Finds the records that refer to keys whose objects change, or are lost, in the caller's next transaction. */
export async function findReferrers(deps: IdentityDeps, changed: readonly RecordKey[]) {
  const known = await readReferrers(deps, changed);
  const isKnown = new Set(
    known.flatMap(({ stream, keys }) => keys.map((localKey) => recordName({ stream, localKey }))),
  );
  return {
    /** Statements that schedule a check of the referring records, for the transaction that commits the change. */
    checks: known.filter(({ keys }) => keys.length > 0).map((children) => checkingAgain(children)),

    /** Schedules a check of rows that began to refer meanwhile. Call it after the transaction has committed. */
    async checkLater(): Promise<void> {
      for (const { stream, keys } of await readReferrers(deps, changed)) {
        const later = keys.filter((localKey) => !isKnown.has(recordName({ stream, localKey })));
        await checkAgain(deps.state.db, { stream, keys: later });
      }
    },
  };
}
