// A document as Markdown, for a ticket or a chat. Text of a row or an answer stands in it as text.
import {
  filledTables,
  isEmptySection,
  type Cell,
  type Document,
  type Point,
  type Section,
  type Table,
  type Text,
} from '../documents/document.js';
import { visibleInLine } from '../text/visible-text.js';
import { commandsBeside, plainCell, plainPart } from './plain.js';

export function documentToMarkdown({ title, lead = [], sections }: Document, timeZone: string): string {
  return [
    `# ${escape(title)}`,
    ...lead.map((paragraph) => inline(paragraph, timeZone)),
    ...sections
      .filter((section) => !isEmptySection(section))
      .map((section) => sectionToMarkdown(section, timeZone)),
  ].join('\n\n');
}

function sectionToMarkdown(
  { title, paragraphs = [], facts = [], points = [], tables }: Section,
  timeZone: string,
): string {
  const items = [
    ...facts.map(([name, value]) => `- ${escape(name)}: ${inline(value, timeZone)}`),
    ...points.map((point) => pointToMarkdown(point, timeZone)),
  ];
  return [
    `## ${escape(title)}`,
    ...paragraphs.map((paragraph) => inline(paragraph, timeZone)),
    ...(items.length === 0 ? [] : [items.join('\n')]),
    ...filledTables(tables).map((table) => tableToMarkdown(table, timeZone)),
  ].join('\n\n');
}

function pointToMarkdown(point: Point, timeZone: string): string {
  const { text, details = [], samples = [], next } = point;
  return [
    `- ${inline(text, timeZone)}`,
    ...details.map((line) => `  - ${inline(line, timeZone)}`),
    ...samples.map((line) => `  - ${inline(line, timeZone)}`),
    ...(next === undefined ? [] : [`  - ${inline(next, timeZone)}`]),
    ...commandsBeside(point, timeZone).map((command) => `  - ${code(command)}`),
  ].join('\n');
}

function tableToMarkdown({ headings, rows }: Table, timeZone: string): string {
  const toRow = (cells: readonly Cell[]) =>
    `| ${cells.map((cell) => escape(plainCell(cell, timeZone))).join(' | ')} |`;
  return [toRow(headings), `|${' --- |'.repeat(headings.length)}`, ...rows.map(toRow)].join('\n');
}

function inline(text: Text, timeZone: string): string {
  if (typeof text === 'string') return escape(text).trimStart();
  return text.parts
    .map((part) =>
      typeof part === 'object' && 'command' in part ? code(part.command) : escape(plainPart(part, timeZone)),
    )
    .join('')
    .trimStart();
}

/** Nothing in it is obeyed by Markdown, or by HTML in Markdown: also a list's mark at the beginning, an address, and a formula between `$`. */
function escape(text: string): string {
  return visibleInLine(text).replaceAll(
    /[\\`*_{}[\]<>#|~!&$]|(?<=^ *)[-+=]|(?<=^ *\d+)[.)]|:(?=\/\/)|(?<=\bwww)\./gi,
    String.raw`\$&`,
  );
}

/** Between more backticks than the command has in a row. */
function code(text: string): string {
  const command = visibleInLine(text);
  const longest = Math.max(0, ...[...command.matchAll(/`+/g)].map(([run]) => run.length));
  const fence = '`'.repeat(longest + 1);
  return longest === 0 ? `\`${command}\`` : `${fence} ${command} ${fence}`;
}
