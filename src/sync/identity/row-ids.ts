// Determines the external id of a row: that of its link, or else the result of the stream's template.
import { readLinks, type Link } from '../../state/records/links.js';
import { recordName, type RecordKey } from '../../state/records/outcome-types.js';
import type { Row } from '../../streams/config-schema.js';
import { renderExternalId } from '../../streams/external-id.js';
import { isTooLong } from '../../streams/local-key.js';
import type { Stream } from '../../streams/stream.js';
import type { SyncDeps } from '../run/sync-deps.js';

export type IdentityDeps = Pick<SyncDeps, 'mirror' | 'state' | 'streams'>;

/** External id of a row. `id` is undefined if the row has no external id that can be sent. */
interface RowIdentity {
  id: string | undefined;
  /** External id that the template renders, even if the row has a link. */
  templateId: string | undefined;
  link: Link | undefined;
}

export async function idsOf(
  { state }: Pick<IdentityDeps, 'state'>,
  stream: Stream,
  rows: ReadonlyMap<string, { row: Row }>,
): Promise<Map<string, RowIdentity>> {
  const links = await readLinks(state.db, stream.name, [...rows.keys()]);
  return new Map(
    [...rows].map(([key, { row }]) => {
      const [link, templateId] = [links.get(key), externalIdOfRow(stream, row)];
      return [key, { id: link?.externalId ?? templateId, templateId, link }] as const;
    }),
  );
}

/** Renders a row's external id from the template, ignoring links. Undefined if it is too long or fails to render. */
export function externalIdOfRow(stream: Stream, row: Row): string | undefined {
  try {
    const externalId = renderExternalId(stream.externalId, row);
    return isTooLong(externalId) ? undefined : externalId;
  } catch {
    return undefined;
  }
}

/**
 * Returns the current external ids of the rows with these keys, by key. Reads the rows only if the keys do not
 * determine the external id. Leaves out unreadable rows.
 */
export async function readIdsOfKeys(
  { mirror, state }: Pick<IdentityDeps, 'mirror' | 'state'>,
  stream: Stream,
  keys: readonly string[],
): Promise<Map<string, string>> {
  const idsOfKeys = await mirror.readExternalIdsOfKeys(stream, keys);
  if (idsOfKeys.size > 0) {
    const links = await readLinks(state.db, stream.name, keys);
    return new Map([...idsOfKeys, ...[...links].map(([key, { externalId }]) => [key, externalId] as const)]);
  }
  const { rows } = await mirror.readRows(stream, keys);
  const ids = await idsOf({ state }, stream, rows);
  return new Map([...ids].flatMap(([key, { id }]) => (id === undefined ? [] : [[key, id] as const])));
}

/** Current state of a record's row in the mirror. `id` is undefined if the row has no external id that can be sent. */
export type RowId = { row: 'here'; id: string | undefined } | { row: 'gone' | 'unreadable'; id?: undefined };

const GONE: RowId = { row: 'gone' };

/** Reads the external ids of these records' rows, in any stream. A stream that is not configured has no rows. */
export async function readRowIds(
  { mirror, state, streams }: IdentityDeps,
  wanted: readonly RecordKey[],
): Promise<(record: RecordKey) => RowId> {
  const ids = new Map<string, RowId>();
  for (const name of new Set(wanted.map(({ stream }) => stream))) {
    const stream = streams.get(name);
    if (!stream) continue;
    const keys = wanted.flatMap((record) => (record.stream === name ? record.localKey : []));
    const { rows, unreadable } = await mirror.readRows(stream, keys);
    for (const [localKey, { id }] of await idsOf({ state }, stream, rows))
      ids.set(recordName({ stream: name, localKey }), { row: 'here', id });
    for (const localKey of unreadable.keys())
      ids.set(recordName({ stream: name, localKey }), { row: 'unreadable' });
  }
  return (record) => ids.get(recordName(record)) ?? GONE;
}
