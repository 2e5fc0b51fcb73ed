// HTML as a tagged template: every value is escaped, except what is HTML already. Whoever writes a page cannot forget it.

/** Text that is HTML. Only `html` makes it. */
export class Html {
  readonly #text: string;

  constructor(strings: readonly string[], values: readonly HtmlValue[]) {
    this.#text = strings.map((part, at) => part + (at < values.length ? render(values[at]) : '')).join('');
  }

  toString(): string {
    return this.#text;
  }
}

/** What may stand in a template. `false`, null and undefined are nothing; a list is its elements one after the other. */
export type HtmlValue = Html | string | number | boolean | null | undefined | readonly HtmlValue[];

/** `html\`<td title="${key}">${key}</td>\``. An attribute stands in quotes; no value stands in a script or in CSS. */
export function html(strings: TemplateStringsArray, ...values: readonly HtmlValue[]): Html {
  return new Html(strings, values);
}

const ENTITIES: Record<string, string> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
};

/** A text as it stands in HTML, between tags or in an attribute's quotes. */
export function escapeHtml(text: string): string {
  return text.replaceAll(/[&<>"']/g, (character) => ENTITIES[character] ?? character);
}

function render(value: HtmlValue): string {
  if (value === null || value === undefined || value === false) return '';
  if (value instanceof Html) return value.toString();
  if (Array.isArray(value)) return value.map(render).join('');
  return escapeHtml(String(value));
}
