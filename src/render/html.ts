// A document as HTML: its parts, for the operator's page, and a whole document that stands alone, to be mailed, kept or
// printed on one page.
import {
  isEmptySection,
  filledTables,
  numericColumns,
  type Action,
  type Document,
  type Part,
  type Point,
  type Section,
  type Table,
  type Text,
} from '../documents/document.js';
import { formatNumber } from '../text/format.js';
import { html, type Html } from '../text/html.js';
import { commandOf, commandsBeside, plainPart } from './plain.js';

/** How a surface shows what it may show in its own way. */
export interface Surface {
  timeZone: string;
  /** The operator's page has links and, where somebody may act, buttons. A document that stands alone has neither. */
  action?: ((action: Action) => Html) | undefined;
}

const GOOD = ['succeeded', 'synced', 'retired', 'working', 'agrees'];
const BAD = ['failed', 'dead', 'stopped', 'not seen', 'missing', 'absent'];
const WAITING = ['held', 'partial', 'deferred', 'paused', 'pending', 'changed', 'inactive'];
const TONES = new Map([
  ...GOOD.map((word) => [word, 'good'] as const),
  ...BAD.map((word) => [word, 'bad'] as const),
  ...WAITING.map((word) => [word, 'waiting'] as const),
]);

/** A status by its word, and a colour that says no more than the word. */
export const statusToHtml = (word: string): Html =>
  html`<span class="status ${TONES.get(word) ?? 'neutral'}">${word.replaceAll('_', ' ')}</span>`;

export function textToHtml(text: Text, surface: Surface): Html {
  return html`${typeof text === 'string' ? text : text.parts.map((part) => partToHtml(part, surface))}`;
}

function partToHtml(part: Part, { timeZone, action }: Surface): Html {
  const shown = plainPart(part, timeZone);
  if (typeof part === 'string') return html`${part}`;
  if (part instanceof Date) return html`<time datetime="${part.toISOString()}">${shown}</time>`;
  if ('minute' in part) return html`<time datetime="${part.minute.toISOString()}">${shown}</time>`;
  if ('command' in part) return html`<code>${shown}</code>`;
  if ('status' in part) return statusToHtml(part.status);
  return action ? html`<a href="${part.href}">${shown}</a>` : html`${shown}`;
}

/** A section without its title. */
export function contentToHtml(
  { title, paragraphs = [], facts = [], points = [], tables }: Omit<Section, 'id'>,
  surface: Surface,
): Html {
  return html`${paragraphs.map((paragraph) => html`<p>${textToHtml(paragraph, surface)}</p>\n`)}${
    facts.length > 0 &&
    html`<dl>${facts.map(([name, value]) => html`<div><dt>${name}</dt><dd>${textToHtml(value, surface)}</dd></div>`)}</dl>\n`
  }${
    points.length > 0 &&
    html`<ul class="items">\n${points.map((point) => pointToHtml(point, surface))}</ul>\n`
  }${filledTables(tables).map((table) => tableToHtml({ caption: title, ...table }, surface))}`;
}

function pointToHtml(point: Point, surface: Surface): Html {
  const { status, text, details = [], samples = [], next, progress, commands = [] } = point;
  const beside = commandsBeside(point, surface.timeZone);
  const shown = commands.flatMap((command) => {
    if (typeof command === 'object' && surface.action) return [surface.action(command)];
    return beside.includes(commandOf(command)) ? [html`<code>${commandOf(command)}</code>`] : [];
  });
  return html`<li><p>${status !== undefined && html`${statusToHtml(status)} `}<b>${textToHtml(text, surface)}</b></p>${
    progress &&
    html`<progress max="${progress.total}" value="${progress.done}" aria-label="Progress"></progress>`
  }${details.map((line) => html`<p>${textToHtml(line, surface)}</p>`)}${
    samples.length > 0 &&
    html`<pre tabindex="0" role="region" aria-label="Samples">${samples.map((line) => html`${line}\n`)}</pre>`
  }${next !== undefined && html`<p>${textToHtml(next, surface)}</p>`}${
    shown.length > 0 && html`<div class="actions">${shown.map((command) => html`${command} `)}</div>`
  }</li>
`;
}

/** Longer than a name or a status is. */
const LONG = 40;

/** The first cell of a row names it. */
export function tableToHtml(table: Table, surface: Surface): Html {
  const { caption, headings, rows } = table;
  const isNumber = numericColumns(table);
  const cell = (value: Text | number, column: number) => {
    const shown = typeof value === 'number' ? formatNumber(value) : textToHtml(value, surface);
    if (column === 0) return html`<th scope="row">${shown}</th>`;
    if (isNumber[column]) return html`<td class="number">${shown}</td>`;
    return typeof value === 'string' && value.length > LONG
      ? html`<td class="long">${shown}</td>`
      : html`<td>${shown}</td>`;
  };
  return html`<div class="scroll" role="region" aria-label="${caption}" tabindex="0"><table>
<caption>${caption}</caption>
<thead><tr>${headings.map((name, column) => html`<th scope="col"${isNumber[column] && html` class="number"`}>${name}</th>`)}</tr></thead>
<tbody>${rows.map((row) => html`<tr>${row.map(cell)}</tr>\n`)}</tbody>
</table></div>
`;
}

/** A whole document: no script, no link, no asset from elsewhere. */
export function documentToHtml({ title, lead = [], sections }: Document, timeZone: string): string {
  const surface = { timeZone };
  return String(html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>slotsync: ${title}</title>
<style>
:root { color-scheme: light dark; --line: #c8c8c8; --soft: #f3f3f3; }
@media (prefers-color-scheme: dark) { :root { --line: #4a4a4a; --soft: #262626; } }
body { font: 15px/1.45 system-ui, sans-serif; max-width: 52rem; margin: 1.5rem auto; padding: 0 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.5em; margin: 0 0 .3em; }
h2 { font-size: 1.1em; margin: 1.1em 0 .3em; border-bottom: 1px solid var(--line); }
p, ul, dl { margin: .3em 0; }
li b { font-weight: inherit; }
ul { padding-left: 1.2em; }
dt { font-weight: 600; }
table { border-collapse: collapse; margin: .4em 0; }
caption { position: absolute; clip-path: inset(50%); width: 1px; height: 1px; overflow: hidden; }
th, td { text-align: left; padding: .1em .9em .1em 0; vertical-align: top; font-weight: inherit; }
thead th { font-weight: 600; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
code { background: var(--soft); padding: 0 .3em; border-radius: 3px; }
@page { size: A4; margin: 12mm; }
@media print { :root { color-scheme: light; } body { font-size: 10px; margin: 0; max-width: none; padding: 0; } h2 { break-after: avoid; } tr, li { break-inside: avoid; } }
</style>
</head>
<body>
<main>
<h1>${title}</h1>
${lead.map((paragraph) => html`<p>${textToHtml(paragraph, surface)}</p>\n`)}${sections
    .filter((section) => !isEmptySection(section))
    .map(
      (section) => html`<section>
<h2>${section.title}</h2>
${contentToHtml(section, surface)}</section>
`,
    )}
</main>
</body>
</html>
`);
}
