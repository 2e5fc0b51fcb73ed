// `match`: prints rows and objects of each type by class, with samples for an operator to check, and the next step.
// Also makes links from a file, and removes links.
import type { App } from '../app/app.js';
import { selectStream, selectStreams } from '../config/config-file.js';
import { openCsvFile, readCsvFile, type CsvRow } from '../files/csv-file.js';
import { UsageError } from '../errors/errors.js';
import { plural, lines, formatNumber } from '../text/format.js';
import { print } from '../render/print.js';
import { createProgress } from '../render/progress.js';
import { actAs, noteAction, toRecords } from '../state/actions.js';
import { unlinkRecords } from '../state/records/links.js';
import { readOwnersByKey } from '../state/records/read/owners.js';
import { applyLinks, type AppliedLinks } from '../sync/match/apply-links.js';
import type { Queries } from '../state/database.js';
import { MATCH_COLUMNS, NEEDED_COLUMNS, toCsvRow, joinValues } from '../sync/match/match-file.js';
import {
  groupByType,
  matchStreams,
  type MatchDeps,
  type MatchLine,
  type StreamMatches,
  type TypeMatches,
} from '../sync/match/match-streams.js';
import { createNameCheck } from '../sync/plan/unknown-names.js';
import { DEFAULT_VERIFY_SHARE } from '../streams/config-schema.js';
import { createPace } from '../sync/run/request-pace.js';
import { type CommonOptions, type ReasonOption, EXIT } from './command.js';
import { untilInterrupted } from './signals.js';
import { quote } from '../situation/commands.js';
import { table } from '../render/table.js';

interface MatchOptions extends CommonOptions, ReasonOption {
  by?: string;
  out?: string;
  apply?: string;
  unlink?: string;
  link?: string;
}

export async function match(app: App, names: string[], options: MatchOptions): Promise<number> {
  const { by, out, apply, unlink, link } = options;
  const isAnyGiven = (...others: readonly (string | undefined)[]) =>
    others.some((given) => given !== undefined);
  if (link !== undefined) {
    if (isAnyGiven(by, out, apply, unlink))
      throw new UsageError('--link takes a stream and keys, and no other option');
    return linkToOwn(app, link, names, options);
  }
  if (unlink !== undefined) {
    if (isAnyGiven(by, out, apply))
      throw new UsageError('--unlink takes a stream and keys, and no other option');
    return undoLinks(app, unlink, names, options);
  }
  if (apply === undefined) return compare(app, names, options);
  if (isAnyGiven(by, out, ...names))
    throw new UsageError('--apply takes a file, and neither streams nor other options');
  return applyRows(app, readCsvFile(apply, NEEDED_COLUMNS), options);
}

async function compare(app: App, names: string[], options: MatchOptions): Promise<number> {
  const by = options.by === undefined ? undefined : readFields(options.by);
  const configuration = await app.configuration();
  const chosen = selectStreams(configuration, names);
  const deps = await openDeps(app);
  const request = { names: chosen.map(({ name }) => name), by, samples: SAMPLES };
  const compared = groupByType(deps.streams, request).flatMap((streams) =>
    streams.map(({ stream }) => stream),
  );
  await deps.mirror.requireSources(compared);
  await createNameCheck(deps.destination).requireKnownNames(compared, { lane: 'verify' });

  const { out } = options;
  const file = out === undefined ? undefined : await openCsvFile(out, MATCH_COLUMNS);
  const share = configuration.verify?.share ?? DEFAULT_VERIFY_SHARE;
  const pace = createPace({ requestsPerSecond: app.settings.requestsPerSecond, share });
  const progress = createProgress('objects');
  const wanted = {
    ...request,
    onRead: progress.update,
    write: file && ((found: readonly MatchLine[]) => file.write(found.map(toCsvRow))),
  };
  const matched = await untilInterrupted(
    (signal) => matchStreams(deps, { ...wanted, pace: () => pace(signal) }, signal),
    'Stopped. Nothing was changed.',
  ).finally(progress.stop);
  if (!matched) return EXIT.failed;
  await file?.close();
  const { assignsExternalIds: assignsIds } = deps.destination;
  const described = describeMatches(matched, { names, by: options.by, out, assignsIds });
  print(options, { types: matched, file: out ?? null }, described);
  return EXIT.done;
}

/** Links keys to the objects that their records own now, even if the rows have other external ids. */
async function linkToOwn(app: App, name: string, keys: string[], options: MatchOptions): Promise<number> {
  const stream = selectStream(await app.configuration(), name);
  if (keys.length === 0)
    throw new UsageError('name the keys whose objects are kept', {
      remedy: `slotsync match --link ${stream.name} <key…>`,
    });
  const { db } = await app.confirmedState();
  const owners = await readOwnersByKey(db, stream.name, [...new Set(keys)]);
  const missing = keys.filter((key) => !owners.some(({ localKey }) => localKey === key));
  if (missing.length > 0)
    throw new UsageError(`nothing was linked, because ${stream.name} '${missing[0]}' has no object`, {
      remedy: `To find the object of a row: slotsync match ${stream.name}`,
    });
  const rows = owners.map(({ localKey: key, externalId }, at) => ({
    line: at + 1,
    values: { class: 'match', stream: stream.name, key, external_id: externalId },
  }));
  return applyRows(app, rows, options);
}

async function applyRows(app: App, rows: readonly CsvRow[], options: MatchOptions): Promise<number> {
  const { state } = await app.recognized(); // a link is to an object of this destination
  const deps = { ...(await openDeps(app)), state };
  await deps.mirror.requireSources([...deps.streams.values()]);
  const actor = await app.actor(options.reason);
  const applied = await applyLinks(deps, rows);
  const linked = applied.linked.map(({ stream, key }) => ({ stream, localKey: key }));
  for (const subject of toRecords(linked)) await noteAction(state.db, actor, 'link', subject);
  print(options, applied, describeApplied(applied));
  return EXIT.done;
}

async function undoLinks(app: App, name: string, keys: string[], options: MatchOptions): Promise<number> {
  const stream = selectStream(await app.configuration(), name);
  if (keys.length === 0)
    throw new UsageError('name the keys whose links are removed', {
      remedy: `slotsync match --unlink ${stream.name} <key…>`,
    });
  const { db } = await app.confirmedState();
  const actor = await app.actor(options.reason);
  const undo = (tx: Queries) => unlinkRecords(tx, stream.name, [...new Set(keys)]);
  const undone = await actAs(db, actor, 'unlink', undo, toRecords);
  const found = new Set(undone.map(({ localKey }) => localKey));
  const missing = keys.filter((key) => !found.has(key));
  print(options, { stream: stream.name, unlinked: undone, missing }, [
    ...lines(
      missing.map((key) => `${stream.name} '${key}' has no link, so nothing was removed.`),
      `${plural(undone.length, 'link')} removed.`,
      undone.length > 0 && `To see what the next sync does: slotsync plan ${stream.name}`,
    ),
  ]);
  return missing.length > 0 ? EXIT.failed : EXIT.done;
}

async function openDeps(app: App): Promise<MatchDeps> {
  return {
    state: await app.confirmedState(),
    mirror: await app.mirror(),
    destination: (await app.destination()).patient,
    streams: await app.streams(),
  };
}

function readFields(text: string): string[] {
  const fields = text.split(',').map((field) => field.trim());
  if (fields.includes(''))
    throw new UsageError(`--by takes field ids separated by commas, not '${text}'`, {
      remedy: "Name fields of the mapping, such as --by 'room.code,room.campus'.",
    });
  return [...new Set(fields)];
}

const SAMPLES = 5;
const NAMED_FIELDS = 4;

interface Called {
  names: readonly string[];
  by: string | undefined;
  out: string | undefined;
  /** True if an object without an external id can be linked, because the service can assign the id. */
  assignsIds: boolean;
}

function describeMatches(types: readonly TypeMatches[], { names, by, out, assignsIds }: Called): string[] {
  const all = types.flatMap(({ streams }) => streams);
  const linkable = all.reduce((sum, { counts }) => sum + counts.match, 0);
  const again = ['slotsync match', ...names, ...(by === undefined ? [] : ['--by', quote(by)])].join(' ');
  return lines(
    types.flatMap(describeType),
    !assignsIds &&
      all.some(({ unnamed }) => unnamed > 0) && [
        'Objects without an external id can be linked only with service.assignExternalIds,',
        'or when they have got an external id.',
      ],
    out !== undefined && [
      `Written to ${out}. Delete the lines that are wrong, then:`,
      `slotsync match --apply ${quote(out)}`,
    ],
    out === undefined &&
      linkable > 0 && [
        `To look at ${linkable === 1 ? 'the match' : `all ${formatNumber(linkable)} matches`} and link what is right:`,
        `${again} --out matches.csv`,
      ],
    'Nothing was changed.',
  );
}

function describeType({ type, objects, streams, nobodys, samples }: TypeMatches): string[] {
  const rest = rowsOf([
    ['only there', nobodys.only_there, 'an external id that no row has'],
    ['without id', nobodys.without_id, 'no external id, and no row matches'],
    ['ambiguous', nobodys.ambiguous, 'several rows or objects have the same values'],
  ]);
  const nobodysStream = streams.length === 1 ? streams[0]?.stream : undefined;
  const others = plural(nobodys.only_there + nobodys.without_id, 'object');
  return lines(
    `${type}: ${plural(objects, 'object')} at the service`,
    streams.flatMap((stream) => [
      '',
      `${stream.stream}: ${plural(stream.rows, 'row')} in the mirror, matched by ${['external id', ...stream.by].join(', then by ')}`,
      ...table(['', 'count', ''], rowsOfStream(stream), { indent: 2 }).split('\n'),
      ...(stream.counts.only_here > 0 && nobodys.only_there + nobodys.without_id > 0
        ? [
            `${others} without a row may belong to these rows. To match by ${stream.by.length > 0 ? 'other' : 'their'} values:`,
            `slotsync match ${stream.stream} --by <field,…>`,
          ]
        : []),
    ]),
    rest.length > 0 && [
      '',
      'Objects without a row or a record',
      ...table(['', 'count', ''], rest, { indent: 2 }).split('\n'),
    ],
    samples.length > 0 && '',
    samples.map((sample) => describeSample(sample, nobodysStream)),
    '',
  );
}

type Row = readonly [string, number, string];
const rowsOf = (rows: readonly Row[]) => rows.filter(([, count]) => count > 0);

function rowsOfStream({ counts, fields, unnamed, rowGone, incomplete, by }: StreamMatches): Row[] {
  const named = Object.entries(fields)
    .slice(0, NAMED_FIELDS)
    .map(([field, count]) => `${field} ${formatNumber(count)}`);
  const more = Object.keys(fields).length > NAMED_FIELDS ? ', …' : '';
  const rows = rowsOf([
    ['equal', counts.equal, 'same external id, nothing to change'],
    ['differs', counts.differs, `same external id: ${named.join(', ')}${more}`],
    ['', incomplete, 'not compared: they refer to a record that is not at the service yet'],
    ['match', counts.match, `one object has the same ${by.join(', ')}`],
    ['', unnamed, 'of them have no external id'],
    ['ambiguous', counts.ambiguous, 'several rows or objects have the same values'],
    ['only here', counts.only_here, 'no object: sync would create it'],
    ['row gone', rowGone, 'objects of records whose row is gone'],
    ['not comparable', counts.not_comparable, 'cannot be read, mapped or distinguished'],
  ]);
  return rows.length > 0 ? rows : [['no rows', 0, '']];
}

function describeSample(line: MatchLine, nobodysStream: string | undefined): string {
  const row = line.key === undefined ? undefined : `${line.stream ?? nobodysStream ?? ''} '${line.key}'`;
  const object =
    line.number === undefined
      ? undefined
      : `object ${line.number}${line.externalId === undefined ? '' : ` '${line.externalId}'`}`;
  const values = joinValues(line.here.length > 0 ? line.here : line.there);
  return lines(
    `${line.class.replaceAll('_', ' ')}: ${[row, object].filter((one) => one !== undefined).join(' – ')}`,
    values !== '' && `(${values})`,
    line.differs.length > 0 && `differs: ${line.differs.join(', ')}`,
    line.note,
  ).join('  ');
}

function describeApplied({ linked, already, others }: AppliedLinks): string[] {
  const assigned = linked.filter(({ assignsId }) => assignsId).length;
  return lines(
    `${plural(linked.length, 'row')} linked.`,
    assigned > 0 && `${plural(assigned, 'object')} will get an external id with the next sync.`,
    already > 0 && `${plural(already, 'line')} skipped: the record already has the object.`,
    others > 0 && `${plural(others, 'line')} skipped: the class is not match.`,
    linked.length > 0 && 'Nothing was written at the service. To see what a sync would change: slotsync plan',
  );
}
