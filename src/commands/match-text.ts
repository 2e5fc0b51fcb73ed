// The output of `match`: for each type its rows and objects by class, a few of each class that an operator has to look at,
// and what to do next.
import type { AppliedLinks } from '../sync/match/apply-links.js';
import { joinValues } from '../sync/match/match-file.js';
import type { MatchLine, StreamMatches, TypeMatches } from '../sync/match/match-streams.js';
import { quote } from '../situation/commands.js';
import { formatNumber, plural, lines } from '../text/format.js';
import { table } from '../render/table.js';

/** Samples of each class. */
export const SAMPLES = 5;
/** Fields that are named. */
const NAMED_FIELDS = 4;

/** How the command was called, and what that means. */
interface Called {
  names: readonly string[];
  by: string | undefined;
  /** The file that was written. */
  out: string | undefined;
  /** Whether an object without an external id can be linked. */
  assignsIds: boolean;
}

export function describeMatches(
  types: readonly TypeMatches[],
  { names, by, out, assignsIds }: Called,
): string[] {
  const all = types.flatMap(({ streams }) => streams);
  const linkable = all.reduce((sum, { counts }) => sum + counts.match, 0);
  const isUnmatched = all.some(({ by: fields, counts }) => fields.length === 0 && counts.only_here > 0);
  const again = ['slotsync match', ...names, ...(by === undefined ? [] : ['--by', quote(by)])].join(' ');
  return lines(
    types.flatMap(describeType),
    isUnmatched &&
      types.some(({ nobodys }) => nobodys.only_there + nobodys.without_id > 0) &&
      'To find objects by their values too: slotsync match <stream> --by <field,…>',
    !assignsIds &&
      all.some(({ unnamed }) => unnamed > 0) && [
        'Objects without an external id are linked only with service.assignExternalIds,',
        'or once they have one.',
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
  return lines(
    `${type}: ${plural(objects, 'object')} at the service`,
    streams.flatMap((stream) => [
      '',
      `${stream.stream}: ${plural(stream.rows, 'row')} in the mirror`,
      ...table(['', 'count', ''], rowsOfStream(stream), { indent: 2 }).split('\n'),
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
    ['', incomplete, 'refer to a record not at the service yet: not compared'],
    ['match', counts.match, `one object has the same ${by.join(', ')}`],
    ['', unnamed, 'of them have no external id'],
    ['ambiguous', counts.ambiguous, 'several rows or objects have the same values'],
    ['only here', counts.only_here, 'no object: sync would create it'],
    ['row gone', rowGone, 'objects of records whose row is gone'],
    ['not comparable', counts.not_comparable, 'cannot be read, mapped, or told apart'],
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

export function describeApplied({ linked, already, others }: AppliedLinks): string[] {
  const assigned = linked.filter(({ assignsId }) => assignsId).length;
  return lines(
    `${plural(linked.length, 'row')} linked.`,
    assigned > 0 && `${plural(assigned, 'object')} of them will get an external id with the next sync.`,
    already > 0 && `${plural(already, 'line')} not needed: the record has the object already.`,
    others > 0 && `${plural(others, 'line')} of other classes passed over.`,
    linked.length > 0 && 'Nothing was written at the service. What sync would change: slotsync plan',
  );
}
