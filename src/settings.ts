// Everything the environment decides, read in one place and checked at once.
import { existsSync } from 'node:fs';
import { parseEnv } from 'node:util';
import { messageOf, UsageError } from './errors.js';
import { isTimeZone } from './format.js';
import { findPostgresAddressFault } from './connections/postgres-address.js';
import { findRedisAddressFault } from './connections/redis-address.js';
import { findSmtpAddressFault } from './connections/smtp-address.js';
import { isReadableByOthers, readSecretFile, readTextFile } from './text-file.js';
import type { SettingText } from './setting-text.js';

/** What is wrong with a setting's text; undefined when nothing is. */
type Check = (text: string) => string | undefined;

const LOOPBACK = /^(localhost|127(\.\d{1,3}){3}|::1|\[::1\])$/;
/** Whether a host is this machine alone. */
export const isLoopback = (host: string): boolean => LOOPBACK.test(host);
const LOG_LEVELS = ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'];

const anyText: Check = () => undefined;

const address =
  (protocols: readonly string[], fault: string): Check =>
  (text) =>
    URL.canParse(text) && protocols.includes(new URL(text).protocol) ? undefined : fault;

const webAddress: Check = (text) => {
  const fault = address(['http:', 'https:'], 'not a web address; write https://host')(text);
  if (fault !== undefined) return fault;
  const { username, password, pathname, search, hash, protocol, hostname } = new URL(text);
  if (username !== '' || password !== '')
    return 'contains a user or password, which the service does not use; write https://host';
  if (/[?#]/.test(text) || search !== '' || hash !== '') return 'contains ? or #; write https://host';
  if (/[^/]/.test(pathname))
    return 'contains a path; write https://host, and the path in service.prefix of the configuration';
  return protocol === 'https:' || LOOPBACK.test(hostname)
    ? undefined
    : 'must be https: the key would be sent unencrypted';
};

/** Its path is a secret, so no part of it is repeated. */
const webhookAddress: Check = (text) => {
  if (!URL.canParse(text) || !['http:', 'https:'].includes(new URL(text).protocol))
    return 'not a web address; copy the whole of it, from https:// on';
  const { username, password, protocol, hostname } = new URL(text);
  if (username !== '' || password !== '') return 'contains a user or password, which is not sent; remove it';
  return protocol === 'https:' || LOOPBACK.test(hostname)
    ? undefined
    : 'must be https: it would be sent unencrypted';
};

/** What an HTTP header can hold. The fault names the place, not the character: it may be part of a secret. */
const headerValue: Check = (text) => {
  const at = Array.from(text).findIndex((character) => !/[!-~]/.test(character));
  return at < 0
    ? undefined
    : `character ${at + 1} of ${Array.from(text).length} is no letter, digit or sign of ASCII; copy it again`;
};

const apiKey: Check = (text) => headerValue(withoutPrefix(text));

/** It becomes a part of a path, in which everything else is encoded. */
const organizationId: Check = (text) => {
  if (/^\.{1,2}$/.test(text)) return 'dots alone are no id';
  return /[\s\p{Cc}]/u.test(text) ? 'contains a space or a control character; copy it again' : undefined;
};

/** The message repeats no part of the address, which may contain a password. */
const proxyAddress: Check = (text) => {
  const fault = address(['http:', 'https:'], 'not the address of a proxy; write http://host:3128')(text);
  if (fault !== undefined) return fault;
  const { username, password, pathname, search, hash } = new URL(text);
  if (pathname !== '/' || search !== '' || hash !== '')
    return 'contains a path, ? or #; write http://host:3128';
  if ((username === '') !== (password === ''))
    return 'has a user without a password, or a password without a user';
  return isPercentEncoded(username + password)
    ? undefined
    : 'contains a % that encodes nothing in user or password; write %25';
};

const isPercentEncoded = (text: string) => !/%(?![\da-f]{2})/i.test(text);

/** Of a collector; a path is part of it. */
const collectorAddress = address(['http:', 'https:'], 'not a web address; write http://host:4318');

const wholeFrom =
  (min: number, max: number): Check =>
  (text) =>
    /^\d+$/.test(text) && Number(text) >= min && Number(text) <= max
      ? undefined
      : `a whole number from ${min} to ${max}`;

/** What an operator types to act on the page; a short one could be guessed. */
const httpToken: Check = (text) =>
  text.length >= SHORTEST_TOKEN
    ? headerValue(text)
    : `has ${text.length} characters; use at least ${SHORTEST_TOKEN}, such as from: openssl rand -hex 24`;
const SHORTEST_TOKEN = 16;

const signingSecret: Check = (text) =>
  text.length >= SHORTEST_TOKEN
    ? undefined
    : `has ${text.length} characters; use at least ${SHORTEST_TOKEN}, such as from: openssl rand -hex 24`;

/** Every setting and its check. One that is empty or blank counts as not set. */
const CHECKS = {
  MIRROR_DATABASE_URL: findPostgresAddressFault,
  STATE_DATABASE_URL: findPostgresAddressFault,
  MIRROR_DATABASE_URL_FILE: anyText,
  STATE_DATABASE_URL_FILE: anyText,
  REDIS_URL: findRedisAddressFault,
  REDIS_URL_FILE: anyText,
  API_BASE_URL: webAddress,
  API_KEY: apiKey,
  API_KEY_FILE: anyText,
  API_ORGANIZATION_ID: organizationId,
  API_REGION: headerValue,
  API_REQUESTS_PER_SECOND: wholeFrom(1, 1000),
  HTTPS_PROXY: proxyAddress,
  NO_PROXY: anyText,
  SLOTSYNC_CONFIG: anyText,
  HTTP_PORT: wholeFrom(0, 65_535),
  HTTP_HOST: (text) =>
    /^[\w.:-]+$/.test(text) ? undefined : 'the address of this machine alone, such as 127.0.0.1 or ::1',
  HTTP_TOKEN: httpToken,
  HTTP_TOKEN_FILE: anyText,
  ALERT_WEBHOOK_URL: webhookAddress,
  ALERT_WEBHOOK_URL_FILE: anyText,
  ALERT_WEBHOOK_SECRET: signingSecret,
  ALERT_WEBHOOK_SECRET_FILE: anyText,
  ALERT_SLACK_URL: webhookAddress,
  ALERT_SLACK_URL_FILE: anyText,
  ALERT_TEAMS_URL: webhookAddress,
  ALERT_TEAMS_URL_FILE: anyText,
  ALERT_SMTP_URL: findSmtpAddressFault,
  ALERT_SMTP_URL_FILE: anyText,
  TIMEZONE: (text) =>
    isTimeZone(text) ? undefined : 'not a time zone; write its name, such as Europe/Stockholm or UTC',
  OTEL_EXPORTER_OTLP_ENDPOINT: collectorAddress,
  OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: collectorAddress,
  OTEL_SDK_DISABLED: anyText,
  OTEL_TRACES_EXPORTER: anyText,
  OTEL_SERVICE_NAME: anyText,
  LOG_LEVEL: (text) =>
    LOG_LEVELS.includes(text.toLowerCase())
      ? undefined
      : `${LOG_LEVELS.slice(0, -1).join(', ')} or ${LOG_LEVELS.at(-1)}`,
} satisfies Record<string, Check>;

type Setting = keyof typeof CHECKS;

/** Settings that may be given in a file instead, named by the setting with `_FILE` behind it. */
const SECRETS = [
  'MIRROR_DATABASE_URL',
  'STATE_DATABASE_URL',
  'REDIS_URL',
  'API_KEY',
  'HTTP_TOKEN',
  'ALERT_WEBHOOK_URL',
  'ALERT_WEBHOOK_SECRET',
  'ALERT_SLACK_URL',
  'ALERT_TEAMS_URL',
  'ALERT_SMTP_URL',
] as const;
type Secret = (typeof SECRETS)[number];

export interface ApiSettings {
  /** Without a trailing slash. */
  baseUrl: string;
  /** Without the `Api-Key ` prefix. */
  key: SettingText;
  organizationId: string;
  region: string;
  proxy?: ProxySettings | undefined;
}

export interface ProxySettings {
  url: string;
  /** Names of hosts, separated by commas, that are connected to directly. */
  except: string;
}

/** The channels of alerts; each is on when its address is there. */
export interface AlertSettings {
  webhookUrl: SettingText | undefined;
  /** Of every body that is sent to `webhookUrl`; there whenever that is. */
  webhookSecret: SettingText | undefined;
  slackUrl: SettingText | undefined;
  teamsUrl: SettingText | undefined;
  smtpUrl: SettingText | undefined;
}

export type Settings = ReturnType<typeof loadSettings>;

/** What a command cannot do without. */
export type Need = 'mirror' | 'state' | 'api';

/** Reads the settings. Throws UsageError that lists every fault and every missing setting at once. */
export function loadSettings(needs: readonly Need[], env: NodeJS.ProcessEnv = readEnvironment()) {
  /** Names of proxies may be in lower case, which wins, as in other programs. */
  const get = (name: Setting) =>
    (name.endsWith('_PROXY') && env[name.toLowerCase()]?.trim()) || env[name]?.trim() || undefined;
  const faults: string[] = [];
  for (const [name, check] of Object.entries(CHECKS)) {
    const text = get(name as Setting);
    const fault = text === undefined ? undefined : check(text);
    if (fault !== undefined) faults.push(`${name}: ${fault}`);
  }
  if (needs.length > 0) faults.push(...findTlsFaults(env));
  /** The setting itself wins over its file. */
  const secret = (name: Secret): SettingText | undefined => {
    const [text, file] = [get(name), get(`${name}_FILE`)];
    if (text !== undefined || file === undefined) return text;
    try {
      return readAgain(file, CHECKS[name]);
    } catch (error) {
      faults.push(`${name}_FILE: ${messageOf(error)}`);
      return file; // never used: the fault ends the command
    }
  };
  const [mirrorUrl, ownStateUrl, redisUrl, httpToken] = [
    secret('MIRROR_DATABASE_URL'),
    secret('STATE_DATABASE_URL'),
    secret('REDIS_URL'),
    secret('HTTP_TOKEN'),
  ];
  const stateUrl = ownStateUrl ?? mirrorUrl;
  const alerts: AlertSettings = {
    webhookUrl: secret('ALERT_WEBHOOK_URL'),
    webhookSecret: secret('ALERT_WEBHOOK_SECRET'),
    slackUrl: secret('ALERT_SLACK_URL'),
    teamsUrl: secret('ALERT_TEAMS_URL'),
    smtpUrl: secret('ALERT_SMTP_URL'),
  };
  if (alerts.webhookUrl !== undefined && alerts.webhookSecret === undefined)
    faults.push(
      'ALERT_WEBHOOK_SECRET is not set: what is sent to ALERT_WEBHOOK_URL is signed with it, such as from: openssl rand -hex 24',
    );
  const [baseUrl, givenKey] = [get('API_BASE_URL'), secret('API_KEY')];
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
  } satisfies Record<Need, Record<string, SettingText | undefined>>;
  for (const [need, values] of Object.entries(needed))
    for (const [fault, value] of Object.entries(values))
      if (needs.includes(need as Need) && value === undefined) faults.push(fault);
  if (faults.length > 0) {
    throw new UsageError('the settings cannot be used', {
      faults,
      remedy: 'Set them in the environment or in .env; .env.example explains each.',
    });
  }

  const proxy = proxyOf(get('HTTPS_PROXY'), get('NO_PROXY'));
  const api: ApiSettings | undefined =
    baseUrl !== undefined && givenKey !== undefined && organizationId !== undefined
      ? {
          baseUrl: baseUrl.replace(/\/+$/, ''),
          key: typeof givenKey === 'string' ? withoutPrefix(givenKey) : () => withoutPrefix(givenKey()),
          organizationId,
          region: get('API_REGION') ?? 'EU_EES',
          proxy,
        }
      : undefined;
  return {
    mirrorUrl,
    /** The mirror's database when not set. */
    stateUrl,
    redisUrl,
    api,
    requestsPerSecond: Number(get('API_REQUESTS_PER_SECOND') ?? 20),
    configPath: get('SLOTSYNC_CONFIG'),
    /** 0: no HTTP. */
    httpPort: Number(get('HTTP_PORT') ?? 0),
    /** This machine alone, unless somebody decides otherwise. */
    httpHost: get('HTTP_HOST') ?? '127.0.0.1',
    /** Unset: the page is read-only. */
    httpToken,
    alerts,
    proxy,
    /** Of every time that is shown. Unset: the schedule's. */
    timeZone: get('TIMEZONE'),
    /** A collector is named; the SDK reads where it is. */
    exportsTraces:
      (get('OTEL_EXPORTER_OTLP_ENDPOINT') ?? get('OTEL_EXPORTER_OTLP_TRACES_ENDPOINT')) !== undefined &&
      get('OTEL_SDK_DISABLED')?.toLowerCase() !== 'true' &&
      /\botlp\b/.test(get('OTEL_TRACES_EXPORTER') ?? 'otlp'),
    /** Unset: each command has its own. */
    logLevel: get('LOG_LEVEL')?.toLowerCase(),
  };
}

/** This machine is never reached through a proxy. */
function proxyOf(url: string | undefined, except = ''): ProxySettings | undefined {
  if (url === undefined || except === '*') return undefined;
  return { url, except: [except, 'localhost', '127.0.0.1', '[::1]'].filter(Boolean).join(',') };
}

const withoutPrefix = (key: string) => key.replace(/^Api-Key\s+/i, '');

/**
 * Reads a secret's file now, which throws UsageError, and returns what reads it again. While it cannot be read, as in the
 * middle of a replacement, what was read last stays in use.
 */
function readAgain(file: string, check: Check): () => string {
  const read = () => {
    const text = readSecretFile(file);
    const fault = check(text);
    if (fault !== undefined) throw new UsageError(`${file}: ${fault}`);
    return text;
  };
  let last = read();
  return () => {
    try {
      last = read();
    } catch {
      // The service or the server says so when the secret is not valid any more.
    }
    return last;
  };
}

function findTlsFaults(env: NodeJS.ProcessEnv): string[] {
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

/**
 * Files with secrets that every user of this machine may read, as sentences: files of `…_FILE` settings, and `.env`.
 */
export function findExposedSecrets(envFile = '.env', env: NodeJS.ProcessEnv = process.env): string[] {
  const files = SECRETS.flatMap((name) => (env[name]?.trim() ? [] : [env[`${name}_FILE`]?.trim() ?? '']));
  if (existsSync(envFile) && holdsSecret(parseEnv(readTextFile(envFile)))) files.push(envFile);
  return files
    .filter((file) => file !== '' && isReadableByOthers(file))
    .map((file) => `${file} may be read by every user of this machine; chmod 600 it`);
}

function holdsSecret(settings: NodeJS.Dict<string>): boolean {
  return SECRETS.some((name) => {
    const text = settings[name]?.trim() ?? '';
    return /_DATABASE_URL$|^REDIS_URL$|_SMTP_URL$/.test(name)
      ? /^\w+:\/\/[^/]*:[^/]*@/.test(text)
      : text !== '';
  });
}

/**
 * The environment, with what the file adds to it: variables that are set already win. Without a name, `.env` of the
 * working directory is read if there is one. Throws UsageError when the file cannot be read or understood.
 */
export function readEnvironment(file?: string): NodeJS.ProcessEnv {
  if (file === undefined && !existsSync('.env')) return process.env;
  const text = readTextFile(file ?? '.env');
  const line = findUnreadableLine(text);
  if (line !== undefined)
    throw new UsageError(`${file ?? '.env'}: line ${line} is not NAME=value`, {
      remedy: 'Correct the line, or put # before it; .env.example shows the form.',
    });
  const settings = parseEnv(text);
  if (settings['NODE_EXTRA_CA_CERTS'] && process.env['NODE_EXTRA_CA_CERTS'] === undefined)
    throw new UsageError(`${file ?? '.env'}: NODE_EXTRA_CA_CERTS has no effect in a file of settings`, {
      remedy: 'Node reads it when it starts: set it in the environment, and remove it here.',
    });
  for (const [name, value] of Object.entries(settings)) process.env[name] ??= value;
  return process.env;
}

/** The number of the first line that Node would skip silently. */
function findUnreadableLine(text: string): number | undefined {
  // A value in quotes may continue over lines.
  const lines = text.replaceAll(/^[ \t]*#.*|=[ \t]*("[^"]*"|'[^']*'|`[^`]*`)/gm, (part) =>
    part.startsWith('=') ? `=${part.slice(1).replaceAll(/[^\n]/g, ' ')}` : part,
  );
  const at = lines
    .split('\n')
    .findIndex((line) => !/^\s*(#.*|(export\s+)?[A-Za-z_][\w.-]*\s*=.*)?\s*$/.test(line));
  return at < 0 ? undefined : at + 1;
}
