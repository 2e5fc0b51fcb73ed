// The names of a service as TypeScript, for `defineConfig<Service>`.
import { visibleInLine } from '../../text/visible-text.js';
import type { ServiceSurvey } from '../run/survey-service.js';

/** The first line of a file with names: what may be written over. */
export const TYPES_MARKER = '// Written by slotsync discover --types.';

/** The names as a module with the interface `Service`. */
export function renderServiceTypes({ types, fields }: ServiceSurvey, service: string): string {
  const union = (definitions: ServiceSurvey['types'] | ServiceSurvey['fields']) => {
    const named = definitions.flatMap(({ extId, name }) => (extId === undefined ? [] : [{ extId, name }]));
    if (named.length === 0) return ' never;';
    const members = named.toSorted((a, b) => (a.extId < b.extId ? -1 : 1));
    return members
      .map(({ extId, name }, at) => {
        const end = at === members.length - 1 ? ';' : '';
        return `\n    | ${quote(extId)}${end}${name === undefined ? '' : ` // ${visibleInLine(name)}`}`;
      })
      .join('');
  };
  return [
    TYPES_MARKER,
    `// ${visibleInLine(service)}`,
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
