import { existsSync } from 'node:fs';
import type { App } from '../app/app.js';
import { UsageError } from '../errors/errors.js';
import { print } from '../render/print.js';
import { createProgress } from '../render/progress.js';
import { table } from '../render/table.js';
import { DEFAULT_VERIFY_SHARE } from '../streams/config-schema.js';
import { createPace } from '../sync/run/request-pace.js';
import { renderServiceTypes, TYPES_MARKER } from '../sync/init/configuration-file.js';
import { surveyService, type ServiceSurvey } from '../sync/run/survey-service.js';
import { readTextFile, replaceFile, requireWritableFolder } from '../files/text-file.js';
import { lines, plural } from '../text/format.js';
import { describePlace, type CommonOptions } from './command.js';

const NONE = '–';

export async function discover(app: App, options: CommonOptions & { types?: string }): Promise<void> {
  const { types: file } = options;
  if (file !== undefined) requireOwnFile(file);
  const service = describePlace(app);
  const progress = createProgress('objects');
  const pace = createPace({ requestsPerSecond: app.settings.requestsPerSecond, share: DEFAULT_VERIFY_SHARE });
  const survey = await surveyService((await app.destination()).patient, {
    isWhole: true,
    pace,
    onProgress: progress.update,
  }).finally(progress.stop);
  const isEmpty = survey.types.length === 0 && survey.fields.length === 0;
  if (file !== undefined && !isEmpty) replaceFile(file, renderServiceTypes(survey, service));
  const types = survey.types.map(({ extIds: _sample, ...type }) => type);
  print(options, { service, types, fields: survey.fields }, [
    ...describeService(survey, service),
    ...(file === undefined || isEmpty ? [] : ['', `${file} holds the names, for defineConfig<Service>.`]),
  ]);
}

/** Throws UsageError if the file must not be written: it is not TypeScript, or another program wrote it. */
function requireOwnFile(file: string): void {
  if (!file.endsWith('.ts')) {
    const fault = file.trim() === '' ? 'no file is named' : `'${file}' does not end in .ts`;
    throw new UsageError(`--types writes TypeScript, and ${fault}`, {
      remedy: 'Name a file such as service.d.ts.',
    });
  }
  requireWritableFolder(file);
  if (!existsSync(file) || readTextFile(file).startsWith(TYPES_MARKER)) return;
  throw new UsageError(`'${file}' was not written by slotsync discover, and is not overwritten`, {
    remedy: 'Move it away, or name another file.',
  });
}

function describeService({ types, fields }: ServiceSurvey, service: string): string[] {
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
