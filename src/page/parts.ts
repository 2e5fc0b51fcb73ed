// The parts that every page uses: tables, statuses, commands and buttons.
import { formatDuration, formatMinute, formatNumber, formatTime } from '../text/format.js';
import { html, type Html, type HtmlValue } from '../text/html.js';
import type { View } from './view.js';

const GOOD = ['succeeded', 'synced', 'retired', 'working', 'agrees'];
const BAD = ['failed', 'dead', 'stopped', 'not seen', 'missing', 'absent'];
const WAITING = ['held', 'partial', 'deferred', 'paused', 'pending', 'changed', 'inactive'];

/** A status by its word, and a colour that says no more than the word. */
export function status(word: string): Html {
  const tone = GOOD.includes(word)
    ? 'good'
    : BAD.includes(word)
      ? 'bad'
      : WAITING.includes(word)
        ? 'waiting'
        : 'neutral';
  return html`<span class="status ${tone}">${word.replaceAll('_', ' ')}</span>`;
}

export interface Column {
  name: string;
  isNumber?: boolean;
}

/** Longer than a name or a status is. */
const LONG = 40;

/** Columns by their names; `#` before a name: numbers, to the right. */
export function table(
  caption: string,
  columns: readonly string[],
  rows: readonly (readonly HtmlValue[])[],
): Html {
  const isNumber = columns.map((name) => name.startsWith('#'));
  const cell = (value: HtmlValue, at: number) => {
    const shown = typeof value === 'number' ? formatNumber(value) : value;
    if (at === 0) return html`<th scope="row">${shown}</th>`;
    if (isNumber[at]) return html`<td class="number">${shown}</td>`;
    const isLong = typeof shown === 'string' && shown.length > LONG;
    return isLong ? html`<td class="long">${shown}</td>` : html`<td>${shown}</td>`;
  };
  return html`<div class="scroll" role="region" aria-label="${caption}" tabindex="0"><table>
<caption>${caption}</caption>
<thead><tr>${columns.map((name, at) => html`<th scope="col"${isNumber[at] ? html` class="number"` : ''}>${name.replace('#', '')}</th>`)}</tr></thead>
<tbody>${rows.map((row) => html`<tr>${row.map(cell)}</tr>`)}</tbody>
</table></div>`;
}

/** Names with their values. */
export function facts(
  pairs: readonly (readonly [name: string, value: HtmlValue] | false | null | undefined)[],
): Html {
  const shown = pairs.filter((pair) => pair !== false && pair !== null && pair !== undefined);
  return html`<dl>${shown.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

export function time(at: Date | null, { timeZone }: Pick<View, 'timeZone'>): Html {
  if (at === null) return html`–`;
  return html`<time datetime="${at.toISOString()}">${formatTime(at, timeZone)}</time>`;
}

export function minute(at: Date | null, { timeZone }: Pick<View, 'timeZone'>): Html {
  if (at === null) return html`–`;
  return html`<time datetime="${at.toISOString()}">${formatMinute(at, timeZone)}</time>`;
}

/** `3 min`, from a time until now. */
export const ago = (at: Date, { now }: Pick<View, 'now'>): string =>
  formatDuration(Math.max(0, (now.getTime() - at.getTime()) / 1000));

/** The command that an operator types instead. */
export const command = (text: string): Html => html`<code>${text}</code>`;

export const link = (href: string, text: HtmlValue): Html => html`<a href="${href}">${text}</a>`;

export const pathOf = (...parts: readonly (string | number)[]): string =>
  `/${parts.map((part) => encodeURIComponent(part)).join('/')}`;

/** An address with a query, of the values that there are. */
export function withQuery(path: string, query: Readonly<Record<string, string | undefined | null>>): string {
  const given = Object.entries(query).filter((pair): pair is [string, string] => typeof pair[1] === 'string');
  return given.length === 0 ? path : `${path}?${new URLSearchParams(given).toString()}`;
}

/**
 * The action of an operator: a link to the page that asks once more, or the command where nobody may act here.
 */
export function action(
  view: View,
  { href, label, typed, about }: { href: string; label: string; typed: string; about: string },
): Html {
  if (!view.session && !view.canSignIn) return html`<span class="typed">To act: ${command(typed)}</span>`;
  return html`<a class="button" href="${href}">${label}<span class="unseen"> ${about}</span></a>`;
}

/** A button that acts at once. */
export function actNow(
  view: View,
  { href, label, typed, about }: { href: string; label: string; typed: string; about: string },
): Html {
  if (!view.session) return view.canSignIn ? html`` : html`<span class="typed">${command(typed)}</span>`;
  return html`<form method="post" action="${href}">${formToken(view)}<button>${label}<span class="unseen"> ${about}</span></button></form>`;
}

/** Shows that a form is of a page of this session. */
export const formToken = ({ session }: Pick<View, 'session'>): Html =>
  html`<input type="hidden" name="form_token" value="${session?.formToken ?? ''}">`;
