// Format of the CSV file that `slotsync match` writes, an operator edits, and `match --apply` reads. Pure; csv-file.ts
// reads and writes.
import type { CsvRow } from '../../files/csv-file.js';
import { suggestName } from '../../text/nearest-name.js';
import { MATCH_CLASSES } from '../../state/match-temp-tables.js';
import type { MatchLine } from './match-streams.js';

export const MATCH_COLUMNS = [
  'class',
  'stream',
  'key',
  'external_id',
  'number',
  'here',
  'there',
  'differs',
  'note',
] as const;

/** Columns that a file must have for linking. */
export const NEEDED_COLUMNS = ['class', 'stream', 'key', 'external_id', 'number'] as const;

/** A line of the file with a row and an object to link. */
export interface WantedLink {
  /** Number of the line in the file. */
  line: number;
  stream: string;
  key: string;
  /** External id or number of the object, or both. */
  externalId: string | undefined;
  number: string | undefined;
}

export interface LineFault {
  line: number;
  message: string;
}

export function toCsvRow(
  line: MatchLine,
): Record<(typeof MATCH_COLUMNS)[number], string | number | undefined> {
  return {
    class: line.class,
    stream: line.stream,
    key: line.key,
    external_id: line.externalId,
    number: line.number,
    here: joinValues(line.here),
    there: joinValues(line.there),
    differs: line.differs.join(', '),
    note: line.note,
  };
}

/** Joins the values of several fields to a text for people. */
export function joinValues(values: readonly (readonly string[])[]): string {
  return values.map((list) => list.join(', ')).join(' | ');
}

/** Returns the lines to link, faulty lines, and the number of lines that are not of class `match`. */
export function readMatchLines(rows: readonly CsvRow[], streams: readonly string[]) {
  const wanted: WantedLink[] = [];
  const faults: LineFault[] = [];
  let others = 0;
  for (const { line, values } of rows) {
    const name = values['class']?.trim() ?? '';
    if (name !== 'match') {
      others++;
      if (!(MATCH_CLASSES as readonly string[]).includes(name))
        faults.push({ line, message: `there is no class '${name}'; a line is linked whose class is match` });
      continue;
    }
    const read = readLink(line, values, streams);
    if (typeof read === 'string') faults.push({ line, message: read });
    else wanted.push(read);
  }
  const repeated = findRepeated(wanted, ({ stream, key }) => `${stream} '${key}'`);
  return { wanted, faults: [...faults, ...repeated], others };
}

function readLink(line: number, values: CsvRow['values'], streams: readonly string[]): WantedLink | string {
  const { key = '', external_id: externalId = '' } = values;
  const stream = values['stream']?.trim() ?? '';
  if (stream === '') return 'the stream is empty';
  if (!streams.includes(stream))
    return `there is no stream '${stream}'; ${suggestName(stream, streams) ?? 'the configuration has no stream'}`;
  if (key === '') return 'the key is empty: name the row that is to be linked';
  const text = values['number']?.trim() ?? '';
  if (text === '' && externalId === '') return 'number and external_id are empty: name the object';
  return {
    line,
    stream,
    key,
    externalId: externalId === '' ? undefined : externalId,
    number: text === '' ? undefined : text,
  };
}

/** Returns a fault for each line that names something that an earlier line has named already. */
export function findRepeated<T extends { line: number }>(
  lines: readonly T[],
  nameOf: (line: T) => string,
): LineFault[] {
  const first = new Map<string, number>();
  return lines.flatMap((named) => {
    const name = nameOf(named);
    const before = first.get(name);
    if (before === undefined) first.set(name, named.line);
    return before === undefined
      ? []
      : [{ line: named.line, message: `${name} is in line ${before} already` }];
  });
}
