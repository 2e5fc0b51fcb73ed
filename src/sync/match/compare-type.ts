// Compares all objects of some types with all rows of their streams, in three steps: objects whose external id is known here,
// rows whose object was not met, and what is left of both by the values of fields. Nothing is written but temporary
// tables.
import type { FoundObject } from '../../destination/destination.js';
import type { Context } from '../../destination/client.js';
import { messageOf } from '../../errors/errors.js';
import type { JoinedObject, JoinedRow, MatchTables } from '../../state/match-temp-tables.js';
import { storable } from '../../state/records/outcome-types.js';
import type { FieldChange } from '../../streams/destination-object.js';
import { matchValue, NOT_THERE_YET } from '../identity/match-candidates.js';
import type { Stream } from '../../streams/stream.js';
import {
  differencesOf,
  readBeside,
  readRendered,
  type ObjectBeside,
  type Owner,
} from '../object/compare-objects.js';
import { readKeys } from '../identity/read-keys.js';
import type { SyncDeps } from '../run/sync-deps.js';

export type MatchDeps = Pick<SyncDeps, 'mirror' | 'state' | 'destination' | 'streams'>;

/** A stream, and the fields by which its rows are matched; none: only by external id. */
export interface MatchedStream {
  stream: Stream;
  by: readonly string[];
}

export interface TypeCounts {
  /** Objects of the types. */
  objects: number;
  /** By stream; each stream of the types has an entry. */
  streams: Map<string, RowCounts>;
}

interface RowCounts {
  rows: number;
  /** Rows whose object is as they say. */
  equal: number;
  /** Rows that were compared with their object and refer to a record that is not at the service yet. */
  incomplete: number;
}

/** In place of a reference to a record that is not at the service yet. */
const placeholder = () => NOT_THERE_YET;

/** The changes that a write would make; a reference to a record that is not at the service yet is not compared. */
export function comparedDifferences(...compared: Parameters<typeof differencesOf>): FieldChange[] {
  return differencesOf(...compared).filter((change) => !change.new.includes(NOT_THERE_YET));
}

/** Fills the tables with what is not equal. `streams`: all of their types. */
export async function compareType(
  deps: MatchDeps,
  streams: readonly MatchedStream[],
  tables: MatchTables,
  {
    context,
    pace,
    onRead,
  }: { context: Context; pace?: (() => Promise<void>) | undefined; onRead?: (objects: number) => void },
): Promise<TypeCounts> {
  const types = new Set(streams.flatMap(({ stream }) => [...stream.objectTypes]));
  const none = () => ({ rows: 0, equal: 0, incomplete: 0 });
  const counts = await readBeside(
    deps,
    { types, context, pace, placeholder },
    async () => {
      await tables.clear();
      return { objects: 0, streams: new Map(streams.map(({ stream }) => [stream.name, none()])) };
    },
    async (found, page) => {
      await addObjects(streams, page, tables, found);
      onRead?.(found.objects);
    },
  );
  await tables.indexMet();
  for (const matched of streams) await addRows(deps, matched, tables, counts, context);
  await tables.join();
  return counts;
}

/** Adds the objects of a page that are not equal, and counts those that are. */
async function addObjects(
  streams: readonly MatchedStream[],
  page: readonly ObjectBeside[],
  tables: MatchTables,
  counts: TypeCounts,
): Promise<void> {
  const nobodys: FoundObject[] = [];
  const findings: JoinedObject[] = [];
  for (const { object, owner } of page) {
    const finding = owner && judge(object, owner);
    if (!owner) nobodys.push(object);
    if (finding) findings.push({ ...toJoined(object), ...finding });
    const count = owner && counts.streams.get(owner.stream.name);
    if (!count || (finding && finding.class !== 'differs')) continue;
    if (!finding) count.equal++;
    if (refersAhead(owner)) count.incomplete++;
  }
  counts.objects += page.length;
  await tables.addMet(page.flatMap(({ owner }) => keysOf(owner)));
  await tables.addObjects([...nobodys.map(toJoined), ...findings]);
  await tables.addCandidates(
    nobodys.flatMap(({ id, typeId, fields }) =>
      streams.flatMap(({ stream, by }) => {
        const value = stream.objectTypes.has(typeId) ? matchValue(by, fields) : undefined;
        return value === undefined ? [] : { stream: stream.name, number: id, value };
      }),
    ),
  );
}

/** Whether a row refers to a record that is not at the service yet. */
function refersAhead({ rendered }: Owner): boolean {
  const fields = rendered && 'object' in rendered ? rendered.object.fields : [];
  return fields.some(({ values }) => values.includes(NOT_THERE_YET));
}

function keysOf(owner: Owner | undefined) {
  return owner ? [owner.key, ...owner.others].map((key) => ({ stream: owner.stream.name, key })) : [];
}

function toJoined(object: FoundObject): JoinedObject {
  return {
    number: object.id,
    externalId: object.extId === undefined ? undefined : storable(object.extId),
    object: JSON.stringify(object),
  };
}

/** The finding about an object that has an owner; undefined: it is equal. */
function judge(
  object: FoundObject,
  { stream, key, row, rendered, unreadable, others }: Owner,
): Pick<JoinedObject, 'class' | 'stream' | 'key' | 'differs' | 'note'> | undefined {
  const named = { stream: stream.name, key };
  const notComparable = (note: string) => ({ ...named, class: 'not_comparable' as const, note });
  if (!stream.objectTypes.has(object.typeId))
    return notComparable(`its external id is that of a record of type ${stream.type}`);
  if (others.length > 0)
    return notComparable(
      `rows ${[key, ...others].map((each) => `'${each}'`).join(', ')} give this external id`,
    );
  if (unreadable) return notComparable(messageOf(unreadable));
  if (!row || !rendered) return { ...named, class: 'row_gone' };
  if ('problem' in rendered) return notComparable(rendered.problem);
  if ('missing' in rendered) return undefined;
  const differs = comparedDifferences(stream, rendered.object, object).map(({ field }) => field);
  return differs.length === 0 ? undefined : { ...named, class: 'differs', differs };
}

/** Adds the rows of a stream whose object was not met, and counts all its rows. */
function addRows(
  deps: MatchDeps,
  { stream, by }: MatchedStream,
  tables: MatchTables,
  { streams: counts }: TypeCounts,
  { signal }: Context,
): Promise<void> {
  return deps.mirror.takeTurn(async () => {
    const count = counts.get(stream.name);
    for await (const keys of readKeys(deps.mirror.readHashes(stream))) {
      signal?.throwIfAborted();
      if (count) count.rows += keys.length;
      const unmet = await tables.withoutMet(stream.name, keys);
      if (unmet.length === 0) continue;
      const read = await readRendered(deps, stream, unmet, placeholder);
      const rows = unmet.flatMap((key): JoinedRow | [] => {
        const { row, rendered, unreadable } = read(key);
        const named = { stream: stream.name, key };
        if (unreadable) return { ...named, problem: messageOf(unreadable) };
        if (!row || !rendered) return []; // deleted meanwhile
        if ('problem' in rendered) return { ...named, problem: rendered.problem };
        if ('missing' in rendered) return named;
        const { object } = rendered;
        return { ...named, value: matchValue(by, object.fields), object: JSON.stringify(object) };
      });
      await tables.addRows(rows);
    }
  });
}
