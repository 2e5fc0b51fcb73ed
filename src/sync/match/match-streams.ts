// Compares all rows of some streams with all objects of their types, for `slotsync match`. Returns counts and examples
// by class, and passes all lines to a file. Writes nothing in mirror, service or records.
import type { Context } from '../../destination/client.js';
import type { FoundObject } from '../../destination/destination.js';
import { messageOf, UsageError } from '../../errors/errors.js';
import {
  withMatchTables,
  type JoinedLine,
  type JoinedObject,
  type JoinedRow,
  type MatchClass,
  type MatchTables,
} from '../../state/match-temp-tables.js';
import { storable } from '../../state/records/outcome-types.js';
import type { DestinationObject, FieldChange } from '../../streams/destination-object.js';
import { groupByTypes, type Stream } from '../../streams/stream.js';
import { matchValue, NOT_THERE_YET, valuesOf } from '../identity/match-candidates.js';
import { readKeys } from '../identity/read-keys.js';
import {
  differencesOf,
  readBeside,
  readRendered,
  type ObjectBeside,
  type Owner,
} from '../object/compare-objects.js';
import type { SyncDeps } from '../run/sync-deps.js';

export type MatchDeps = Pick<SyncDeps, 'mirror' | 'state' | 'destination' | 'streams'>;

/** A stream and the fields by which rows and objects are matched. Without fields, only equal external ids match. */
interface MatchedStream {
  stream: Stream;
  by: readonly string[];
}

interface TypeCounts {
  /** Number of objects of these types at the service. */
  objects: number;
  /** Counts of the rows, for each stream with these types. */
  streams: Map<string, RowCounts>;
}

interface RowCounts {
  rows: number;
  /** Number of rows whose object needs no change. */
  equal: number;
  /** Number of rows with a reference that could not be compared, because its record is not at the service yet. */
  incomplete: number;
}

/** A line of the result: a row, an object, or a row with the object found for it. */
export interface MatchLine {
  class: MatchClass;
  /** Undefined for an object whose type several streams have. */
  stream: string | undefined;
  key: string | undefined;
  externalId: string | undefined;
  /** The service's number of the object. */
  number: string | undefined;
  /** Values of the fields to match by, of the row (`here`) and of the object (`there`). */
  here: readonly (readonly string[])[];
  there: readonly (readonly string[])[];
  /** Fields that writing the row would change. */
  differs: readonly string[];
  note: string | undefined;
}

export interface StreamMatches {
  stream: string;
  /** Fields by which rows were matched. */
  by: readonly string[];
  rows: number;
  /** Number of rows in each class. */
  counts: Record<'equal' | 'differs' | 'match' | 'ambiguous' | 'only_here' | 'not_comparable', number>;
  /** Number of differing objects for each field. */
  fields: Record<string, number>;
  /** Number of matching objects that have no external id. */
  unnamed: number;
  /** Number of objects whose records have no row any more. */
  rowGone: number;
  /** Number of rows whose reference was not compared, because its record is not at the service yet. */
  incomplete: number;
}

export interface TypeMatches {
  /** Types of the streams, separated by commas. */
  type: string;
  /** Number of objects at the service, including inactive ones. */
  objects: number;
  streams: StreamMatches[];
  /** Number of objects without a row or record, by class. */
  nobodys: Record<'only_there' | 'without_id' | 'ambiguous', number>;
  samples: MatchLine[];
}

export interface MatchRequest {
  /** Streams to report on. Other streams with these types are compared too, since they may own some objects. */
  names: readonly string[];
  /** Fields by which rows and objects are matched, instead of each stream's `match`. */
  by: readonly string[] | undefined;
  /** Maximum number of examples for each class. */
  samples: number;
  /** Called with all lines. */
  write?: ((lines: readonly MatchLine[]) => Promise<void>) | undefined;
  /** Called during reading, with the number of objects read and the total. */
  onRead?: ((objects: number, total: number) => void) | undefined;
  pace?: (() => Promise<void>) | undefined;
}

/** Compares streams with the service. Throws UsageError if a stream does not map a field of `by`, and other errors. */
export async function matchStreams(
  deps: MatchDeps,
  request: MatchRequest,
  signal?: AbortSignal,
): Promise<TypeMatches[]> {
  const types = groupByType(deps.streams, request);
  const context: Context = { lane: 'verify', signal };
  const results: TypeMatches[] = [];
  let total = 0;
  if (request.onRead) total = (await deps.destination.countObjects(typesOf(types.flat()), context)) ?? 0;
  let read = 0;
  for (const streams of types) {
    results.push(
      await withMatchTables(deps.state, async (tables) => {
        const counts = await compareType(deps, streams, tables, {
          context,
          pace: request.pace,
          onRead: (objects) => request.onRead?.(read + objects, Math.max(total, read + objects)),
        });
        read += counts.objects;
        return report(streams, tables, counts, request);
      }),
    );
  }
  return results;
}

/** Groups streams that share types, with the fields to match by. Throws UsageError if a field is not mapped. */
export function groupByType(
  all: ReadonlyMap<string, Stream>,
  { names, by }: Pick<MatchRequest, 'names' | 'by'>,
): MatchedStream[][] {
  const asked = new Set(names);
  const faults = [...all.values()].flatMap((stream) => {
    if (!asked.has(stream.name)) return [];
    const [place, fields] = by ? ['--by', by] : [`streams.${stream.name}.match`, stream.match ?? []];
    return fields
      .filter((field) => !stream.owned.has(field))
      .map(
        (field) =>
          `${place}: streams.${stream.name} maps no field '${field}'; it maps ${[...stream.owned].join(', ')}`,
      );
  });
  if (faults.length > 0)
    throw new UsageError('rows cannot be matched by a field that they do not map', {
      faults,
      remedy: 'Name fields of the mapping, and with --by only the streams that have them.',
    });
  const fieldsOf = (stream: Stream) =>
    [by, stream.match].find((fields) => fields?.every((field) => stream.owned.has(field))) ?? [];
  return groupByTypes(all.values())
    .filter(({ streams }) => streams.some(({ name }) => asked.has(name)))
    .map(({ streams }) => streams.map((stream) => ({ stream, by: fieldsOf(stream) })));
}

const typesOf = (streams: readonly MatchedStream[]) =>
  new Set(streams.flatMap(({ stream }) => [...stream.objectTypes]));

async function report(
  streams: readonly MatchedStream[],
  tables: MatchTables,
  { objects, streams: rowCounts }: TypeCounts,
  { names, samples, write }: MatchRequest,
): Promise<TypeMatches> {
  const counted = await tables.count();
  const fields = await tables.countFields();
  const unnamed = await tables.countUnnamed();
  const asked = streams.filter(({ stream }) => names.includes(stream.name));
  const only = streams.length === 1 ? streams[0]?.stream.name : undefined;
  const isAsked = ({ stream }: JoinedLine) => stream === null || names.includes(stream);
  const toLines = (found: readonly JoinedLine[]) =>
    found.filter(isAsked).map((line) => toLine(line, streams, only));

  const result: TypeMatches = {
    type: [...typesOf(streams)].join(', '),
    objects,
    streams: asked.map(({ stream: { name }, by }) => {
      const { rows = 0, equal = 0, incomplete = 0 } = rowCounts.get(name) ?? {};
      const count = (class_: MatchClass, what: 'rows' | 'objects') =>
        counted
          .filter((counts) => counts.stream === name && counts.class === class_)
          .reduce((sum, counts) => sum + counts[what], 0);
      return {
        stream: name,
        by,
        rows,
        counts: {
          equal,
          differs: count('differs', 'objects'),
          match: count('match', 'rows'),
          ambiguous: count('ambiguous', 'rows'),
          only_here: count('only_here', 'rows'),
          not_comparable: count('not_comparable', 'rows') + count('not_comparable', 'objects'),
        },
        fields: Object.fromEntries(
          fields
            .filter(({ stream }) => stream === name)
            .map(({ field, objects: differing }) => [field, differing]),
        ),
        unnamed: unnamed.find(({ stream }) => stream === name)?.objects ?? 0,
        rowGone: count('row_gone', 'objects'),
        incomplete,
      };
    }),
    nobodys: { only_there: 0, without_id: 0, ambiguous: 0 },
    samples: [],
  };
  for (const { class: found, objects: count } of counted)
    if (found === 'only_there' || found === 'without_id' || found === 'ambiguous')
      result.nobodys[found] += count;
  for await (const lines of tables.readLines(samples))
    for (const line of toLines(lines)) result.samples.push(line);
  if (write) for await (const lines of tables.readLines()) await write(toLines(lines));
  return result;
}

function toLine(found: JoinedLine, streams: readonly MatchedStream[], only: string | undefined): MatchLine {
  const name = found.stream ?? only;
  const matched = streams.find(({ stream }) => stream.name === name);
  const here = parse(found.here) as DestinationObject | undefined;
  const there = parse(found.there) as FoundObject | undefined;
  const valuesIn = (object: Pick<DestinationObject, 'fields'> | undefined) =>
    object && matched
      ? valuesOf(matched.by, object.fields).map((values) => values.filter((value) => value !== NOT_THERE_YET))
      : [];
  const differs =
    found.differs ??
    (matched && here && there
      ? comparedDifferences(matched.stream, here, there).map(({ field }) => field)
      : []);
  return {
    class: found.class,
    stream: name,
    key: found.key ?? undefined,
    externalId: found.externalId ?? undefined,
    number: found.number ?? undefined,
    here: valuesIn(here),
    there: valuesIn(there),
    differs,
    note: found.note ?? undefined,
  };
}

const parse = (json: string | null): unknown => (json === null ? undefined : JSON.parse(json));

// A type is compared in three steps. First, objects with the external id of a row or record. Second, rows without such
// an object. Third, the remaining rows and objects, by the values of fields.

/** Returns the placeholder for a reference to a record that is not at the service yet. */
const placeholder = () => NOT_THERE_YET;

/** Returns the changes that a write would make. References to records not at the service yet are not compared. */
function comparedDifferences(...compared: Parameters<typeof differencesOf>): FieldChange[] {
  return differencesOf(...compared).changes.filter((change) => !change.new.includes(NOT_THERE_YET));
}

/** Compares all rows and objects of some types. Stores those that differ in temporary tables, and counts the rest. */
async function compareType(
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

/** Compares a page of objects with their owners. Counts equal objects, and stores the others. */
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

/** Returns true if the row refers to a record that is not at the service yet. */
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

/** Returns how an object differs from its owner's row. Undefined if it does not. */
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

/** Stores the rows of a stream for which no object was found, and counts all its rows. */
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
