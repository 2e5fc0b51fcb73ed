// Everything the environment decides, read in one place and checked at once.
import { readFileSync } from 'node:fs';
import { codeOf, UsageError } from './errors.js';
import { findPostgresAddressFault } from './postgres-address.js';

/** What is wrong with a setting's text; undefined when nothing is. */
type Check = (text: string) => string | undefined;

const LOOPBACK = /^(localhost|127(\.\d{1,3}){3}|\[::1\])$/;
const LOG_LEVELS = ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'];

const anyText: Check = () => undefined;

const address =
  (protocols: readonly string[], fault: string): Check =>
  (text) =>
    URL.canParse(text) && protocols.includes(new URL(text).protocol) ? undefined : fault;

const webAddress: Check = (text) => {
  const fault = address(['http:', 'https:'], 'not a web address; write https://host')(text);
  if (fault !== undefined || new URL(text).protocol === 'https:') return fault;
  return LOOPBACK.test(new URL(text).hostname)
    ? undefined
    : 'must be https: the key would be sent unencrypted';
};

const wholeFrom =
  (min: number, max: number): Check =>
  (text) => {
    const value = Number(text);
    return Number.isInteger(value) && value >= min && value <= max
      ? undefined
      : `a whole number from ${min} to ${max}`;
  };

/** Every setting and its check. One that is empty or blank counts as not set. */
const CHECKS = {
  MIRROR_DATABASE_URL: findPostgresAddressFault,
  STATE_DATABASE_URL: findPostgresAddressFault,
  REDIS_URL: address(
    ['redis:', 'rediss:'],
    'not a Redis address; write redis://host:6379, or leave it unset to run on PostgreSQL alone',
  ),
  API_BASE_URL: webAddress,
  API_KEY: anyText,
  API_KEY_FILE: anyText,
  API_ORGANIZATION_ID: anyText,
  API_REGION: anyText,
  API_REQUESTS_PER_SECOND: wholeFrom(1, 1000),
  SLOTSYNC_CONFIG: anyText,
  HTTP_PORT: wholeFrom(0, 65_535),
  LOG_LEVEL: (text) =>
    LOG_LEVELS.includes(text) ? undefined : `${LOG_LEVELS.slice(0, -1).join(', ')} or ${LOG_LEVELS.at(-1)}`,
} satisfies Record<string, Check>;

type Setting = keyof typeof CHECKS;

export interface ApiSettings {
  /** Without a trailing slash. */
  baseUrl: string;
  /** Without the `Api-Key ` prefix. */
  key: string;
  organizationId: string;
  region: string;
}

export type Settings = ReturnType<typeof loadSettings>;

/** What a command cannot do without. */
export type Need = 'mirror' | 'state' | 'api';

/** Reads the settings. Throws UsageError that lists every fault and every missing setting at once. */
export function loadSettings(needs: readonly Need[], env: NodeJS.ProcessEnv = readEnvironment()) {
  const get = (name: Setting) => env[name]?.trim() || undefined;
  const faults: string[] = [];
  for (const [name, check] of Object.entries(CHECKS)) {
    const text = get(name as Setting);
    const fault = text === undefined ? undefined : check(text);
    if (fault !== undefined) faults.push(`${name}: ${fault}`);
  }
  const key = readKey(get('API_KEY'), get('API_KEY_FILE'), faults);
  const givenKey = get('API_KEY') ?? get('API_KEY_FILE');
  const [mirrorUrl, baseUrl] = [get('MIRROR_DATABASE_URL'), get('API_BASE_URL')];
  const stateUrl = get('STATE_DATABASE_URL') ?? mirrorUrl;
  const organizationId = get('API_ORGANIZATION_ID');
  const needed = {
    mirror: {
      'MIRROR_DATABASE_URL is not set: the database to read from, postgres://user:password@host:5432/database':
        mirrorUrl,
    },
    state: {
      'STATE_DATABASE_URL is not set (nor MIRROR_DATABASE_URL, its default): the database slotsync keeps its state in':
        stateUrl,
    },
    api: {
      "API_BASE_URL is not set: the service's address, https://…": baseUrl,
      'API_KEY is not set (nor API_KEY_FILE): the organization’s key at the service': givenKey,
      'API_ORGANIZATION_ID is not set: the organization’s id at the service': organizationId,
    },
  } satisfies Record<Need, Record<string, string | undefined>>;
  for (const [need, values] of Object.entries(needed))
    for (const [fault, value] of Object.entries(values))
      if (needs.includes(need as Need) && value === undefined) faults.push(fault);
  if (faults.length > 0) {
    throw new UsageError('the settings cannot be used', {
      faults,
      remedy: 'Set them in the environment or in .env; .env.example explains each.',
    });
  }

  const api: ApiSettings | undefined =
    baseUrl !== undefined && key !== undefined && organizationId !== undefined
      ? { baseUrl: baseUrl.replace(/\/+$/, ''), key, organizationId, region: get('API_REGION') ?? 'EU_EES' }
      : undefined;
  return {
    mirrorUrl,
    /** The mirror's database when not set. */
    stateUrl,
    redisUrl: get('REDIS_URL'),
    api,
    requestsPerSecond: Number(get('API_REQUESTS_PER_SECOND') ?? 20),
    configPath: get('SLOTSYNC_CONFIG'),
    /** 0: no HTTP. */
    httpPort: Number(get('HTTP_PORT') ?? 0),
    /** Unset: each command has its own. */
    logLevel: get('LOG_LEVEL'),
  };
}

/** The organization's key, without its prefix, from API_KEY or the file that API_KEY_FILE names. */
function readKey(text: string | undefined, file: string | undefined, faults: string[]): string | undefined {
  let key = text;
  if (key === undefined && file !== undefined) {
    try {
      key = readFileSync(file, 'utf8').trim();
      if (key === '') faults.push(`API_KEY_FILE: ${file} is empty`);
    } catch (error) {
      faults.push(`API_KEY_FILE: ${file} cannot be read (${codeOf(error)})`);
    }
  }
  return key?.replace(/^Api-Key\s+/i, '') || undefined;
}

/**
 * The environment, with what the file adds to it: variables that are set already win. Without a name, `.env` of the
 * working directory is read if there is one. Throws UsageError when the file cannot be read.
 */
export function readEnvironment(file?: string): NodeJS.ProcessEnv {
  try {
    process.loadEnvFile(file ?? '.env');
  } catch (error) {
    if (file === undefined && codeOf(error) === 'ENOENT') return process.env;
    throw new UsageError(`${file ?? '.env'} cannot be read (${codeOf(error)})`, { cause: error });
  }
  return process.env;
}
