// HTML as a tagged template: every value is escaped and stays in its line, except what is HTML already. Whoever writes a page
// cannot forget it.
// The template is Hono's. It would also take promises, and what anybody marked as HTML: the types here allow neither.
import { html as template } from 'hono/html';
import type { HtmlEscapedString } from 'hono/utils/html';
import { visibleInLine } from './visible-text.js';

/** Text that is HTML. Only `html` makes it. */
export type Html = HtmlEscapedString;

/** A value that a template may contain. `false`, null and undefined are nothing; a list is its elements one after the other. */
export type HtmlValue = Html | string | number | false | null | undefined | readonly HtmlValue[];

/** `html\`<td title="${key}">${key}</td>\``. An attribute stands in quotes; no value stands in a script or in CSS. */
export function html(strings: TemplateStringsArray, ...values: readonly HtmlValue[]): Html {
  return template(strings, ...values.map(inLine)) as Html;
}

function inLine(value: HtmlValue): HtmlValue {
  if (Array.isArray(value)) return value.map(inLine);
  return typeof value === 'string' ? visibleInLine(value) : value;
}
