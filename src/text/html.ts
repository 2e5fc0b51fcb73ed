// Creates HTML by a tagged template. Every value is escaped and stays in its line, unless it is already HTML, so that
// no page can forget to escape. The template is Hono's. Hono also accepts promises, and any value that is marked as
// HTML. The types here allow neither.
import { html as template } from 'hono/html';
import type { HtmlEscapedString } from 'hono/utils/html';
import { visibleInLine } from './visible-text.js';

/** Text that is HTML. Only `html` creates it. */
export type Html = HtmlEscapedString;

/** A value in a template. `false`, null and undefined render nothing; a list renders its elements in order. */
export type HtmlValue = Html | string | number | false | null | undefined | readonly HtmlValue[];

/**
 * Renders `<td title="${key}">${key}</td>`, for example. Attributes need quotes. No value may be in scripts or in CSS.
 */
export function html(strings: TemplateStringsArray, ...values: readonly HtmlValue[]): Html {
  return template(strings, ...values.map(inLine)) as Html;
}

function inLine(value: HtmlValue): HtmlValue {
  if (Array.isArray(value)) return value.map(inLine);
  return typeof value === 'string' ? visibleInLine(value) : value;
}
