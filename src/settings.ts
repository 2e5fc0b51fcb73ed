// Everything the environment decides, read in one place and checked at once.
import { readFileSync } from 'node:fs';
import { z } from 'zod';
import { codeOf, UsageError } from './errors.js';

const LOOPBACK = /^(localhost|127(\.\d{1,3}){3}|\[::1\])$/;

const text = z
  .string()
  .trim()
  .transform((value) => (value === '' ? undefined : value))
  .optional();

const postgresUrl = text.refine(
  (url) => url === undefined || hasProtocol(url, ['postgres:', 'postgresql:']),
  {
    error: 'not a PostgreSQL address; write postgres://user:password@host:5432/database',
  },
);

const whole = (fallback: number, min: number, max: number) =>
  z
    .string()
    .optional()
    .transform((value) => (value === undefined || value.trim() === '' ? fallback : Number(value)))
    .refine((value) => Number.isInteger(value) && value >= min && value <= max, {
      error: `a whole number from ${min} to ${max}`,
    });

const schema = z.object({
  MIRROR_DATABASE_URL: postgresUrl,
  STATE_DATABASE_URL: postgresUrl,
  REDIS_URL: text.refine((url) => url === undefined || hasProtocol(url, ['redis:', 'rediss:']), {
    error: 'not a Redis address; write redis://host:6379, or leave it unset to run on PostgreSQL alone',
  }),
  API_BASE_URL: text.superRefine((url, context) => {
    if (url === undefined) return;
    if (!hasProtocol(url, ['http:', 'https:'])) {
      context.addIssue({ code: 'custom', message: 'not a web address; write https://host' });
    } else if (new URL(url).protocol === 'http:' && !LOOPBACK.test(new URL(url).hostname)) {
      context.addIssue({ code: 'custom', message: 'must be https: the key would travel in the clear' });
    }
  }),
  API_KEY: text,
  API_KEY_FILE: text,
  API_ORGANIZATION_ID: text,
  API_REGION: text,
  API_REQUESTS_PER_SECOND: whole(20, 1, 1000),
  SLOTSYNC_CONFIG: text,
  HTTP_PORT: whole(0, 0, 65_535),
  LOG_LEVEL: z
    .string()
    .optional()
    .transform((level) => level?.trim() || undefined)
    .pipe(
      z
        .enum(
          ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'],
          'fatal, error, warn, info, debug, trace or silent',
        )
        .optional(),
    ),
});

export interface ApiSettings {
  /** Without a trailing slash. */
  baseUrl: string;
  /** Without the `Api-Key ` prefix. */
  key: string;
  organizationId: string;
  region: string;
}

export interface Settings {
  mirrorUrl: string | undefined;
  /** The mirror's database when not set. */
  stateUrl: string | undefined;
  redisUrl: string | undefined;
  api: ApiSettings | undefined;
  requestsPerSecond: number;
  configPath: string | undefined;
  /** 0: no HTTP. */
  httpPort: number;
  /** Unset: each command has its own. */
  logLevel: string | undefined;
}

/** What a command cannot do without. */
export type Need = 'mirror' | 'state' | 'api';

/**
 * Reads the settings. `env` wins over `.env` in the working directory.
 * Throws UsageError that lists every fault and every missing setting at once.
 */
export function loadSettings(needs: readonly Need[], env: NodeJS.ProcessEnv = readEnvironment()): Settings {
  const faults: string[] = [];
  const parsed = schema.safeParse(env);
  if (!parsed.success) {
    faults.push(...parsed.error.issues.map(({ path, message }) => `${path.join('.')}: ${message}`));
  }
  const key = readKey(env, faults);
  const isSet = (name: string) => env[name] !== undefined && env[name].trim() !== '';
  if (needs.includes('mirror') && !isSet('MIRROR_DATABASE_URL')) {
    faults.push(
      'MIRROR_DATABASE_URL is not set: the database to read from, postgres://user:password@host:5432/database',
    );
  }
  if (needs.includes('state') && !isSet('STATE_DATABASE_URL') && !isSet('MIRROR_DATABASE_URL')) {
    faults.push(
      'STATE_DATABASE_URL is not set (nor MIRROR_DATABASE_URL, its default): the database slotsync keeps its state in',
    );
  }
  if (needs.includes('api')) {
    if (!isSet('API_BASE_URL')) faults.push("API_BASE_URL is not set: the service's address, https://…");
    if (!isSet('API_KEY') && !isSet('API_KEY_FILE')) {
      faults.push('API_KEY is not set (nor API_KEY_FILE): the organization’s key at the service');
    }
    if (!isSet('API_ORGANIZATION_ID')) {
      faults.push('API_ORGANIZATION_ID is not set: the organization’s id at the service');
    }
  }
  if (!parsed.success || faults.length > 0) {
    throw new UsageError('the settings cannot be used', {
      faults,
      remedy: 'Set them in the environment or in .env; .env.example explains each.',
    });
  }

  const values = parsed.data;
  const { API_BASE_URL: baseUrl, API_ORGANIZATION_ID: organizationId } = values;
  return {
    mirrorUrl: values.MIRROR_DATABASE_URL,
    stateUrl: values.STATE_DATABASE_URL ?? values.MIRROR_DATABASE_URL,
    redisUrl: values.REDIS_URL,
    api:
      baseUrl !== undefined && key !== undefined && organizationId !== undefined
        ? {
            baseUrl: baseUrl.replace(/\/+$/, ''),
            key,
            organizationId,
            region: values.API_REGION ?? 'EU_EES',
          }
        : undefined,
    requestsPerSecond: values.API_REQUESTS_PER_SECOND,
    configPath: values.SLOTSYNC_CONFIG,
    httpPort: values.HTTP_PORT,
    logLevel: values.LOG_LEVEL,
  };
}

/** The organization's key, without its prefix, from API_KEY or the file that API_KEY_FILE names. */
function readKey(env: NodeJS.ProcessEnv, faults: string[]): string | undefined {
  const file = env['API_KEY_FILE']?.trim();
  let key = env['API_KEY']?.trim();
  if (!key && file) {
    try {
      key = readFileSync(file, 'utf8').trim();
      if (key === '') faults.push(`API_KEY_FILE: ${file} is empty`);
    } catch (error) {
      faults.push(`API_KEY_FILE: ${file} cannot be read (${codeOf(error)})`);
    }
  }
  return key?.replace(/^Api-Key\s+/i, '') || undefined;
}

function readEnvironment(): NodeJS.ProcessEnv {
  try {
    process.loadEnvFile('.env');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') {
      throw new UsageError(`.env cannot be read (${(error as NodeJS.ErrnoException).code ?? 'error'})`, {
        cause: error,
      });
    }
  }
  return process.env;
}

function hasProtocol(url: string, protocols: readonly string[]): boolean {
  return URL.canParse(url) && protocols.includes(new URL(url).protocol);
}
