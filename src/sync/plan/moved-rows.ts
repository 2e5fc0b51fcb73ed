// Rows whose key changed: they look like a row that is gone and another one that is new. Where the new row has the external id
// of the former record, nothing is taken away and nothing is new at the service: it is neither a retirement nor a create, and
// falls under no limit. Where it only has the same values, an operator decides whether the object follows: slotsync rename.
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
import { readIdsOfKeys } from '../identity/row-ids.js';
import { mayBecome, whoHas } from '../identity/who-has.js';
import { type Rendered, renderWithParents } from '../object/render.js';
import type { SyncDeps } from '../run/sync-deps.js';

interface MoveDeps extends Pick<SyncDeps, 'mirror' | 'state' | 'streams'> {
  destination: Pick<Destination, 'canChangeTypes'>;
}

/** The record that has the object now, and whether the row that takes it over changes it. */
export type Takeover = OwnerRecord & { isChanged: boolean };

/** Looks for moves in the plan of one stream. Throws what the readings throw. */
export function createMoves(deps: MoveDeps, stream: Stream) {
  const { mirror, state, streams, destination } = deps;
  let sources: Promise<boolean> | undefined;

  /**
   * Whether records may have an object that rows of this stream give: its own, those of streams with overlapping templates, and
   * those of streams that left the configuration, of which no template is known.
   */
  async function hasSources(): Promise<boolean> {
    for (const name of await listRecordedStreams(state.db)) {
      const other = streams.get(name);
      const mayHave = !other || name === stream.name || mayCollide(other.externalId, stream.externalId);
      if (mayHave && (await hasAccepted(state.db, name))) return true;
    }
    return false;
  }

  return {
    /** By key, the rows with other keys that have the external ids of these records now. The records' own rows are gone. */
    async findMoved(keys: readonly string[]): Promise<Map<string, RecordKey[]>> {
      const owners = await readOwnersByKey(state.db, stream.name, keys);
      const ofKeys = stream.ownsIds ? await mirror.readExternalIdsOfKeys(stream, keys) : undefined;
      // An id that is made of this key alone has gone with it.
      const open = owners.filter(({ localKey, externalId }) => ofKeys?.get(localKey) !== externalId);
      // A row that cannot be read may be any of them: the batch that is to retire these asks again, and leaves them alone.
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
    },

    /**
     * Finds which of these rows, which own no object, take one over, each with the record that has it. `isChanged`: the row
     * becomes another object than the service accepted last, and is not only a row under another key.
     */
    async findTakeovers(keys: readonly string[]): Promise<Map<string, Takeover>> {
      const moved = new Map<string, OwnerRecord>();
      if (!(await (sources ??= hasSources()))) return new Map();
      const ids = await readIdsOfKeys(deps, stream, keys);
      const holderOf = await whoHas(deps, [...ids.values()], { ownerRows: true });
      for (const [key, id] of ids) {
        const { record, ownerRow } = holderOf(id);
        const isOurs = record?.mayBeAtService && record.status !== 'retired';
        const isFit =
          record && mayBecome(destination, record, streams.get(record.stream)?.objectTypes, stream);
        if (isOurs && ownerRow !== 'same' && isFit) moved.set(key, record);
      }
      const { rows } = await mirror.readRows(stream, [...moved.keys()]);
      const rendered = await renderWithParents(deps, stream, rows);
      return new Map(
        [...moved].map(([key, owner]) => [key, { ...owner, isChanged: isChanged(owner, rendered.get(key)) }]),
      );
    },
  };
}

/** A row that cannot be mapped sends nothing. */
function isChanged({ objectHash }: OwnerRecord, rendered: Rendered | undefined): boolean {
  if (!rendered || 'problem' in rendered) return false;
  return !('object' in rendered) || hashObject(rendered.object) !== objectHash;
}

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
