// Formats tables: columns under headings, wrapped to the width of the terminal. Only columns of zeros are left out.
import { formatNumber } from '../text/format.js';
import { visibleInLine } from '../text/visible-text.js';
import { columnsOf } from '../process/terminal.js';
import { widthOf, wrapWords } from './wrap.js';

export type Cell = string | number;

interface Column {
  heading: string;
  cells: readonly Cell[];
  isNumeric: boolean;
}

const GAP = '  ';
/** Minimum width of a text column, in characters. */
const LEAST_TEXT = 12;

/**
 * Formats rows under headings, with numbers to the right. Columns of zeros are left out. If all numbers are zero, the
 * first numeric column stays. Cells are wrapped to fit `columns`, by default the width of standard output.
 */
export function table(
  headings: readonly string[],
  rows: readonly (readonly Cell[])[],
  { columns = columnsOf(process.stdout), indent = 0 }: { columns?: number; indent?: number } = {},
): string {
  if (indent > 0) {
    const made = table(headings, rows, { columns: columns - indent });
    return made.replaceAll(/^(?=.)/gm, ' '.repeat(indent));
  }
  const all = headings.map((heading, at): Column => {
    const cells = rows.map((row) => shownAs(row[at] ?? ''));
    return {
      heading: visibleInLine(heading),
      cells,
      isNumeric: rows.length > 0 && cells.every((cell) => typeof cell === 'number'),
    };
  });
  const shown = withoutZeros(all);
  const widths = fit(shown, columns);
  if (!widths) return rows.map((_, at) => asList(shown, at, columns)).join('\n');
  const made = [
    shown.map(({ heading }) => heading),
    ...rows.map((_, at) => shown.map((one) => textOf(one, at))),
  ];
  return made.flatMap((texts) => rowOf(shown, widths, texts, columns)).join('\n');
}

const shownAs = (cell: Cell) => (typeof cell === 'number' ? cell : visibleInLine(cell));

function withoutZeros(columns: readonly Column[]): Column[] {
  const isZero = ({ isNumeric, cells }: Column) => isNumeric && cells.every((cell) => cell === 0);
  const spared = columns.some((one) => one.isNumeric && !isZero(one))
    ? undefined
    : columns.find(({ isNumeric }) => isNumeric);
  return columns.filter((one) => one === spared || !isZero(one));
}

const textOf = ({ cells }: Column, at: number) => {
  const cell = cells[at] ?? '';
  return typeof cell === 'number' ? formatNumber(cell) : cell;
};

/** Returns the width of each column, or undefined if the columns do not fit side by side. */
function fit(columns: readonly Column[], most: number): number[] | undefined {
  const widest = (texts: readonly string[]) => texts.reduce((most, text) => Math.max(most, widthOf(text)), 0);
  const textsOf = (one: Column) => one.cells.map((_, at) => textOf(one, at));
  const widths = columns.map((one) => widest([one.heading, ...textsOf(one)]));
  const least = columns.map((one, at) => {
    const heading = widest(one.heading.split(' '));
    return one.isNumeric
      ? widest([...textsOf(one)].concat('x'.repeat(heading)))
      : Math.min(widths[at] ?? 0, Math.max(heading, LEAST_TEXT));
  });
  const room = most - GAP.length * (columns.length - 1);
  const sum = () => widths.reduce((total, width) => total + width, 0);
  // Wraps headings of numbers first, which costs one line. Wrapping text costs a line in each row.
  for (const isNumeric of [true, false])
    while (sum() > room) {
      const spare = columns.map((one, at) =>
        one.isNumeric === isNumeric ? (widths[at] ?? 0) - (least[at] ?? 0) : 0,
      );
      const at = spare.reduce((most, room, one) => (room > (spare[most] ?? 0) ? one : most), 0);
      if ((spare[at] ?? 0) <= 0) break;
      widths[at] = (widths[at] ?? 0) - Math.max(1, Math.min(spare[at] ?? 0, Math.ceil((sum() - room) / 4)));
    }
  return sum() > room ? undefined : widths;
}

/** Formats a row as lines. A label with a word that does not fit is placed on a line above the rest of the row. */
function rowOf(
  columns: readonly Column[],
  widths: readonly number[],
  texts: readonly string[],
  most: number,
): string[] {
  const [label = '', ...rest] = texts;
  const width = widths[0] ?? 0;
  const isBroken = label.split(' ').some((word) => widthOf(word) > width);
  if (isBroken && rest.length > 0)
    return [...wrapWords(label, most), ...rowOf(columns, widths, ['', ...rest], most)];
  const wrapped = texts.map((text, at) => wrapWords(text, widths[at] ?? 0));
  const height = wrapped.reduce((most, lines) => Math.max(most, lines.length), 0);
  return Array.from({ length: height }, (_, line) =>
    wrapped
      .map((lines, at) => {
        const text = lines[line] ?? '';
        const padding = ' '.repeat(Math.max(0, (widths[at] ?? 0) - widthOf(text)));
        return columns[at]?.isNumeric ? padding + text : text + padding;
      })
      .join(GAP)
      .trimEnd(),
  );
}

/** Formats a row as a list without zeros, if even the headings do not fit side by side. */
function asList(columns: readonly Column[], row: number, most: number): string {
  return columns
    .filter(({ cells }, at) => at === 0 || cells[row] !== 0)
    .map((one) => `${one.heading}${one.heading === '' ? '' : ': '}${textOf(one, row)}`)
    .flatMap((text, at) => wrapWords(at === 0 ? text : `${GAP}${text}`, most))
    .join('\n');
}
