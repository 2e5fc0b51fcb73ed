// The report for a terminal or a mail: at most 80 columns, except for a command or a word that is longer.
import type { MorningReport, ReportPoint, ReportSection } from './morning-report.js';
import { table } from './table.js';
import { fillLines } from './wrap.js';

const WIDTH = 80;

export function reportToText({ title, about, sections }: MorningReport): string {
  return [
    [title, ...about.flatMap((line) => wrap(line))].join('\n'),
    ...sections.map((section) => sectionToText(section)),
  ].join('\n\n');
}

function sectionToText({ title, paragraphs, points, table: shown }: ReportSection): string {
  return [
    `${title}\n${'-'.repeat(title.length)}`,
    ...paragraphs.flatMap((line) => wrap(line)),
    ...points.flatMap(pointToText),
    ...(shown ? [table(shown.headings, shown.rows)] : []),
  ].join('\n');
}

function pointToText({ text, details = [], commands = [] }: ReportPoint): string[] {
  return [
    ...wrap(text, '- ', '  '),
    ...details.flatMap((line) => wrap(line, '    ')),
    ...commands.map((command) => `    → ${command}`),
  ];
}

/** Lines of at most 80 columns, broken at spaces, with commands in one piece. */
function wrap(text: string, first = '', rest = first): string[] {
  const words = text.trim().replaceAll(/\s+/g, ' ');
  return fillLines(words, WIDTH - rest.length).map((line, at) => (at === 0 ? first : rest) + line);
}
