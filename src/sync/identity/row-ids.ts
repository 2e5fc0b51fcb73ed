// Which external id rows give now: that of their link, or else what their template makes of them.
import { readLinks } from '../../state/records/links.js';
import { recordName, type RecordKey } from '../../state/records/outcome-types.js';
import { externalIdOfRow } from '../render.js';
import type { SyncDeps } from '../sync-deps.js';

export type IdentityDeps = Pick<SyncDeps, 'mirror' | 'state' | 'streams'>;

/** What a row gives now. `id`: undefined where it gives none that can be sent. */
export type RowId = { row: 'here'; id: string | undefined } | { row: 'gone' | 'unreadable'; id?: undefined };

const GONE: RowId = { row: 'gone' };

/** What the rows of these records give, of any stream. A stream that is not configured has no rows. */
export async function readRowIds(
  { mirror, state, streams }: IdentityDeps,
  wanted: readonly RecordKey[],
): Promise<(record: RecordKey) => RowId> {
  const ids = new Map<string, RowId>();
  for (const name of new Set(wanted.map(({ stream }) => stream))) {
    const stream = streams.get(name);
    if (!stream) continue;
    const keys = wanted.flatMap((one) => (one.stream === name ? one.localKey : []));
    const links = await readLinks(state.db, name, keys);
    const { rows, unreadable } = await mirror.readRowsOrReasons(stream, keys);
    for (const [localKey, { row }] of rows) {
      const id = links.get(localKey)?.externalId ?? externalIdOfRow(stream, row);
      ids.set(recordName({ stream: name, localKey }), { row: 'here', id });
    }
    for (const localKey of unreadable.keys())
      ids.set(recordName({ stream: name, localKey }), { row: 'unreadable' });
  }
  return (record) => ids.get(recordName(record)) ?? GONE;
}
