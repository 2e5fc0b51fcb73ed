// Detects rows whose key has changed: a row seems deleted, and another one new. If the new row has the old row's
// external id, the object passes to the new row's record. This is neither a deactivation nor a create, so no limit
// applies. If only the values are equal, an operator decides with `slotsync rename`.
import type { Destination } from '../../destination/destination.js';
import { isReadingFault } from '../../errors/errors.js';
import type { MirrorRow } from '../../mirror/mirror.js';
import { hasAccepted, listRecordedStreams } from '../../state/records/read/count-records.js';
import type { RenamedRow } from '../../state/records/gone-rows.js';
import type { RecordKey } from '../../state/records/outcome-types.js';
import { readOwnersByKey, type OwnerRecord } from '../../state/records/read/owners.js';
import type { Row } from '../../streams/config-schema.js';
import { hashObject } from '../../streams/destination-object.js';
import { mayCollide } from '../../streams/external-id.js';
import { splitKey } from '../../streams/local-key.js';
import type { Stream } from '../../streams/stream.js';
import { readIdsOfKeys, type IdentityDeps } from '../identity/row-ids.js';
import { mayBecome, whoHas } from '../identity/who-has.js';
import { type Rendered, renderWithParents } from '../object/render.js';

interface MoveDeps extends IdentityDeps {
  destination: Pick<Destination, 'canChangeTypes'>;
}

/** Record that owns the object of a moved row. `isChanged`: the row would also change the object. */
export type Takeover = OwnerRecord & { isChanged: boolean };

/** Finds rows that now have the external ids of these records, but another key. The records' rows were deleted. */
export async function findMoved(
  deps: MoveDeps,
  stream: Stream,
  keys: readonly string[],
): Promise<Map<string, RecordKey[]>> {
  const { mirror, state, streams, destination } = deps;
  const owners = await readOwnersByKey(state.db, stream.name, keys);
  const ofKeys = stream.ownsIds ? await mirror.readExternalIdsOfKeys(stream, keys) : undefined;
  // If the external id follows from the key alone, no row with another key can have it.
  const open = owners.filter(({ localKey, externalId }) => ofKeys?.get(localKey) !== externalId);
  // An unreadable row might have any external id. So no row counts as moved; batches check again later.
  const externalIds = open.map(({ externalId }) => externalId);
  const holderOf = await whoHas(deps, externalIds, { rows: 'all' }).catch((error: unknown) => {
    if (!isReadingFault(error)) throw error;
    return undefined;
  });
  const others = open.map(({ localKey, externalId }) => {
    const rows = holderOf?.(externalId).rows ?? [];
    const isOther = (row: RecordKey) =>
      (row.stream !== stream.name || row.localKey !== localKey) &&
      mayBecome(destination, { localKey }, stream.objectTypes, streams.get(row.stream));
    return [localKey, rows.filter(isOther)] as const;
  });
  return new Map(others.filter(([, rows]) => rows.length > 0));
}

/**
 * Returns a function that finds which rows without an object take one over, each with the record that has the object. `isChanged`:
 * the row becomes another object than the service accepted last, and is not only a row under another key.
 */
export function createTakeoverFinder(deps: MoveDeps, stream: Stream) {
  const { mirror, state, streams, destination } = deps;
  let sources: Promise<boolean> | undefined;

  /**
   * Returns true if records may own objects with external ids of this stream's rows. These are records of this stream,
   * of streams with overlapping templates, and of streams no longer in the configuration.
   */
  async function hasSources(): Promise<boolean> {
    for (const name of await listRecordedStreams(state.db)) {
      const other = streams.get(name);
      const mayHave = !other || name === stream.name || mayCollide(other.externalId, stream.externalId);
      if (mayHave && (await hasAccepted(state.db, name))) return true;
    }
    return false;
  }

  return async (keys: readonly string[]): Promise<Map<string, Takeover>> => {
    const moved = new Map<string, OwnerRecord>();
    if (!(await (sources ??= hasSources()))) return new Map();
    const ids = await readIdsOfKeys(deps, stream, keys);
    const holderOf = await whoHas(deps, [...ids.values()], { ownerRows: true });
    for (const [key, id] of ids) {
      const { record, ownerRow } = holderOf(id);
      const isOurs = record?.mayBeAtService && record.status !== 'retired';
      const isFit = record && mayBecome(destination, record, streams.get(record.stream)?.objectTypes, stream);
      if (isOurs && ownerRow !== 'same' && isFit) moved.set(key, record);
    }
    const { rows } = await mirror.readRows(stream, [...moved.keys()]);
    const rendered = await renderWithParents(deps, stream, rows);
    return new Map(
      [...moved].map(([key, owner]) => [key, { ...owner, isChanged: isChanged(owner, rendered.get(key)) }]),
    );
  };
}

/** Returns true if the row changes the object that it takes over. An unmappable row is not sent. */
function isChanged({ objectHash }: OwnerRecord, rendered: Rendered | undefined): boolean {
  if (!rendered || 'problem' in rendered) return false;
  return !('object' in rendered) || hashObject(rendered.object) !== objectHash;
}

/**
 * Maximum number of deleted rows, and of new rows. Every deleted row is compared with every new row. With more rows,
 * nothing is compared.
 */
export const MOST_COMPARED = 20;

/**
 * Finds pairs of a deleted and a new row that differ only in their keys: the new row, with the old key, renders the
 * accepted object. Leaves out ambiguous pairs that share a row.
 */
export async function findRenamed(
  deps: IdentityDeps,
  stream: Stream,
  { gone, created }: { gone: readonly string[]; created: readonly string[] },
): Promise<RenamedRow[]> {
  const isAny = gone.length > 0 && created.length > 0;
  if (!isAny || Math.max(gone.length, created.length) > MOST_COMPARED) return [];
  const owners = await readOwnersByKey(deps.state.db, stream.name, gone);
  // An error of the mirror is ignored here. The batch that sends these rows will report it.
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

/** Returns a copy of the row with another key. Undefined if the key does not fit the key columns. */
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
