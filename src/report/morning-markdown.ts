// The report as Markdown, for a ticket or a chat. Text of a row or an answer stands in it as text.
import { formatNumber } from '../format.js';
import type { MorningReport, ReportPoint, ReportSection } from './morning-report.js';

export function reportToMarkdown({ title, about, sections }: MorningReport): string {
  return [`# ${escape(title)}`, ...about.map(escape), ...sections.map(sectionToMarkdown)].join('\n\n');
}

function sectionToMarkdown({ title, paragraphs, points, table }: ReportSection): string {
  const row = (cells: readonly (string | number)[]) =>
    `| ${cells.map((cell) => (typeof cell === 'number' ? formatNumber(cell) : escape(cell))).join(' | ')} |`;
  return [
    `## ${escape(title)}`,
    ...paragraphs.map(escape),
    ...(points.length === 0 ? [] : [points.map(pointToMarkdown).join('\n')]),
    ...(table
      ? [
          [row(table.headings), `|${' --- |'.repeat(table.headings.length)}`, ...table.rows.map(row)].join(
            '\n',
          ),
        ]
      : []),
  ].join('\n\n');
}

function pointToMarkdown({ text, details = [], commands = [] }: ReportPoint): string {
  return [
    `- ${escape(text)}`,
    ...details.map((line) => `  - ${escape(line)}`),
    ...commands.map((command) => `  - ${code(command)}`),
  ].join('\n');
}

/** Characters that Markdown or HTML in it would obey, and line breaks. */
function escape(text: string): string {
  return text.replaceAll(/\s+/g, ' ').replaceAll(/[\\`*_{}[\]<>#|~!&]/g, String.raw`\$&`);
}

/** Between more backticks than the command has in a row. */
function code(command: string): string {
  const longest = Math.max(0, ...[...command.matchAll(/`+/g)].map(([run]) => run.length));
  const fence = '`'.repeat(longest + 1);
  return longest === 0 ? `\`${command}\`` : `${fence} ${command} ${fence}`;
}
