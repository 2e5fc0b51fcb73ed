// A row whose key changed looks like a row that is gone and another one that is new. Where both have the same values, the
// operator may mean that the object follows the row: slotsync rename.
import { isReadingFault } from '../../errors/errors.js';
import type { MirrorRow } from '../../mirror/mirror.js';
import type { RenamedRow } from '../../state/records/gone-rows.js';
import { readOwnersByKey } from '../../state/records/read/owners.js';
import { hashObject } from '../../streams/destination-object.js';
import type { Row } from '../../streams/config-schema.js';
import { splitKey } from '../../streams/local-key.js';
import type { Stream } from '../../streams/stream.js';
import { renderWithParents } from '../object/render-with-parents.js';
import type { SyncDeps } from '../run/sync-deps.js';

/** Each row is compared with each. Of more rows than this none are. */
export const MOST_COMPARED = 20;

/**
 * The rows that are new and would be what the service accepted for one that is gone, if they had its key; only where no other
 * row is in question for either of the two.
 */
export async function findRenamed(
  deps: Pick<SyncDeps, 'mirror' | 'state' | 'streams'>,
  stream: Stream,
  { gone, created }: { gone: readonly string[]; created: readonly string[] },
): Promise<RenamedRow[]> {
  const isAny = gone.length > 0 && created.length > 0;
  if (!isAny || Math.max(gone.length, created.length) > MOST_COMPARED) return [];
  const owners = await readOwnersByKey(deps.state.db, stream.name, gone);
  // A reading that fails here fails in the batch that is to send these rows, and is reported there.
  const { rows } = await deps.mirror.readRows(stream, created).catch((error: unknown) => {
    if (!isReadingFault(error)) throw error;
    return { rows: new Map<string, MirrorRow>() };
  });
  const pairs: RenamedRow[] = [];
  for (const [to, { row }] of rows) {
    const former = new Map(
      owners.flatMap(({ localKey }) => {
        const keyed = withKey(stream, row, localKey);
        return keyed ? [[localKey, { row: keyed }] as const] : [];
      }),
    );
    const rendered = await renderWithParents(deps, stream, former);
    for (const { localKey: from, objectHash } of owners) {
      const result = rendered.get(from);
      if (result && 'object' in result && hashObject(result.object) === objectHash) pairs.push({ from, to });
    }
  }
  const isOnly = ({ from, to }: RenamedRow) =>
    pairs.filter((other) => other.from === from || other.to === to).length === 1;
  return pairs.filter(isOnly);
}

/** The row, as if it had another key. Undefined: no row has such a key. */
function withKey({ key }: Stream, row: Row, localKey: string): Row | undefined {
  const parts = splitKey(localKey, key.length);
  if (!parts) return undefined;
  const valueOf = (column: string, text: string) => {
    const value: unknown = row[column];
    return typeof value === 'number' ? Number(text) : typeof value === 'boolean' ? text === 'true' : text;
  };
  return {
    ...row,
    ...Object.fromEntries(key.map((column, at) => [column, valueOf(column, parts[at] ?? '')])),
  };
}
