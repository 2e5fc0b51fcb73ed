// Reads and writes tables as CSV files for spreadsheets. Files are written with a byte order mark, by which
// spreadsheets recognize UTF-8. Files are read with or without it, separated by commas, semicolons or tabs, which
// differ by country.
import { parse } from 'csv-parse/sync';
import { stringify } from 'csv-stringify/sync';
import { messageOf, UsageError } from '../errors/errors.js';
import { visible } from '../text/visible-text.js';
import { openOutputFile, readTextFile } from './text-file.js';

export interface CsvRow {
  /** Number of the file's line on which the row ends. A carriage return within a cell counts as a line of its own. */
  line: number;
  values: Readonly<Record<string, string>>;
}

const BYTE_ORDER_MARK = '\uFEFF';

/**
 * Reads the rows of a file. Its first line contains the column names. Throws UsageError if the file cannot be read, is
 * no table, or lacks one of `columns`.
 */
export function readCsvFile(file: string, columns: readonly string[]): CsvRow[] {
  const remedy = `It needs a first line with the columns ${columns.join(', ')}.`;
  const text = readTextFile(file);
  let parsed: { record: string[]; info: { lines: number } }[];
  try {
    const heading = text.split('\n', 1)[0] ?? '';
    const delimiter = [',', ';', '\t'].find((sign) => heading.includes(sign)) ?? ',';
    parsed = parse(text, { bom: true, delimiter, info: true, skip_empty_lines: true }) as never;
  } catch (error) {
    throw new UsageError(`${file} is not a CSV file: ${messageOf(error)}`, {
      remedy: 'Correct that line. A value with a comma, a quote or a line end is written in quotes.',
    });
  }
  const [heading, ...rows] = parsed;
  const names = (heading?.record ?? []).map((name) => uncell(name.trim()));
  const missing = columns.filter((column) => !names.includes(column));
  if (missing.length > 0) throw new UsageError(`${file} has no column ${missing.join(', ')}`, { remedy });
  return rows
    .map(({ record, info }) => ({
      line: info.lines,
      values: Object.fromEntries(names.map((name, place) => [name, uncell(record[place] ?? '')])),
    }))
    .filter(({ values }) => Object.values(values).some((value) => value !== ''));
}

/** Opens a file for rows with these columns. When the file is closed, it replaces an existing file. */
export async function openCsvFile(file: string, columns: readonly string[]) {
  const { write, close } = await openOutputFile(file);
  await write(BYTE_ORDER_MARK + columns.map(cell).join(',') + '\n');
  return {
    /** Writes rows. Waits while the disk is slower than the rows. */
    write: (rows: readonly Readonly<Record<string, string | number | null | undefined>>[]): Promise<void> =>
      write(stringify(rows.map((row) => columns.map((column) => cell(row[column]))))),
    close,
  };
}

/**
 * Matches the beginning of a formula, which a spreadsheet would compute: a sign, also one of East Asian width. A
 * spreadsheet that separates cells by semicolons may find a formula after each semicolon.
 */
const FORMULA = /(^|;)(?=[\s"]*['=+\-@＝＋－＠])/g;

/** Escapes a cell: puts an apostrophe before a formula, and escapes control characters. `uncell` reverses this. */
function cell(value: string | number | null | undefined): string {
  const text = value === null || value === undefined ? '' : String(value);
  const escaped = visible(text.replaceAll(ESCAPE, '\\u005c')).replaceAll('\n', '\\u000a');
  return escaped.replaceAll(FORMULA, "$1'");
}

const ESCAPE = /\\(?=u[\da-f]{4})/g;

const uncell = (text: string) =>
  text
    .replaceAll(/(^|;)'/g, '$1')
    .replaceAll(/\\u([\da-f]{4})/g, (_, code: string) => String.fromCharCode(Number.parseInt(code, 16)));
