// Guarantee 9
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { inspect } from 'node:util';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { UsageError } from '../../src/errors.js';
import { loadSettings, readEnvironment, type Need } from '../../src/settings.js';

const ENV = {
  MIRROR_DATABASE_URL: 'postgres://reader@db/mirror',
  API_BASE_URL: 'https://api.example.org',
  API_KEY: 'k3y',
  API_ORGANIZATION_ID: '42',
};
const NEEDS: Need[] = ['mirror', 'state', 'api'];

function refusal(env: NodeJS.ProcessEnv, needs: readonly Need[] = NEEDS): UsageError {
  try {
    loadSettings(needs, env);
  } catch (error) {
    if (error instanceof UsageError) return error;
    throw error;
  }
  throw new Error('the settings were taken');
}

let folder: string;
beforeAll(() => void (folder = mkdtempSync(path.join(tmpdir(), 'settings-'))));
afterAll(() => rmSync(folder, { recursive: true }));

describe('settings that are complete', () => {
  it('are taken, with a default for everything that has one', () => {
    expect(loadSettings(NEEDS, ENV)).toEqual({
      mirrorUrl: ENV.MIRROR_DATABASE_URL,
      stateUrl: ENV.MIRROR_DATABASE_URL,
      redisUrl: undefined,
      api: { baseUrl: 'https://api.example.org', key: 'k3y', organizationId: '42', region: 'EU_EES' },
      requestsPerSecond: 20,
      configPath: undefined,
      httpPort: 0,
      logLevel: undefined,
    });
  });

  it('keep the state in the database they name, else in that of the mirror', () => {
    const stateUrl = 'postgresql://writer@other/state';
    expect(loadSettings(NEEDS, { ...ENV, STATE_DATABASE_URL: stateUrl }).stateUrl).toBe(stateUrl);
    expect(loadSettings(['state'], { STATE_DATABASE_URL: stateUrl })).toMatchObject({
      stateUrl,
      mirrorUrl: undefined,
    });
  });

  it('may be empty or blank, which is as if they were not set', () => {
    const blank = {
      STATE_DATABASE_URL: '',
      REDIS_URL: ' ',
      API_REGION: '',
      API_REQUESTS_PER_SECOND: '',
      LOG_LEVEL: ' ',
      HTTP_PORT: '',
    };
    expect(loadSettings(NEEDS, { ...ENV, ...blank })).toEqual(loadSettings(NEEDS, ENV));
  });

  it('need only what the command needs', () => {
    expect(loadSettings([], {})).toMatchObject({ mirrorUrl: undefined, stateUrl: undefined, api: undefined });
    expect(loadSettings(['mirror'], { MIRROR_DATABASE_URL: ENV.MIRROR_DATABASE_URL }).api).toBeUndefined();
  });

  it('have an address without a slash at its end', () => {
    expect(loadSettings(NEEDS, { ...ENV, API_BASE_URL: 'https://api.example.org//' }).api?.baseUrl).toBe(
      ENV.API_BASE_URL,
    );
  });
});

describe('the key', () => {
  const keyOf = (env: NodeJS.ProcessEnv) =>
    loadSettings(NEEDS, { ...ENV, API_KEY: undefined, ...env }).api?.key;
  const file = (name: string, text: string) => {
    writeFileSync(path.join(folder, name), text);
    return path.join(folder, name);
  };

  it.each(['k3y', 'Api-Key k3y', 'api-key  k3y', ' Api-Key k3y\n'])('%j is k3y', (key) => {
    expect(keyOf({ API_KEY: key })).toBe('k3y');
  });

  it('may lie in a file, with a line end and a prefix', () => {
    expect(keyOf({ API_KEY_FILE: file('key', 'Api-Key k3y\n') })).toBe('k3y');
  });

  it('of the environment wins over that of a file', () => {
    expect(keyOf({ API_KEY: 'k3y', API_KEY_FILE: file('other', 'another') })).toBe('k3y');
  });

  it.each([
    ['is not there', () => path.join(folder, 'nowhere'), 'cannot be read (ENOENT)'],
    ['is a folder', () => folder, 'cannot be read (EISDIR)'],
    ['is empty', () => file('empty', ' \n'), 'is empty'],
  ])('is refused when its file %s', (_, place, message) => {
    const at = place();
    const { faults } = refusal({ ...ENV, API_KEY: undefined, API_KEY_FILE: at });
    expect(faults).toEqual([`API_KEY_FILE: ${at} ${message}`]);
  });
});

describe('the address of the service', () => {
  it.each([
    'https://api.example.org',
    'http://localhost:8080',
    'http://127.0.0.1:8080',
    'http://[::1]:8080',
    'http://LOCALHOST',
  ])('%s may be used', (url) => {
    expect(loadSettings(NEEDS, { ...ENV, API_BASE_URL: url }).api?.baseUrl).toBe(url);
  });

  it.each([
    'http://api.example.org',
    'http://localhost.example.org',
    'http://notlocalhost',
    'http://127.0.0.1.example.org',
    'http://10.0.0.1',
  ])('%s would show the key to everyone on the way', (url) => {
    expect(refusal({ ...ENV, API_BASE_URL: url }).faults).toEqual([
      'API_BASE_URL: must be https: the key would be sent unencrypted',
    ]);
  });

  it.each(['api.example.org', 'ftp://api.example.org', 'localhost:8080'])('%s is none', (url) => {
    expect(refusal({ ...ENV, API_BASE_URL: url }).faults).toEqual([
      'API_BASE_URL: not a web address; write https://host',
    ]);
  });
});

describe('settings that cannot be used', () => {
  it('are all named at once: what is missing, and what is wrong', () => {
    const { message, faults, remedy } = refusal({
      STATE_DATABASE_URL: 'mysql://db/state',
      REDIS_URL: 'http://cache',
      API_BASE_URL: 'http://api.example.org',
      API_KEY_FILE: path.join(folder, 'nowhere'),
      API_REQUESTS_PER_SECOND: '0',
      HTTP_PORT: 'eighty',
      LOG_LEVEL: 'loud',
    });
    expect(message).toBe('the settings cannot be used');
    expect(faults.map((fault) => /^\w+/.exec(fault)?.[0] ?? fault).toSorted()).toEqual([
      'API_BASE_URL',
      'API_KEY_FILE',
      'API_ORGANIZATION_ID',
      'API_REQUESTS_PER_SECOND',
      'HTTP_PORT',
      'LOG_LEVEL',
      'MIRROR_DATABASE_URL',
      'REDIS_URL',
      'STATE_DATABASE_URL',
    ]);
    expect(remedy).toContain('.env');
  });

  it('are named each with what to write', () => {
    expect(refusal({}).faults).toEqual([
      'MIRROR_DATABASE_URL is not set: the database to read from, postgres://user:password@host:5432/database',
      'STATE_DATABASE_URL is not set (nor MIRROR_DATABASE_URL, its default): the database slotsync keeps its state in',
      "API_BASE_URL is not set: the service's address, https://…",
      'API_KEY is not set (nor API_KEY_FILE): the organization’s key at the service',
      'API_ORGANIZATION_ID is not set: the organization’s id at the service',
    ]);
  });

  it.each([
    ['API_REQUESTS_PER_SECOND', '1.5', 'a whole number from 1 to 1000'],
    ['API_REQUESTS_PER_SECOND', '1001', 'a whole number from 1 to 1000'],
    ['API_REQUESTS_PER_SECOND', 'twenty', 'a whole number from 1 to 1000'],
    ['HTTP_PORT', '65536', 'a whole number from 0 to 65535'],
    ['LOG_LEVEL', 'verbose', 'fatal, error, warn, info, debug, trace or silent'],
    ['REDIS_URL', 'cache:6379', 'not a Redis address; write redis://host:6379'],
    [
      'MIRROR_DATABASE_URL',
      'db/mirror',
      'not a PostgreSQL address; write postgres://user:password@host:5432/database',
    ],
  ])('such as %s=%s', (name, value, message) => {
    expect(refusal({ ...ENV, [name]: value }).faults).toEqual([
      expect.stringContaining(`${name}: ${message}`),
    ]);
  });

  it('show no secret, wherever it stands', () => {
    const secret = 'S3CRET';
    writeFileSync(path.join(folder, 'secret'), `Api-Key ${secret}`);
    const wrong: NodeJS.ProcessEnv[] = [
      { MIRROR_DATABASE_URL: `mysql://reader:${secret}@db/mirror` },
      { MIRROR_DATABASE_URL: `reader:${secret}@db` },
      { STATE_DATABASE_URL: `postgres://writer:${secret}@db:port/state` },
      { REDIS_URL: `http://:${secret}@cache` },
      { API_BASE_URL: `http://user:${secret}@api.example.org` },
      { API_BASE_URL: `user:${secret}` },
      { API_KEY: secret, API_ORGANIZATION_ID: undefined },
      { API_KEY_FILE: path.join(folder, 'secret'), API_KEY: undefined, API_ORGANIZATION_ID: undefined },
      { API_KEY: secret, HTTP_PORT: 'eighty' },
    ];
    for (const env of wrong) {
      const error = refusal({ ...ENV, ...env });
      expect(error.faults.length).toBeGreaterThan(0);
      expect(inspect(error, { depth: Infinity, showHidden: true })).not.toContain(secret);
    }
  });
});

describe('the file .env', () => {
  const NAMES = [...Object.keys(ENV), 'API_KEY_FILE', 'STATE_DATABASE_URL', 'REDIS_URL', 'LOG_LEVEL'];
  const before = { folder: process.cwd(), env: { ...process.env } };

  beforeEach(() => {
    for (const name of NAMES) delete process.env[name];
    process.chdir(mkdtempSync(path.join(folder, 'env-')));
  });
  afterEach(() => {
    process.chdir(before.folder);
    for (const name of NAMES) {
      if (before.env[name] === undefined) delete process.env[name];
      else process.env[name] = before.env[name];
    }
  });

  const write = (values: Record<string, string>) =>
    writeFileSync(
      '.env',
      Object.entries(values)
        .map(([name, value]) => `${name}=${value}\n`)
        .join(''),
    );

  it('is read', () => {
    write(ENV);
    expect(loadSettings(NEEDS)).toEqual(loadSettings(NEEDS, ENV));
  });

  it('yields to the environment', () => {
    write({ ...ENV, LOG_LEVEL: 'debug' });
    process.env['API_KEY'] = 'from-environment';
    expect(loadSettings(NEEDS)).toMatchObject({ api: { key: 'from-environment' }, logLevel: 'debug' });
  });

  it('need not be there', () => {
    Object.assign(process.env, ENV);
    expect(loadSettings(NEEDS).mirrorUrl).toBe(ENV.MIRROR_DATABASE_URL);
  });

  it('gives way to the file that is named, which must exist', () => {
    write({ ...ENV, LOG_LEVEL: 'debug' });
    writeFileSync('other.env', 'LOG_LEVEL=trace\nAPI_ORGANIZATION_ID=7\n');
    expect(loadSettings([], readEnvironment('other.env'))).toMatchObject({
      mirrorUrl: undefined,
      logLevel: 'trace',
    });
    expect(() => readEnvironment('nowhere.env')).toThrow('nowhere.env cannot be read (ENOENT)');
  });

  it('that is there and cannot be read is a fault', () => {
    mkdirSync('.env');
    expect(() => loadSettings([])).toThrow(UsageError);
  });
});
