// A document as text, for a terminal or a mail: at most 80 columns, except for a command or a word that is longer.
import {
  filledSections,
  numberOf,
  type Cell,
  type Document,
  type Part,
  type Point,
  type Section,
  type Table,
  type Text,
} from '../documents/document.js';
import { formatMinute, formatNumber, formatTime } from '../text/format.js';
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
    filledSections(sections).map(toHeaded(options)),
  );
}

/** A document without its title, and without the heading of an only section: the command names both. */
export function answerToText({ lead = [], sections }: Omit<Document, 'title'>, options: Options): string {
  const shown = filledSections(sections);
  const toText = (section: Section) => contentToText(section, options).join('\n');
  return blocksToText(leadToText(lead, options), shown.map(shown.length === 1 ? toText : toHeaded(options)));
}

const leadToText = (lead: readonly Text[], options: Options) =>
  lead.flatMap((paragraph) => wrap(plain(paragraph, options.timeZone), options));

const blocksToText = (first: readonly string[], blocks: readonly string[]) =>
  [...(first.length === 0 ? [] : [first.join('\n')]), ...blocks].join('\n\n');

const toHeaded = (options: Options) => (section: Section) => {
  const title = visibleInLine(section.title);
  return [title, '-'.repeat(title.length), ...contentToText(section, options)].join('\n');
};

/** A section without its title. */
export function contentToText(
  { paragraphs = [], facts = [], points = [], table: shown }: Omit<Section, 'id' | 'title'>,
  options: Options,
): string[] {
  const { timeZone, columns = WIDTH } = options;
  return [
    ...paragraphs.flatMap((paragraph) => wrap(plain(paragraph, timeZone), options)),
    ...facts.flatMap(([name, value]) =>
      wrap(`${visibleInLine(name)}: ${plain(value, timeZone)}`, options, '', '  '),
    ),
    ...points.flatMap((point) => pointToText(point, options)),
    ...(shown && shown.rows.length > 0 ? tableToText(shown, timeZone, columns) : []),
  ];
}

function tableToText({ headings, rows }: Table, timeZone: string, columns: number): string[] {
  const cells = rows.map((row) => row.map((cell) => numberOf(cell) ?? plainCell(cell, timeZone)));
  return table(headings, cells, { columns }).split('\n');
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

/** Lines broken at spaces, with commands in one piece. */
function wrap(text: string, { columns = WIDTH }: Options, first = '', rest = first): string[] {
  return fillLines(text, columns - rest.length).map((line, index) => (index === 0 ? first : rest) + line);
}

/** A sentence in one line, without anything but its characters. Every time is shown in the time zone. */
export function plain(text: Text, timeZone: string): string {
  return typeof text === 'string'
    ? visibleInLine(text)
    : text.parts.map((part) => plainPart(part, timeZone)).join('');
}

function plainCell(cell: Cell, timeZone: string): string {
  return typeof cell === 'number' ? formatNumber(cell) : plain(cell, timeZone);
}

export function plainPart(part: Part, timeZone: string): string {
  if (typeof part === 'string') return visibleInLine(part);
  if (part instanceof Date) return formatTime(part, timeZone);
  if ('minute' in part) return formatMinute(part.minute, timeZone);
  if ('command' in part) return visibleInLine(part.command);
  if ('status' in part) return visibleInLine(part.status);
  return typeof part.text === 'number' ? formatNumber(part.text) : visibleInLine(part.text);
}

/** The command that an operator types, where there is no button. */
export const commandOf = (command: string | { command: string }): string =>
  visibleInLine(typeof command === 'string' ? command : command.command);

/** The commands of a point that its sentence about what happens next does not name. */
export function commandsBeside({ next = '', commands = [] }: Point, timeZone: string): string[] {
  const sentence = plain(next, timeZone);
  return commands.map(commandOf).filter((command) => !sentence.includes(command));
}
