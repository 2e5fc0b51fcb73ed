// Renders documents as text for a terminal or a mail: at most 80 columns wide, unless a command or a word is longer.
import {
  filledSections,
  numberOf,
  WORDS_OF_STATUSES,
  type Card,
  type Cell,
  type Document,
  type Part,
  type Point,
  type Section,
  type Table,
  type Text,
} from '../documents/document.js';
import {
  formatMinute,
  formatNear,
  formatNumber,
  formatTime,
  mostOf,
  present,
  shorten,
} from '../text/format.js';
import { visibleInLine } from '../text/visible-text.js';
import { table } from './table.js';
import { fillLines } from './wrap.js';

const WIDTH = 80;

interface Options {
  timeZone: string;
  columns?: number | undefined;
}

export function documentToText({ title, lead = [], sections }: Document, options: Options): string {
  return blocksToText(
    [visibleInLine(title), ...leadToText(lead, options)],
    printedSections(sections).map(toHeaded(options)),
  );
}

/** Renders a document without its title, and a single section without its heading, because the command names both. */
export function answerToText(
  { headline, lead = [], sections }: Omit<Document, 'title'>,
  options: Options,
): string {
  const shown = printedSections(sections);
  const toText = (section: Section) => contentToText(section, options).join('\n');
  const first = present<Text>(headline?.text, lead);
  return blocksToText(leadToText(first, options), shown.map(shown.length === 1 ? toText : toHeaded(options)));
}

const leadToText = (lead: readonly Text[], options: Options) =>
  lead.flatMap((paragraph) => wrap(plain(paragraph, options.timeZone), options));

const blocksToText = (first: readonly string[], blocks: readonly string[]) =>
  [...(first.length === 0 ? [] : [first.join('\n')]), ...blocks].join('\n\n');

const toHeaded = (options: Options) => (section: Section) => {
  const title = visibleInLine(section.title);
  return [title, '-'.repeat(title.length), ...contentToText(section, options)].join('\n');
};

/** Returns the sections that have content, without graphs that only the page draws. */
const printedSections = (sections: readonly Section[]): Section[] =>
  filledSections(
    sections.map(({ graphs = [], ...section }) => ({
      ...section,
      graphs: graphs.filter(({ isOnlyDrawn }) => !isOnlyDrawn),
    })),
  );

export function contentToText(content: Omit<Section, 'id' | 'title'>, options: Options): string[] {
  const {
    cards = [],
    graphs = [],
    paragraphs = [],
    facts = [],
    points = [],
    table: shown,
    isOneLine,
  } = content;
  const { timeZone, columns = WIDTH } = options;
  const toText = isOneLine ? pointToLine : pointToText;
  return [
    ...(cards.length > 0 ? tableToText(cardsTable(cards), timeZone, columns) : []),
    // A terminal cannot draw graphs. Prints the sentence about the graph, unless a paragraph already says it.
    ...(paragraphs.length > 0 ? [] : graphs).flatMap(({ title, says }) =>
      wrap(`${title}: ${plain(says, timeZone)}`, options, '', '  '),
    ),
    ...paragraphs.flatMap((paragraph) => wrap(plain(paragraph, timeZone), options)),
    ...facts.flatMap(([name, value]) =>
      wrap(`${visibleInLine(name)}: ${plain(value, timeZone)}`, options, '', '  '),
    ),
    ...points.flatMap((point) => toText(point, options)),
    ...(shown && shown.rows.length > 0 ? tableToText(shown, timeZone, columns) : []),
  ];
}

function tableToText({ headings, rows }: Table, timeZone: string, columns: number): string[] {
  const shownAs = (cell: Cell) =>
    typeof cell === 'number' ? cell : (numberOf(cell) ?? plain(cell, timeZone));
  const cells = rows.map((row) => row.map(shownAs));
  return table(headings, cells, { columns }).split('\n');
}

export const MARKS: Readonly<Record<string, string>> = {
  succeeded: '✓',
  partial: '~',
  held: 'h',
  failed: '✗',
  cancelled: 'c',
  running: '…',
  none: '·',
};

function cardsTable(cards: readonly Card[]): Table {
  const width = mostOf(cards.map(({ total }) => formatNumber(total).length));
  const padded = (count: number) => formatNumber(count).padStart(width);
  const columns: [string, (card: Card) => Cell][] = [
    ['stream', ({ stream }) => stream],
    ['14 nights', ({ nights }) => nights.map(({ status }) => MARKS[status] ?? '?').join('')],
    // A text, because a table would leave out a column of zeros.
    ['in sync', ({ inSync, total }) => `${padded(inSync)} of ${padded(total)}`],
    ['last sync', ({ synced }) => (synced ? { parts: [synced] } : '–')],
    ['', ({ badges }) => badges.map((badge) => badge.text).join(', ')],
  ];
  const shown = columns.filter(([, cellOf]) => cards.some((card) => cellOf(card) !== ''));
  return {
    headings: shown.map(([heading]) => heading),
    rows: cards.map((card) => shown.map(([, cellOf]) => cellOf(card))),
  };
}

/** Returns one line: the number of the point, the text as far as it fits, and the time when the fact began. */
function pointToLine(point: Point, options: Options): string {
  const { timeZone, columns = WIDTH } = options;
  const { number } = point;
  const [first, said, last] = [
    number === undefined ? '   ' : `${String(number).padStart(2)} `,
    plain(point.line ?? point.text, timeZone),
    sinceOfLine(point, timeZone),
  ];
  const room = Math.max(20, columns - first.length - last.length);
  return `${first}${shorten(said, room)}${last}`;
}

/** Returns text such as `, since 02:14`. Empty if the line says since when. */
export function sinceOfLine({ line, text, since }: Point, timeZone: string): string {
  if (!since || /\bsince\b/.test(plain(line ?? text, timeZone))) return '';
  return `, since ${plainPart(since, timeZone)}`;
}

function pointToText(point: Point, options: Options): string[] {
  const { text, details = [], samples = [], next } = point;
  const { timeZone } = options;
  return [
    ...wrap(plain(text, timeZone), options, '- ', '  '),
    ...details.flatMap((line) => wrap(plain(line, timeZone), options, '    ')),
    ...samples.map((line) => `    ${visibleInLine(line)}`),
    ...(next === undefined ? [] : wrap(plain(next, timeZone), options, '    → ', '      ')),
    ...commandsBeside(point, timeZone).map((command) => `    → ${command}`),
  ];
}

/** Breaks text at spaces, but never within a command. */
function wrap(text: string, { columns = WIDTH }: Options, first = '', rest = first): string[] {
  return fillLines(text, columns - rest.length).map((line, index) => (index === 0 ? first : rest) + line);
}

/** Converts a sentence to characters in one line, with times in `timeZone`. */
export function plain(text: Text, timeZone: string): string {
  return typeof text === 'string'
    ? visibleInLine(text)
    : text.parts.map((part) => plainPart(part, timeZone)).join('');
}

export function plainPart(part: Part, timeZone: string): string {
  if (typeof part === 'string') return visibleInLine(part);
  if (part instanceof Date) return formatTime(part, timeZone);
  if ('minute' in part) return formatMinute(part.minute, timeZone);
  if ('near' in part) return formatNear(part.near, part.now, timeZone);
  if ('code' in part) return visibleInLine(part.code);
  if ('command' in part) return visibleInLine(part.command);
  if ('status' in part) return visibleInLine(WORDS_OF_STATUSES[part.status] ?? part.status);
  return typeof part.text === 'number' ? formatNumber(part.text) : visibleInLine(part.text);
}

/** Returns the command as text, for surfaces without a button. */
export const commandOf = (command: string | { command: string }): string =>
  visibleInLine(typeof command === 'string' ? command : command.command);

/** Returns the commands of a point that its sentence `next` does not name, with or without arguments. */
export function commandsBeside({ next = '', commands = [] }: Point, timeZone: string): string[] {
  const sentence = `${plain(next, timeZone)}.`;
  const bare = (command: string) => command.split(' ').slice(0, 2).join(' ');
  const isNamed = (command: string) =>
    sentence.includes(command) || ['.', ',', ';'].some((end) => sentence.includes(`${bare(command)}${end}`));
  return commands.map(commandOf).filter((command) => !isNamed(command));
}
