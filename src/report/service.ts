// The types, fields and objects of a service, as people read them, and its names as TypeScript, for `defineConfig<Service>`.
import type { ServiceSurvey } from '../sync/run/survey-service.js';
import { visible } from '../text/visible-text.js';
import { plural, lines } from '../text/format.js';
import { table } from '../render/table.js';

/** The first line of a file with names: what may be written over. */
export const TYPES_MARKER = '// Written by slotsync discover --types.';

const NONE = '–';

export function describeService({ types, fields }: ServiceSurvey, service: string): string[] {
  if (types.length === 0 && fields.length === 0)
    return [
      `${service} knows no types and no fields.`,
      '→ Types and fields are defined at the service. Is API_ORGANIZATION_ID the right organization?',
    ];
  const nameless = [...types, ...fields].filter(({ extId }) => extId === undefined).length;
  return lines(
    `${service}: ${plural(types.length, 'type')}, ${plural(fields.length, 'field')}\n`,
    table(
      ['type', 'name', 'objects', 'without external id'],
      types.map(({ extId, name, objects, withoutExtId }) => [
        extId ?? NONE,
        name ?? NONE,
        objects ?? NONE,
        withoutExtId ?? NONE,
      ]),
    ),
    '',
    table(
      ['field', 'name', 'on objects of', 'filled'],
      fields.map(({ extId, name, types, filled }) => [
        extId ?? NONE,
        name ?? NONE,
        types.join(', ') || NONE,
        extId === undefined ? NONE : filled,
      ]),
    ),
    nameless > 0 && [
      `\n${plural(nameless, 'type or field', 'types and fields')} without an external id: a configuration cannot name ${nameless === 1 ? 'it' : 'them'}.`,
      '→ Give them one at the service.',
    ],
  );
}

/** The names as a module with the interface `Service`. */
export function renderServiceTypes({ types, fields }: ServiceSurvey, service: string): string {
  const union = (definitions: ServiceSurvey['types'] | ServiceSurvey['fields']) => {
    const named = definitions.flatMap(({ extId, name }) => (extId === undefined ? [] : [{ extId, name }]));
    if (named.length === 0) return ' never;';
    const members = named.toSorted((a, b) => (a.extId < b.extId ? -1 : 1));
    return members
      .map(({ extId, name }, at) => {
        const end = at === members.length - 1 ? ';' : '';
        return `\n    | ${quote(extId)}${end}${name === undefined ? '' : ` // ${inOneLine(name)}`}`;
      })
      .join('');
  };
  return [
    TYPES_MARKER,
    `// ${inOneLine(service)}`,
    '',
    'export interface Service {',
    `  type:${union(types)}`,
    `  field:${union(fields)}`,
    '}',
    '',
  ].join('\n');
}

/** A text as TypeScript writes it. */
export function quote(text: string): string {
  const escaped = JSON.stringify(text).slice(1, -1).replaceAll('\\"', '"').replaceAll("'", "\\'");
  return `'${escaped.replaceAll('\u2028', '\\u2028').replaceAll('\u2029', '\\u2029')}'`;
}

/** A text as a comment holds it: on one line, without characters that an editor or a terminal obeys. */
export const inOneLine = (text: string) => visible(text.replaceAll(/\s+/gu, ' ').trim());
