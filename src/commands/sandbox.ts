import { once } from 'node:events';
import path from 'node:path';
import { findConfiguration, loadConfiguration, type Configuration } from '../config/config-file.js';
import { importFile } from '../config/load-file.js';
import { plural } from '../text/format.js';
import { print, printNote } from '../render/print.js';
import type { Faults } from '../sandbox/faults.js';
import { startSandbox, type SandboxOptions } from '../sandbox/sandbox.js';
import { playContract } from '../sandbox/service.js';
import { findForeignFiles, readEnvironment } from '../config/environment.js';
import { loadSettings } from '../config/settings.js';
import type { SandboxSchema } from '../sandbox/schema.js';
import { readContract } from './check-wire.js';
import type { CommonOptions } from './command.js';

/** Options as the user types them. All other options of `SandboxOptions` have the same names on the command line. */
interface SandboxCommandOptions
  extends CommonOptions, Omit<SandboxOptions, 'expiredStatus' | 'putStatus'>, Required<Faults> {
  contract?: string;
  organization: string;
  apiKey: string;
  expiredStatus: string;
  putStatus?: string;
  modified: boolean;
  fieldSearch: boolean;
  assignExternalIds?: boolean;
  speaks?: string;
  latency: number;
  jitter: number;
  latencyPerObject: number;
}

export async function sandbox(options: SandboxCommandOptions): Promise<void> {
  const { configPath } = loadSettings([], readEnvironment(options.envFile));
  const file = options.config ?? configPath;
  for (const reason of findForeignFiles([options.envFile, file])) printNote(`slotsync: ${reason}`);
  const isConfigured = file !== undefined || findConfiguration() !== undefined;
  const schema = isConfigured ? schemaOf(await loadConfiguration(file)) : { types: [], fields: [] };
  const { speaks, contract } = options;
  const exported = speaks && (await importFile(path.resolve(speaks))).exported;
  const speech = contract === undefined ? exported : playContract(readContract(contract));
  const opened = await startSandbox({
    ...toSandboxOptions(options),
    schema,
    speech: speech as SandboxOptions['speech'],
  });
  const settings = {
    API_BASE_URL: opened.url,
    API_ORGANIZATION_ID: options.organization,
    API_KEY: options.apiKey,
  };
  const known = { types: schema.types.length, fields: schema.fields.length };
  print(options, { url: opened.url, settings, ...known }, [
    `The sandbox answers at ${opened.url}. Settings for it:`,
    '',
    ...Object.entries(settings).map(([name, value]) => `  ${name}=${value}`),
    '',
    contract === undefined
      ? `It knows ${plural(known.types, 'type')} and ${plural(known.fields, 'field')}.`
      : `It answers what ${contract} has, whatever is asked: for slotsync check --wire.`,
    `Requests it has received: ${opened.url}/sandbox/summary`,
  ]);
  await Promise.race([once(process, 'SIGINT'), once(process, 'SIGTERM')]);
  await opened.close();
}

function toSandboxOptions(options: SandboxCommandOptions): SandboxOptions {
  const {
    organization,
    modified,
    fieldSearch,
    assignExternalIds,
    speaks: _file,
    latency,
    jitter,
    latencyPerObject,
    expiredStatus,
    putStatus,
    contract: _,
    ...sameName
  } = options;
  const { status500, reset, loseAnswer, brokenJson, hang, html, htmlStatus, late, lateMs } = options;
  return {
    ...sameName,
    organizationId: organization,
    honoursModified: modified,
    searchesFields: fieldSearch,
    assignsExternalIds: assignExternalIds,
    latencyMs: latency,
    jitterMs: jitter,
    latencyPerObjectMs: latencyPerObject,
    expiredStatus: expiredStatus === '403' ? 403 : 401,
    ...(putStatus === undefined ? {} : { putStatus: putStatus === '200' ? 200 : 207 }),
    faults: { status500, reset, loseAnswer, brokenJson, hang, html, htmlStatus, late, lateMs },
  };
}

/** Returns a schema with exactly the types and fields that the configuration names. */
function schemaOf({ streams, reservations }: Configuration): SandboxSchema {
  const typeOf = new Map(streams.map(({ name, type }) => [name, type]));
  const fields = new Map<string, SandboxSchema['fields'][number]>();
  for (const { owned, references } of streams) {
    for (const extId of owned) fields.set(extId, fields.get(extId) ?? { extId });
    for (const { fieldId, stream } of references) {
      const reference = typeOf.get(stream);
      fields.set(fieldId, { extId: fieldId, ...(reference === undefined ? {} : { reference }) });
    }
  }
  for (const extId of reservations?.rules.fields ?? []) fields.set(extId, fields.get(extId) ?? { extId });
  const types = new Map<string, SandboxSchema['types'][number]>();
  for (const { type, subtypes } of streams) {
    if (!types.has(type)) types.set(type, { extId: type });
    for (const extId of subtypes) if (!types.has(extId)) types.set(extId, { extId, parent: type });
  }
  return { types: [...types.values()], fields: [...fields.values()] };
}
