// Rows as they become once the records they refer to are at the service: what a first run over everything is compared by.
import { recordName } from '../../state/records/outcome-types.js';
import type { Row } from '../../streams/config-schema.js';
import type { NeededReference } from '../../streams/map-row.js';
import type { Stream } from '../../streams/stream.js';
import { readRowIds } from '../identity/row-ids.js';
import { renderRows, type Rendered } from './render.js';
import type { SyncDeps } from '../run/sync-deps.js';

/**
 * Renders rows as `renderRows` does. A reference that is not at the service yet becomes the external id that the parent's
 * row has, or else what `placeholder` returns.
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
  const rowIdOf = await readRowIds(deps, [...wanted.values()]);
  const idOf = (reference: NeededReference) => rowIdOf(reference).id ?? placeholder(reference);
  return renderRows(deps.state, stream, rows, idOf);
}
