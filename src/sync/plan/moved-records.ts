// Rows that only change their key: a row with another key gives the external id of a record whose row is gone. Nothing is
// taken away and nothing is new at the service, so it is neither a retirement nor a create, and falls under no limit.
import { isReadingFault } from '../../errors.js';
import { hasAccepted } from '../../state/records/count-records.js';
import { readRecordIds } from '../../state/records/external-ids.js';
import { readLinks } from '../../state/records/links.js';
import type { RecordKey } from '../../state/records/outcome-types.js';
import type { StandingRecord } from '../../state/records/standing-records.js';
import { hashObject } from '../../streams/destination-object.js';
import { mayCollide } from '../../streams/external-id.js';
import type { Stream } from '../../streams/stream.js';
import { findGivers, whoHas } from '../identity/who-has.js';
import { externalIdOfRow, type Rendered } from '../render.js';
import { renderWithParents } from '../render-with-parents.js';
import type { SyncDeps } from '../sync-deps.js';

type MoveDeps = Pick<SyncDeps, 'mirror' | 'state' | 'streams'>;

/** Looks for moves in the plan of one stream. Throws what the readings throw. */
export function createMoves(deps: MoveDeps, stream: Stream) {
  const { mirror, state, streams } = deps;
  let sources: Promise<Stream[]> | undefined;

  /** Streams whose records may have an object that rows of this one give: usually itself alone, on its first run none. */
  async function listSources(): Promise<Stream[]> {
    const found: Stream[] = [];
    for (const other of streams.values()) {
      const mayHave = other.name === stream.name || mayCollide(other.externalId, stream.externalId);
      if (mayHave && (await hasAccepted(state.db, other.name))) found.push(other);
    }
    return found;
  }

  async function readIdsOfRows(keys: readonly string[]): Promise<Map<string, string>> {
    const links = await readLinks(state.db, stream.name, keys);
    const ofLinks = [...links].map(([key, { externalId }]) => [key, externalId] as const);
    const ofKeys = await mirror.readExternalIdsOfKeys(stream, keys);
    if (ofKeys.size > 0) return new Map([...ofKeys, ...ofLinks]);
    // One that cannot be read is a create like any other: its batch says why it is not sent.
    const { rows } = await mirror.readRowsOrReasons(stream, keys);
    const ids = [...rows].map(([key, { row }]) => [key, externalIdOfRow(stream, row)] as const);
    return new Map([
      ...ids.flatMap(([key, id]) => (id === undefined ? [] : [[key, id] as const])),
      ...ofLinks,
    ]);
  }

  return {
    /** Of these records, whose rows are gone: those whose external id rows with other keys give now, with these rows. */
    async findMoved(keys: readonly string[]): Promise<Map<string, RecordKey[]>> {
      const ids = await readRecordIds(state.db, stream.name, keys);
      const ofKeys = stream.ownsIds ? await mirror.readExternalIdsOfKeys(stream, keys) : undefined;
      // An id that only this key gives has gone with it.
      const open = [...ids].filter(([key, id]) => ofKeys?.get(key) !== id);
      // A row that cannot be read may be any of them: the batch that is to retire these asks again, and leaves them alone.
      const givers = await findGivers(
        deps,
        open.map(([, id]) => id),
      ).catch((error: unknown) => {
        if (!isReadingFault(error)) throw error;
        return new Map<string, RecordKey[]>();
      });
      const others = open.map(([key, id]) => {
        const rows = givers.get(id) ?? [];
        return [key, rows.filter((row) => row.stream !== stream.name || row.localKey !== key)] as const;
      });
      return new Map(others.filter(([, rows]) => rows.length > 0));
    },

    /**
     * Of these rows, which own no object: those that take one over, each with the record that has it. `isChanged`: the row
     * gives another object than the service accepted last, and is not only a row under another key.
     */
    async findTakeovers(
      keys: readonly string[],
    ): Promise<Map<string, StandingRecord & { isChanged: boolean }>> {
      const moved = new Map<string, StandingRecord>();
      const possible = await (sources ??= listSources());
      if (possible.length === 0) return new Map();
      const ids = await readIdsOfRows(keys);
      const holders = await whoHas(deps, [...ids.values()]);
      for (const [key, id] of ids) {
        const { record, ownerRow } = holders.get(id) ?? {};
        const isOurs =
          record && record.status !== 'retired' && (record.objectHash !== null || record.isWritten);
        if (isOurs && ownerRow !== 'same') moved.set(key, record);
      }
      const { rows } = await mirror.readRowsOrReasons(stream, [...moved.keys()]);
      const rendered = await renderWithParents(deps, stream, rows);
      return new Map(
        [...moved].map(([key, owner]) => [key, { ...owner, isChanged: isChanged(owner, rendered.get(key)) }]),
      );
    },
  };
}

/** A row that cannot be mapped sends nothing. */
function isChanged({ objectHash }: StandingRecord, rendered: Rendered | undefined): boolean {
  if (!rendered || 'problem' in rendered) return false;
  return !('object' in rendered) || hashObject(rendered.object) !== objectHash;
}
