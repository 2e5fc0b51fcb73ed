// Determines a row's external id: from its link to an object, or otherwise from the stream's template.
import { readLinks, type Link } from '../../state/records/links.js';
import { recordName, type RecordKey } from '../../state/records/outcome-types.js';
import type { Row } from '../../streams/config-schema.js';
import { renderExternalId } from '../../streams/external-id.js';
import { isTooLong } from '../../streams/local-key.js';
import type { Stream } from '../../streams/stream.js';
import type { SyncDeps } from '../run/sync-deps.js';

export type IdentityDeps = Pick<SyncDeps, 'mirror' | 'state' | 'streams'>;

/** External ids of a row. `id` is undefined if the row has no valid external id. */
interface RowIdentity {
  id: string | undefined;
  /** External id rendered from the stream's template. If the row has a link, `id` is different. */
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

/** Renders a row's external id from the stream's template, ignoring links. Undefined if the result is invalid. */
export function externalIdOfRow(stream: Stream, row: Row): string | undefined {
  try {
    const externalId = renderExternalId(stream.externalId, row);
    return isTooLong(externalId) ? undefined : externalId;
  } catch {
    return undefined;
  }
}

/**
 * Returns the current external id of each key's row. Reads the rows only if the external id does not follow from the
 * key. Leaves out unreadable rows.
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

/** Result of reading a record's row from the mirror. `id` is undefined if the row has no valid external id. */
export type RowId = { row: 'here'; id: string | undefined } | { row: 'gone' | 'unreadable'; id?: undefined };

const GONE: RowId = { row: 'gone' };

/** Reads these records' rows, of any stream. Returns a function that looks up their external ids. */
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
