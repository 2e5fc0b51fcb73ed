// The comparison behind `match`: every row of some streams beside every object of their types, counted by class, with
// samples, and line by line for a file. Writes nothing in mirror, records or service.
import { UsageError } from '../../errors/errors.js';
import type { Context } from '../../destination/client.js';
import type { FoundObject } from '../../destination/destination.js';
import {
  withMatchTables,
  type JoinedLine,
  type MatchClass,
  type MatchTables,
} from '../../state/match-temp-tables.js';
import type { DestinationObject } from '../../streams/destination-object.js';
import { NOT_THERE_YET, valuesOf } from '../identity/match-candidates.js';
import { groupByTypes, type Stream } from '../../streams/stream.js';
import {
  comparedDifferences,
  compareType,
  type MatchDeps,
  type MatchedStream,
  type TypeCounts,
} from './compare-type.js';

/** A finding: a row, an object, or both. */
export interface MatchLine {
  class: MatchClass;
  /** Undefined: an object of a type that several streams have. */
  stream: string | undefined;
  key: string | undefined;
  externalId: string | undefined;
  /** The service's own. */
  number: string | undefined;
  /** Values of the fields by which is matched. */
  here: readonly (readonly string[])[];
  there: readonly (readonly string[])[];
  /** Fields that a write would change. */
  differs: readonly string[];
  note: string | undefined;
}

export interface StreamMatches {
  stream: string;
  /** The fields by which rows were matched. */
  by: readonly string[];
  rows: number;
  /** Rows by class. */
  counts: Record<'equal' | 'differs' | 'match' | 'ambiguous' | 'only_here' | 'not_comparable', number>;
  /** Objects of `differs` by the field in which they do. */
  fields: Record<string, number>;
  /** Objects of `match` that have no external id. */
  unnamed: number;
  /** Objects of records whose row is gone. */
  rowGone: number;
  /** How many of `equal` and `differs` refer to a record that is not at the service yet: that field was not compared. */
  incomplete: number;
}

export interface TypeMatches {
  /** The types of the streams, separated by commas. */
  type: string;
  /** Objects at the service, inactive ones too. */
  objects: number;
  streams: StreamMatches[];
  /** Objects that no row and no record represents. */
  nobodys: Record<'only_there' | 'without_id' | 'ambiguous', number>;
  samples: MatchLine[];
}

export interface MatchRequest {
  /** The streams that are asked for. Others of their types are compared too, since an object may be theirs. */
  names: readonly string[];
  /** Fields by which rows and objects are matched, in place of each stream's `match`. */
  by: readonly string[] | undefined;
  /** Findings of each class that are returned. */
  samples: number;
  /** Gets every finding. */
  write?: ((lines: readonly MatchLine[]) => Promise<void>) | undefined;
  /** Gets how many objects were read, and how many there are. */
  onRead?: ((objects: number, total: number) => void) | undefined;
  pace?: (() => Promise<void>) | undefined;
}

/** Throws what mirror, state and service throw, and UsageError when a stream does not map a field of `by`. */
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

/** The streams of the request in groups that share types, with the fields by which each is matched. Throws UsageError. */
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
