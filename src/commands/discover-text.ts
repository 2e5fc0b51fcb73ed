// The output of `discover`: the types and fields of a service, and how many objects have them.
import type { ServiceSurvey } from '../sync/run/survey-service.js';
import { plural, lines } from '../text/format.js';
import { table } from '../render/table.js';

const NONE = '–';

export function describeService({ types, fields }: ServiceSurvey, service: string): string[] {
  if (types.length === 0 && fields.length === 0)
    return [
      `${service} knows no types and no fields.`,
      '→ Types and fields are defined at the service. Is API_ORGANIZATION_ID the right organization?',
    ];
  const nameless = [...types, ...fields].filter(({ extId }) => extId === undefined).length;
  return lines(
    `${service}: ${plural(types.length, 'type')}, ${plural(fields.length, 'field')}`,
    '',
    table(
      ['type', 'name', 'objects', 'without external id'],
      types.map(({ extId, name, objects, withoutExtId }) => [
        extId ?? NONE,
        name ?? NONE,
        objects ?? NONE,
        withoutExtId ?? NONE,
      ]),
    ).split('\n'),
    '',
    table(
      ['field', 'name', 'on objects of', 'filled'],
      fields.map(({ extId, name, types, filled }) => [
        extId ?? NONE,
        name ?? NONE,
        types.join(', ') || NONE,
        extId === undefined ? NONE : filled,
      ]),
    ).split('\n'),
    nameless > 0 && [
      '',
      `${plural(nameless, 'type or field', 'types and fields')} without an external id: a configuration cannot name ${nameless === 1 ? 'it' : 'them'}.`,
      '→ Give them one at the service.',
    ],
  );
}
