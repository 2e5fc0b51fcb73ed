// Rows as they become once the records they refer to are at the service: what a first run over everything is compared by.
import { readLinks } from '../state/records/links.js';
import { recordName } from '../state/records/outcome-types.js';
import type { Row } from '../streams/config-schema.js';
import type { NeededReference } from '../streams/map-row.js';
import type { Stream } from '../streams/stream.js';
import { externalIdOfRow, renderRows, type Rendered } from './render.js';
import type { SyncDeps } from './sync-deps.js';

/**
 * Renders rows as `renderRows` does. A reference that is not at the service yet becomes the external id that the parent's
 * row gives, or else what `placeholder` gives.
 */
export async function renderWithParents(
  deps: Pick<SyncDeps, 'mirror' | 'state' | 'streams'>,
  stream: Stream,
  rows: ReadonlyMap<string, { row: Row }>,
  placeholder: (reference: NeededReference) => string | undefined = () => undefined,
): Promise<Map<string, Rendered>> {
  const wanted = new Map<string, NeededReference>();
  const rendered = await renderRows(deps.state, stream, rows, (reference) => {
    wanted.set(recordName(reference), reference);
    return '';
  });
  if (wanted.size === 0) return rendered;
  const ids = await readGivenIds(deps, [...wanted.values()]);
  const idOf = (reference: NeededReference) => ids.get(recordName(reference)) ?? placeholder(reference);
  return renderRows(deps.state, stream, rows, idOf);
}

/** By record name, the external ids that these rows give now. */
async function readGivenIds(
  { mirror, state, streams }: Pick<SyncDeps, 'mirror' | 'state' | 'streams'>,
  wanted: readonly NeededReference[],
): Promise<Map<string, string>> {
  const ids = new Map<string, string>();
  for (const name of new Set(wanted.map((reference) => reference.stream))) {
    const parent = streams.get(name);
    if (!parent) continue;
    const keys = wanted.flatMap((reference) => (reference.stream === name ? reference.localKey : []));
    const links = await readLinks(state.db, name, keys);
    const { rows } = await mirror.readRowsOrReasons(parent, keys);
    for (const [localKey, { row }] of rows) {
      const id = links.get(localKey)?.externalId ?? externalIdOfRow(parent, row);
      if (id !== undefined) ids.set(recordName({ stream: name, localKey }), id);
    }
  }
  return ids;
}
