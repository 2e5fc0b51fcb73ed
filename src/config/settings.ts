// Reads the settings: their names in the environment, their allowed values and their defaults. All faults are reported
// at once. No fault repeats a setting's text, which may be a secret.
import { existsSync } from 'node:fs';
import { z } from 'zod';
import {
  parseNetworks,
  parsePostgresAddress,
  parseRedisAddress,
  parseSmtpAddress,
  refuse,
  requireCollectorAddress,
  requireProxyAddress,
  requireServiceAddress,
  requireWebhookAddress,
} from '../connections/addresses.js';
import { messageOf, UsageError } from '../errors/errors.js';
import { isTimeZone } from '../text/format.js';
import { nearestName } from '../text/nearest-name.js';
import { readAgain, type SettingText } from './setting-text.js';

/** Returns a schema of texts for which `check` throws no error. */
const checkedBy = (check: (text: string) => unknown) =>
  z.string().superRefine((text, context) => {
    try {
      check(text);
    } catch (error) {
      context.addIssue({ code: 'custom', message: messageOf(error) });
    }
  });

/** A text that an HTTP header can contain. A fault names the position of a character, not the character. */
const headerValue = checkedBy((text) => {
  const characters = Array.from(text);
  const index = characters.findIndex((character) => !/[!-~]/.test(character));
  refuse(
    index >= 0,
    `character ${index + 1} of ${characters.length} is not printable ASCII; copy the value again`,
  );
});

const NEW_SECRET = 'for example from: openssl rand -hex 24';
/** Minimum length of a secret. A shorter secret could be guessed. */
const SHORTEST_SECRET = 16;
const ownSecret = checkedBy((text) =>
  refuse(
    text.length < SHORTEST_SECRET,
    `has ${text.length} characters; use at least ${SHORTEST_SECRET}, ${NEW_SECRET}`,
  ),
);

/** Advice on how to create a secret that follows the specification of Standard Webhooks. */
const NEW_WEBHOOK_SECRET = 'for example from: echo "whsec_$(openssl rand -base64 32)"';
const webhookSecret = checkedBy((text) => {
  const [, base64 = ''] = /^whsec_([\w+/]+={0,2})$/.exec(text) ?? [];
  const key = Buffer.from(base64, 'base64');
  refuse(
    key.length < 24 || key.length > 64 || key.toString('base64') !== base64,
    `must be whsec_ followed by 24 to 64 bytes in base64, ${NEW_WEBHOOK_SECRET}`,
  );
});

const wholeFrom = (min: number, max: number) =>
  z
    .string()
    .refine((text) => /^\d+$/.test(text) && Number(text) >= min && Number(text) <= max, {
      error: `a whole number from ${min} to ${max}`,
    })
    .transform(Number);

const LOG_LEVELS = ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'];

const text = z.string().optional();

const PLAIN = z.object({
  API_BASE_URL: checkedBy(requireServiceAddress)
    .overwrite((url) => url.replace(/\/+$/, ''))
    .optional(),
  /**
   * Becomes a part of a path. All characters are encoded there, except for dots, which alone would change the path.
   */
  API_ORGANIZATION_ID: z
    .string()
    .regex(/^(?!\.{1,2}$)/, 'an id cannot consist only of dots')
    .regex(/^[^\s\p{Cc}]*$/u, 'contains a space or a control character; copy it again')
    .optional(),
  API_REGION: headerValue.default('EU_EES'),
  API_REQUESTS_PER_SECOND: wholeFrom(1, 1000).default(20),
  MIRROR_STATEMENT_SECONDS: wholeFrom(1, 86_400).default(1800),
  STATE_STATEMENT_SECONDS: wholeFrom(1, 86_400).default(600),
  HTTPS_PROXY: checkedBy(requireProxyAddress).optional(),
  NO_PROXY: text,
  SLOTSYNC_CONFIG: text,
  /** Port 0 means no HTTP server. */
  HTTP_PORT: wholeFrom(0, 65_535).default(0),
  HTTP_HOST: z
    .string()
    .regex(/^[\w.:-]+$/, 'only the address of this machine, such as 127.0.0.1 or ::1')
    .default('127.0.0.1'),
  HTTP_SIGN_IN: z.enum(['elsewhere', 'always'], 'elsewhere or always').default('elsewhere'),
  HTTP_TRUSTED_PROXIES: checkedBy(parseNetworks).optional(),
  HTTP_USER_HEADER: z
    .string()
    .regex(/^[\w-]+$/, 'the name of one header, such as X-Forwarded-User')
    .optional(),
  TIMEZONE: z
    .string()
    .refine(isTimeZone, 'not a time zone; write its name, such as Europe/Stockholm or UTC')
    .optional(),
  OTEL_EXPORTER_OTLP_ENDPOINT: checkedBy(requireCollectorAddress).optional(),
  OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: checkedBy(requireCollectorAddress).optional(),
  OTEL_SDK_DISABLED: z.string().toLowerCase().optional(),
  OTEL_TRACES_EXPORTER: z.string().default('otlp'),
  /** Only the OpenTelemetry SDK uses this setting. */
  OTEL_SERVICE_NAME: text,
  LOG_LEVEL: z
    .string()
    .toLowerCase()
    .pipe(z.enum(LOG_LEVELS, `${LOG_LEVELS.slice(0, -1).join(', ')} or ${LOG_LEVELS.at(-1)}`))
    .optional(),
});
const PLAIN_NAMES = Object.keys(PLAIN.shape);

/** Settings that are addresses and may contain a password. */
const ADDRESSES = {
  MIRROR_DATABASE_URL: checkedBy(parsePostgresAddress),
  STATE_DATABASE_URL: checkedBy(parsePostgresAddress),
  REDIS_URL: checkedBy(parseRedisAddress),
  ALERT_SMTP_URL: checkedBy(parseSmtpAddress),
};
/** Secret settings. Each may be in a file instead, which the setting with the suffix `_FILE` names. */
const SECRETS = {
  ...ADDRESSES,
  API_KEY: z
    .string()
    .overwrite((key) => key.replace(/^Api-Key\s+/i, ''))
    .pipe(headerValue),
  HTTP_TOKEN: ownSecret.pipe(headerValue),
  ALERT_WEBHOOK_URL: checkedBy(requireWebhookAddress),
  ALERT_WEBHOOK_SECRET: webhookSecret,
  ALERT_SLACK_URL: checkedBy(requireWebhookAddress),
  ALERT_TEAMS_URL: checkedBy(requireWebhookAddress),
  ALERT_PING_URL: checkedBy(requireWebhookAddress),
};
type Secret = keyof typeof SECRETS;
const SECRET_NAMES = Object.keys(SECRETS) as Secret[];

export const SETTING_NAMES: readonly string[] = [
  ...PLAIN_NAMES,
  ...SECRET_NAMES.flatMap((name) => [name, `${name}_FILE`]),
];

/** Settings that a command may need, each with the message if the setting is missing. */
const NEEDED = [
  [
    'mirror',
    'MIRROR_DATABASE_URL',
    ': the database to read from, postgres://user:password@host:5432/database',
  ],
  [
    'state',
    'STATE_DATABASE_URL',
    ' (nor MIRROR_DATABASE_URL, its default): the database slotsync keeps its state in',
  ],
  ['api', 'API_BASE_URL', ": the service's address, https://…"],
  ['api', 'API_KEY', ' (nor API_KEY_FILE): the organization’s key at the service'],
  ['api', 'API_ORGANIZATION_ID', ': the organization’s id at the service'],
] as const;
export type Need = (typeof NEEDED)[number][0];

export interface ApiSettings {
  /** Address of the service without a trailing slash. */
  baseUrl: string;
  /** API key without the `Api-Key ` prefix. */
  key: SettingText;
  organizationId: string;
  region: string;
  proxy?: ProxySettings | undefined;
}

export interface ProxySettings {
  url: string;
  /** Names of hosts, separated by commas, to which slotsync connects without the proxy. */
  except: string;
}

/** Settings of the alert channels. A channel is on if its address is set. */
export type AlertSettings = Settings['alerts'];
export type Settings = ReturnType<typeof loadSettings>;
type Environment = NodeJS.Dict<string>;

/** Returns a setting, or undefined if it is blank. A lower-case name of a proxy setting takes precedence. */
const textOf = (env: Environment, name: string) =>
  (name.endsWith('_PROXY') && env[name.toLowerCase()]?.trim()) || env[name]?.trim() || undefined;

/**
 * Maximum number of wrong letters in a misspelled name. API_URL must not count as API_KEY: three letters differ.
 */
const MISSPELLED_BY = 2;
/** Variable of other programs that resembles HTTPS_PROXY. */
const OTHER_PROGRAMS = 'HTTP_PROXY';

/** Returns a sentence for each name that resembles an unset setting. Other unknown names belong to other programs. */
export function findMisspelled(names: Iterable<string>, env: Environment): string[] {
  const unset = SETTING_NAMES.filter((known) => textOf(env, known) === undefined);
  return [...names].flatMap((name) => {
    if (SETTING_NAMES.includes(name) || name.toUpperCase() === OTHER_PROGRAMS) return [];
    const spellings = [name, name.replace(/^SLOTSYNC_/i, '')];
    const near = spellings.map((spelling) => nearestName(spelling, unset, MISSPELLED_BY)).find(Boolean);
    return near === undefined ? [] : [`${name} is no setting and has no effect; did you mean ${near}?`];
  });
}

/**
 * Reads the settings. Throws one UsageError that lists every fault and every missing setting, followed by `misspelled`.
 * Misspelled names alone are no reason to throw.
 */
export function loadSettings(
  needs: readonly Need[],
  env: Environment,
  file = '.env',
  misspelled: readonly string[] = [],
) {
  const plain = PLAIN.safeParse(Object.fromEntries(PLAIN_NAMES.map((name) => [name, textOf(env, name)])));
  const faults = (plain.error?.issues ?? []).map(({ path, message }) => `${path.join()}: ${message}`);
  const secrets: { [name in Secret]?: SettingText | undefined } = {};
  for (const name of SECRET_NAMES) {
    const [text, file] = [textOf(env, name), textOf(env, `${name}_FILE`)];
    try {
      if (text !== undefined) secrets[name] = parse(SECRETS[name], text);
      else if (file !== undefined) secrets[name] = readAgain(file, parse.bind(undefined, SECRETS[name]));
    } catch (error) {
      faults.push(`${text === undefined ? `${name}_FILE` : name}: ${messageOf(error)}`);
    }
  }
  if (plain.data?.HTTP_USER_HEADER !== undefined && plain.data.HTTP_TRUSTED_PROXIES === undefined)
    faults.push('HTTP_USER_HEADER: is accepted only from HTTP_TRUSTED_PROXIES; set that too');
  for (const fault of [...findMissing(needs, env), ...(needs.length > 0 ? findTlsFaults(env) : [])])
    faults.push(fault);
  if (!plain.success || faults.length > 0) {
    throw new UsageError('the settings cannot be used', {
      faults: [...faults, ...misspelled],
      remedy: `Set them in the environment or in ${file}; .env.example explains each.`,
    });
  }

  const { data } = plain;
  const { API_BASE_URL: baseUrl, API_ORGANIZATION_ID: organizationId, API_REGION: region } = data;
  const { MIRROR_DATABASE_URL: mirrorUrl, API_KEY: key } = secrets;
  const proxy = proxyOf(data.HTTPS_PROXY, data.NO_PROXY);
  const api: ApiSettings | undefined =
    baseUrl !== undefined && key !== undefined && organizationId !== undefined
      ? { baseUrl, key, organizationId, region, proxy }
      : undefined;
  return {
    mirrorUrl,
    /** Address of the state. The default is the mirror's database. */
    stateUrl: secrets.STATE_DATABASE_URL ?? mirrorUrl,
    redisUrl: secrets.REDIS_URL,
    api,
    requestsPerSecond: data.API_REQUESTS_PER_SECOND,
    mirrorStatementSeconds: data.MIRROR_STATEMENT_SECONDS,
    stateStatementSeconds: data.STATE_STATEMENT_SECONDS,
    configPath: data.SLOTSYNC_CONFIG,
    httpPort: data.HTTP_PORT,
    httpHost: data.HTTP_HOST,
    /** Token of the page. If it is not set, the page is read-only. */
    httpToken: secrets.HTTP_TOKEN,
    httpSignIn: data.HTTP_SIGN_IN,
    httpTrustedProxies: data.HTTP_TRUSTED_PROXIES,
    httpUserHeader: data.HTTP_USER_HEADER,
    alerts: {
      webhookUrl: secrets.ALERT_WEBHOOK_URL,
      /** Secret that signs messages to `webhookUrl`. It is always set together with `webhookUrl`. */
      webhookSecret: secrets.ALERT_WEBHOOK_SECRET,
      slackUrl: secrets.ALERT_SLACK_URL,
      teamsUrl: secrets.ALERT_TEAMS_URL,
      smtpUrl: secrets.ALERT_SMTP_URL,
      pingUrl: secrets.ALERT_PING_URL,
    },
    proxy,
    /** Time zone of every time that is shown. If it is not set, the schedule's zone is used. */
    timeZone: data.TIMEZONE,
    /** True if a collector of traces is named. The SDK itself reads the collector's address. */
    exportsTraces:
      (data.OTEL_EXPORTER_OTLP_ENDPOINT ?? data.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT) !== undefined &&
      data.OTEL_SDK_DISABLED !== 'true' &&
      /\botlp\b/.test(data.OTEL_TRACES_EXPORTER),
    /** Log level. If it is not set, each command uses its own default. */
    logLevel: data.LOG_LEVEL,
  };
}

/** Parses a setting. Throws UsageError with the first fault. */
function parse(schema: z.ZodType<string>, text: string): string {
  const parsed = schema.safeParse(text);
  if (parsed.success) return parsed.data;
  throw new UsageError(parsed.error.issues[0]?.message ?? '');
}

function findMissing(needs: readonly Need[], env: Environment): string[] {
  const isSet = (name: string) => (textOf(env, name) ?? textOf(env, `${name}_FILE`)) !== undefined;
  const hasState = isSet('STATE_DATABASE_URL') || isSet('MIRROR_DATABASE_URL');
  const faults = NEEDED.filter(
    ([need, name]) => needs.includes(need) && !(need === 'state' ? hasState : isSet(name)),
  ).map(([, name, why]) => `${name} is not set${why}`);
  if (isSet('ALERT_WEBHOOK_URL') && !isSet('ALERT_WEBHOOK_SECRET'))
    faults.push(
      `ALERT_WEBHOOK_SECRET is not set: it signs the messages to ALERT_WEBHOOK_URL; create one, ${NEW_WEBHOOK_SECRET}`,
    );
  if (textOf(env, 'HTTP_SIGN_IN') === 'always' && !isSet('HTTP_TOKEN'))
    faults.push(
      `HTTP_TOKEN is not set: with HTTP_SIGN_IN=always everybody signs in with it; create one, ${NEW_SECRET}`,
    );
  return faults;
}

function findTlsFaults(env: Environment): string[] {
  const faults: string[] = [];
  if (env['NODE_TLS_REJECT_UNAUTHORIZED'] === '0')
    faults.push(
      'NODE_TLS_REJECT_UNAUTHORIZED: 0 accepts every certificate; unset it, and name your authority in NODE_EXTRA_CA_CERTS',
    );
  const authorities = env['NODE_EXTRA_CA_CERTS'];
  if (authorities && !existsSync(authorities))
    faults.push(`NODE_EXTRA_CA_CERTS: ${authorities} does not exist or cannot be read`);
  return faults;
}

/** Returns the proxy, if any. Connections to this machine never use a proxy. */
function proxyOf(url: string | undefined, except = ''): ProxySettings | undefined {
  if (url === undefined || except === '*') return undefined;
  return { url, except: [except, 'localhost', '127.0.0.1', '[::1]'].filter(Boolean).join(',') };
}

/** Returns the paths of the files from which secrets are read. */
export function listSecretFiles(env: Environment): string[] {
  return SECRET_NAMES.flatMap((name) => (textOf(env, name) ? [] : (textOf(env, `${name}_FILE`) ?? [])));
}

/** Returns true if a setting contains a secret. An address without a password contains no secret. */
export function containsSecret(env: Environment): boolean {
  return SECRET_NAMES.some((name) => {
    const text = textOf(env, name) ?? '';
    return name in ADDRESSES ? /^\w+:\/\/[^/]*:[^/]*@/.test(text) : text !== '';
  });
}
