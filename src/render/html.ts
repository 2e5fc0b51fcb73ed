// Renders documents as HTML: parts for the operator's page, and whole documents that are mailed, kept or printed.
import {
  filledSections,
  numericColumns,
  WORDS_OF_STATUSES,
  type Action,
  type Card,
  type Document,
  type Part,
  type Point,
  type Section,
  type Table,
  type Text,
} from '../documents/document.js';
import { formatNumber } from '../text/format.js';
import { html, type Html } from '../text/html.js';
import { graphToHtml, weekToHtml, toneOf } from './drawings.js';
import { commandOf, commandsBeside, MARKS, plain, plainPart, sinceOfLine } from './text.js';

/** Properties of the medium that the HTML is for: the operator's page, or a mailed document. */
export interface Surface {
  timeZone: string;
  /** Renders an action as a link or button of the page. Undefined for a mailed document, which has neither. */
  action?: ((action: Action) => Html) | undefined;
  /** True if nobody can act on this page. Then commands are shown as text to type. */
  isReadOnly?: boolean | undefined;
}

const statusToHtml = (word: string, shown = WORDS_OF_STATUSES[word] ?? word.replaceAll('_', ' ')): Html =>
  html`<span class="status ${toneOf(word)}">${shown}</span>`;

const typedCommand = (command: string | Action, isCopied: boolean): Html =>
  html`<span class="typed">→ ${commandToHtml(commandOf(command), isCopied)}</span>`;

/** Adds a button that copies the command. The script of the page makes it visible. */
const commandToHtml = (command: string, isCopied: boolean): Html =>
  html`<code>${wrapWhole(command)}</code>${isCopied && html`<button type="button" class="copy" aria-label="Copy ${command}">copy</button>`}`;

/** Options and numbers that must stay on one line, because phones break lines after each hyphen. */
const WHOLE = /(--[a-z][a-z-]*|\d{1,3}(?: \d{3})+(?!\d)|\d+ %)/;

const wrapWhole = (typed: string): Html =>
  html`${typed.split(WHOLE).map((part, index) => (index % 2 === 1 ? html`<span class="whole">${part}</span>` : part))}`;

const TICKED = /`([^`]+)`/;

/** Converts a sentence to HTML. Text in backticks becomes code. */
const sentence = (text: string): Html =>
  html`${text.split(TICKED).map((part, index) => (index % 2 === 1 ? html`<code>${part}</code>` : wrapWhole(part)))}`;

/** `words` converts the plain strings of the text to HTML. */
export function textToHtml(text: Text, surface: Surface, words = wrapWhole): Html {
  const parts = typeof text === 'string' ? [text] : text.parts;
  return html`${parts.map((part) => (typeof part === 'string' ? words(part) : partToHtml(part, surface)))}`;
}

function partToHtml(part: Exclude<Part, string>, { timeZone, action }: Surface): Html {
  const shown = plainPart(part, timeZone);
  if (part instanceof Date) return html`<time datetime="${part.toISOString()}">${shown}</time>`;
  if ('minute' in part) return html`<time datetime="${part.minute.toISOString()}">${shown}</time>`;
  if ('near' in part) return html`<time datetime="${part.near.toISOString()}">${shown}</time>`;
  if ('code' in part) return html`<code>${shown}</code>`;
  if ('command' in part) return commandToHtml(shown, action !== undefined);
  if ('status' in part) return statusToHtml(part.status);
  return action ? html`<a href="${part.href}">${shown}</a>` : html`${shown}`;
}

export function contentToHtml(section: Omit<Section, 'id'>, surface: Surface): Html {
  const { title, cards = [], graphs = [], week, paragraphs = [], facts = [], points = [] } = section;
  const { table, isOneLine } = section;
  const { timeZone } = surface;
  const toPlain = (text: Text) => plain(text, timeZone);
  const toHtml = isOneLine ? lineToHtml : pointToHtml;
  return html`${
    cards.length > 0 && html`<ul class="cards">\n${cards.map((card) => cardToHtml(card, surface))}</ul>\n`
  }${graphs.map((graph) => graphToHtml(graph, toPlain))}${week && weekToHtml(week, timeZone)}${paragraphs.map((paragraph) => html`<p>${textToHtml(paragraph, surface)}</p>\n`)}${
    facts.length > 0 &&
    html`<dl>${facts.map(([name, value]) => html`<div><dt>${name}</dt><dd>${textToHtml(value, surface)}</dd></div>`)}</dl>\n`
  }${
    points.length > 0 &&
    html`<ul class="${isOneLine ? 'lines' : 'items'}">\n${points.map((point) => toHtml(point, surface))}</ul>\n`
  }${table && table.rows.length > 0 && tableToHtml(title, table, surface)}`;
}

function cardToHtml({ stream, href, inSync, total, synced, badges, nights }: Card, surface: Surface): Html {
  const numbers =
    inSync === total ? formatNumber(total) : `${formatNumber(inSync)} of ${formatNumber(total)}`;
  return html`<li class="card"><h3>${surface.action ? html`<a href="${href}">${stream}</a>` : stream}</h3><p class="badges">${badges.map((badge) => html`${statusToHtml(badge.status, badge.text)} `)}</p>
<progress max="${Math.max(1, total)}" value="${inSync}" aria-label="In sync"></progress>
<p class="numbers"><span><b>${numbers}</b> in sync</span> <span class="soft">${synced ? html`synced ${partToHtml(synced, surface)}` : 'no whole sync'}</span></p>
${nights.length > 0 && html`<ol class="nights" aria-label="The last ${nights.length} nights">${nights.map(({ status, label, href: run }) => html`<li>${run !== undefined && surface.action ? html`<a class="${toneOf(status)}" href="${run}" title="${label}" aria-label="${label}">${markOf(status)}</a>` : html`<span title="${label}">${markOf(status)}</span>`}</li>`)}</ol>`}
</li>
`;
}

/** Shows a successful night only by its color, so that the other nights stand out. */
const markOf = (status: string) => (status === 'succeeded' ? '' : (MARKS[status] ?? '?'));

const detailsToHtml = (point: Point, surface: Surface): Html => {
  const { details = [], samples = [], next } = point;
  return html`${details.map((line) => html`<p>${textToHtml(line, surface)}</p>`)}${
    samples.length > 0 &&
    html`<pre tabindex="0" role="region" aria-label="Samples">${samples.map((line) => html`${line}\n`)}</pre>`
  }${next !== undefined && html`<p>${textToHtml(next, surface, sentence)}</p>`}`;
};

/** Returns the buttons of a point, and the commands that have to be typed. */
function commandsOf(point: Point, surface: Surface): { buttons: Html[]; typed: Html[] } {
  const { commands = [] } = point;
  const beside = commandsBeside(point, surface.timeZone);
  const { action, isReadOnly } = surface;
  const isButton = (command: string | Action): command is Action =>
    typeof command === 'object' && action !== undefined && !isReadOnly;
  return {
    buttons: commands.filter(isButton).map((command) => action?.(command) ?? html``),
    typed: commands
      .filter((command) => !isButton(command) && beside.includes(commandOf(command)))
      .map((command) => typedCommand(command, action !== undefined)),
  };
}

const actionsToHtml = (shown: readonly Html[]): Html =>
  html`${shown.length > 0 && html`<div class="actions">${shown.map((command) => html`${command} `)}</div>`}`;

function pointToHtml(point: Point, surface: Surface): Html {
  const { status, text, progress } = point;
  const { buttons, typed } = commandsOf(point, surface);
  return html`<li><p>${status !== undefined && html`${statusToHtml(status)} `}<b>${textToHtml(text, surface)}</b></p>${
    progress &&
    html`<progress max="${progress.total}" value="${progress.done}" aria-label="Progress"></progress>`
  }${detailsToHtml(point, surface)}${actionsToHtml([...buttons, ...typed])}</li>
`;
}

/** Renders a point as a line that unfolds details. Links are only in the details, not in the line itself. */
function lineToHtml(point: Point, surface: Surface): Html {
  const { status, text, line = text } = point;
  const { timeZone } = surface;
  const { buttons, typed } = commandsOf(point, surface);
  const since = sinceOfLine(point, timeZone).replace(/^, /, '');
  const isWhole = line === text && (typeof text === 'string' || !text.parts.some(isLink));
  return html`<li><details><summary>${status !== undefined && html`${statusToHtml(status)} `}<b>${textToHtml(line, { timeZone })}</b>${since !== '' && html`<span class="soft">, <span class="whole">${since}</span></span>`}</summary>
${!isWhole && html`<p>${textToHtml(text, surface)}</p>`}${detailsToHtml(point, surface)}${actionsToHtml(typed)}</details>${actionsToHtml(buttons)}</li>
`;
}

const isLink = (part: Part) => typeof part === 'object' && 'href' in part;

/** Style of tables on a narrow screen: a row is a card with all its cells, so that no column is hidden. */
export const CARDS = html`@media (max-width: 39.99rem) {
  .scroll { overflow: visible; background: none; }
  thead { display: none; }
  table, tbody { display: block; }
  tbody tr { display: grid; grid-template-columns: repeat(auto-fill, minmax(6rem, 1fr)); gap: .3rem .9rem; padding: .6rem 0; border-top: 1px solid var(--line); }
  tbody tr:first-child { border-top: 0; padding-top: 0; }
  .scroll :is(th, td) { display: block; min-width: 0; max-width: none; padding: 0; border: 0; text-align: left; white-space: normal; overflow-wrap: anywhere; }
  .scroll :is(th, .long) { grid-column: 1 / -1; }
  .scroll th { font-weight: 600; }
  .scroll td:empty { display: none; }
  .scroll :is(time, .status) { white-space: normal; }
  .scroll :is(th, td)::before { content: attr(data-label); display: block; color: var(--soft); font-size: .85em; font-weight: 400; }
  .scroll th::before { display: inline; margin-right: .4em; }
}
`;

/** Length in characters above which a cell is styled as a sentence, not as a name or a status. */
const LONG = 30;

/** Renders a table. The first cell of a row is the heading of the row. */
function tableToHtml(caption: string, table: Table, surface: Surface): Html {
  const { headings, rows } = table;
  const isNumber = numericColumns(table);
  const cell = (value: Text | number, column: number) => {
    const shown = typeof value === 'number' ? formatNumber(value) : textToHtml(value, surface);
    const label = html`data-label="${headings[column]}"`;
    if (column === 0) return html`<th scope="row" ${label}>${shown}</th>`;
    if (isNumber[column]) return html`<td ${label} class="number">${shown}</td>`;
    return typeof value === 'string' && value.length > LONG
      ? html`<td ${label} class="long">${shown}</td>`
      : html`<td ${label}>${shown}</td>`;
  };
  return html`<div class="scroll" role="region" aria-label="${caption}" tabindex="0"><table>
<caption>${caption}</caption>
<thead><tr>${headings.map((name, column) => html`<th scope="col"${isNumber[column] && html` class="number"`}>${name}</th>`)}</tr></thead>
<tbody>${rows.map((row) => html`<tr>${row.map(cell)}</tr>\n`)}</tbody>
</table></div>
`;
}

/**
 * Renders a whole document without scripts, links and external files. The style for narrow screens is a separate
 * element, because mail programs may drop a style that they do not understand.
 */
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
:root { color-scheme: light dark; --line: #c8c8c8; --ground: #f3f3f3; --soft: #555; }
@media (prefers-color-scheme: dark) { :root { --line: #4a4a4a; --ground: #262626; --soft: #b5b5b5; } }
body { font: 15px/1.45 system-ui, sans-serif; max-width: 52rem; margin: 1.5rem auto; padding: 0 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.5em; margin: 0 0 .3em; }
h2 { font-size: 1.1em; margin: 1.1em 0 .3em; border-bottom: 1px solid var(--line); }
p, ul, dl { margin: .3em 0; }
ul { padding-left: 1.2em; }
ul.items > li { margin: .6em 0; }
.status { border: 1px solid var(--line); border-radius: 3px; padding: 0 .3em; font-size: .85em; white-space: nowrap; }
time, .whole { white-space: nowrap; }
dt { font-weight: 600; }
.scroll { position: relative; overflow-x: auto; }
table { border-collapse: collapse; margin: .4em 0; overflow-wrap: break-word; }
caption { position: absolute; clip-path: inset(50%); width: 1px; height: 1px; overflow: hidden; }
th, td { text-align: left; padding: .1em .9em .1em 0; vertical-align: top; font-weight: inherit; }
thead th { font-weight: 600; }
td.number { white-space: nowrap; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
.typed { display: block; }
code { background: var(--ground); padding: 0 .3em; border-radius: 3px; }
@page { size: A4; margin: 12mm; }
@media print { :root { color-scheme: light; } body { font-size: 10px; margin: 0; max-width: none; padding: 0; } h2 { break-after: avoid; margin: .8em 0 .3em; } p, table { margin: .2em 0; } li b { font-weight: inherit; } .status { border: 0; padding: 0; } ul.items > li { margin: 0; } tr, li { break-inside: avoid; } }
</style>
<style>
${CARDS}</style>
</head>
<body>
<main>
<h1>${title}</h1>
${lead.map((paragraph) => html`<p>${textToHtml(paragraph, surface)}</p>\n`)}${filledSections(sections).map(
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
