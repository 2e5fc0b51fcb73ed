// Guarantee 9
import { execFileSync, spawn } from 'node:child_process';
import { chmodSync, chownSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { inspect } from 'node:util';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { currentText } from '../../src/config/setting-text.js';
import {
  findExposedSecrets,
  findForeignFiles,
  findMisspelledSettings,
  readEnvironment,
} from '../../src/config/environment.js';
import { loadSettings, type Need } from '../../src/config/settings.js';
import { createFolder } from '../support/folders.js';
import { refusalOf } from './declare.js';

const ENV = {
  MIRROR_DATABASE_URL: 'postgres://reader@db/mirror',
  API_BASE_URL: 'https://api.example.org',
  API_KEY: 'k3y',
  API_ORGANIZATION_ID: '42',
};
const NEEDS: Need[] = ['mirror', 'state', 'api'];

const refusal = (env: NodeJS.ProcessEnv, needs: readonly Need[] = NEEDS) =>
  refusalOf(() => loadSettings(needs, env));

const folder = createFolder('settings');
function pipe(): string {
  const at = path.join(folder, 'pipe');
  rmSync(at, { force: true });
  execFileSync('mkfifo', [at]);
  return at;
}

describe('complete settings', () => {
  it('are read, with a default for each setting that has one', () => {
    expect(loadSettings(NEEDS, ENV)).toEqual({
      mirrorUrl: ENV.MIRROR_DATABASE_URL,
      stateUrl: ENV.MIRROR_DATABASE_URL,
      redisUrl: undefined,
      api: { baseUrl: 'https://api.example.org', key: 'k3y', organizationId: '42', region: 'EU_EES' },
      requestsPerSecond: 20,
      mirrorStatementSeconds: 1800,
      stateStatementSeconds: 600,
      configPath: undefined,
      httpPort: 0,
      httpHost: '127.0.0.1',
      httpToken: undefined,
      httpSignIn: 'elsewhere',
      httpTrustedProxies: undefined,
      alerts: {},
      proxy: undefined,
      timeZone: undefined,
      exportsTraces: false,
      logLevel: undefined,
    });
  });

  it('keep the state in STATE_DATABASE_URL, or else in the database of the mirror', () => {
    const stateUrl = 'postgresql://writer@other/state';
    expect(loadSettings(NEEDS, { ...ENV, STATE_DATABASE_URL: stateUrl }).stateUrl).toBe(stateUrl);
    const { mirrorUrl, ...read } = loadSettings(['state'], { STATE_DATABASE_URL: stateUrl });
    expect([mirrorUrl, read.stateUrl]).toEqual([undefined, stateUrl]);
  });

  it('count as unset when they are empty or blank', () => {
    const blank = { STATE_DATABASE_URL: '', REDIS_URL: ' ', API_REGION: '', LOG_LEVEL: ' ', HTTP_PORT: '' };
    expect(loadSettings(NEEDS, { ...ENV, ...blank })).toEqual(loadSettings(NEEDS, ENV));
  });

  it('are required only if the command needs them', () => {
    expect(loadSettings([], {})).toMatchObject({ mirrorUrl: undefined, stateUrl: undefined, api: undefined });
    expect(loadSettings(['mirror'], { MIRROR_DATABASE_URL: ENV.MIRROR_DATABASE_URL }).api).toBeUndefined();
  });

  it('lose the slashes at the end of an address', () => {
    expect(loadSettings(NEEDS, { ...ENV, API_BASE_URL: 'https://api.example.org//' }).api?.baseUrl).toBe(
      ENV.API_BASE_URL,
    );
  });
});

describe('the API key', () => {
  it.each(['k3y', 'Api-Key k3y', 'api-key  k3y', ' Api-Key k3y\n'])(
    'is read without its scheme from %j',
    (key) => {
      expect(loadSettings(NEEDS, { ...ENV, API_KEY: key }).api?.key).toBe('k3y');
    },
  );
});

describe('a secret in a file', () => {
  const file = (name: string, text: string | Buffer, mode = 0o600) => {
    writeFileSync(path.join(folder, name), text, { mode });
    return path.join(folder, name);
  };
  const DATABASE = 'postgres://reader:pass@db/mirror';
  /** Name of the setting, text of its file, and the value that is read. */
  const SECRETS = [
    ['MIRROR_DATABASE_URL', DATABASE, DATABASE],
    ['STATE_DATABASE_URL', DATABASE, DATABASE],
    ['REDIS_URL', 'redis://:pass@cache:6379', 'redis://:pass@cache:6379'],
    ['API_KEY', 'Api-Key k3y', 'k3y'],
  ] as const;
  const read = (name: string, env: NodeJS.ProcessEnv) => {
    const { mirrorUrl, stateUrl, redisUrl, api } = loadSettings(NEEDS, { ...ENV, ...env });
    return [mirrorUrl, stateUrl, redisUrl, api?.key][SECRETS.findIndex(([known]) => known === name)];
  };

  it.each(SECRETS)(
    'is read again each time, without byte order mark and line end: %s',
    (name, text, expected) => {
      const at = file(`${name}-1`, `\uFEFF${text}\r\n`);
      const setting = read(name, { [name]: undefined, [`${name}_FILE`]: at });
      expect(setting && currentText(setting)).toBe(expected);
      const [rotated, then] = [text, expected].map((one) =>
        one.replace('pass', 'next').replace('k3y', 'next'),
      );
      writeFileSync(at, rotated ?? '');
      expect(setting && currentText(setting)).toBe(then);
      // As in the middle of a replacement.
      for (const spoil of [() => writeFileSync(at, ''), () => rmSync(at)]) {
        spoil();
        expect(setting && currentText(setting)).toBe(then);
      }
    },
  );

  it.each(SECRETS)('is not read when the setting itself is set: %s', (name, text, expected) => {
    expect(read(name, { [name]: text, [`${name}_FILE`]: path.join(folder, 'nowhere') })).toBe(expected);
  });

  it.each([
    ['does not exist', () => path.join(folder, 'nowhere'), 'cannot be read (ENOENT)'],
    ['is a folder', () => folder, 'is a folder'],
    ['is a pipe', () => pipe(), 'is a pipe or a device, not a file'],
    ['is a device', () => '/dev/zero', 'is a pipe or a device, not a file'],
    ['is too large', () => file('large', 'x'.repeat(1024 * 1024 + 1)), 'is larger than 1 MB'],
    ['is empty', () => file('empty', '\uFEFF \n'), 'is empty'],
    ['holds two lines', () => file('two', 'S3CRET\nS3CRET'), 'contains more than one line'],
    ['is UTF-16', () => file('utf16', Buffer.from('\uFEFFS3CRET', 'utf16le')), 'is not UTF-8 text'],
  ])('is refused when the file %s', (_, place, message) => {
    for (const [name] of SECRETS) {
      const at = place();
      const { faults } = refusal({ ...ENV, [name]: undefined, [`${name}_FILE`]: at });
      expect(faults).toEqual([`${name}_FILE: ${at} ${message}`]);
    }
  });

  it('is refused with its fault, without being shown', () => {
    const at = file('wrong', 'postgres://reader:S3%CRET@db/mirror');
    const { faults } = refusal({ ...ENV, MIRROR_DATABASE_URL: undefined, MIRROR_DATABASE_URL_FILE: at });
    expect(faults).toEqual([
      expect.stringMatching(/^MIRROR_DATABASE_URL_FILE: \/.*wrong: contains a % that is not percent-encoded/),
    ]);
    // The folder's name is random, and may hold S3.
    expect(faults[0]).not.toMatch(/S3%|CRET/);
  });

  it('is reported as exposed when every user may read its file or the file of settings', () => {
    const [own, everyones] = [file('own', 'k3y'), file('everyones', 'k3y', 0o644)];
    const exposed = (...given: Parameters<typeof findExposedSecrets>) =>
      findExposedSecrets(...given).map(
        (text) => /\/([^/ ]+) can be read by every user.*chmod 600/.exec(text)?.[1],
      );
    expect(exposed(own, { API_KEY_FILE: everyones, REDIS_URL_FILE: own })).toEqual(['everyones']);
    expect(exposed(own, { API_KEY: 'k3y', API_KEY_FILE: everyones })).toEqual([]);
    const settings = {
      plain: `LOG_LEVEL=info\nMIRROR_DATABASE_URL=${ENV.MIRROR_DATABASE_URL}\n`,
      password: `REDIS_URL=redis://:pass@cache\n`,
      key: 'API_KEY=k3y\n',
    };
    for (const [name, text] of Object.entries(settings)) file(name, text, 0o644);
    expect(Object.keys(settings).flatMap((name) => exposed(path.join(folder, name), {}))).toEqual([
      'password',
      'key',
    ]);
  });
});

describe('the address of the service', () => {
  const HTTPS = 'must be https: the key would be sent unencrypted';
  const ADDRESS = 'not a web address; write https://host';
  it.each<[url: string, fault?: string]>([
    ['https://api.example.org'],
    ['http://localhost:8080'],
    ['http://127.0.0.1:8080'],
    ['http://[::1]:8080'],
    ['http://LOCALHOST'],
    ['http://api.example.org', HTTPS],
    ['http://localhost.example.org', HTTPS],
    ['http://notlocalhost', HTTPS],
    ['http://127.0.0.1.example.org', HTTPS],
    ['http://10.0.0.1', HTTPS],
    ['api.example.org', ADDRESS],
    ['ftp://api.example.org', ADDRESS],
    ['localhost:8080', ADDRESS],
  ])('is accepted or refused: %s', (url, fault) => {
    const env = { ...ENV, API_BASE_URL: url };
    if (fault) expect(refusal(env).faults).toEqual([`API_BASE_URL: ${fault}`]);
    else expect(loadSettings(NEEDS, env).api?.baseUrl).toBe(url);
  });
});

describe('the settings of the page', () => {
  it('require a token if everybody has to sign in', () => {
    const faults = [
      'HTTP_TOKEN is not set: with HTTP_SIGN_IN=always everybody signs in with it; create one, for example from: openssl rand -hex 24',
    ];
    expect(refusal({ ...ENV, HTTP_SIGN_IN: 'always' }).faults).toEqual(faults);
    const HTTP_TOKEN = 'correct-horse-battery';
    expect(loadSettings([], { HTTP_SIGN_IN: 'always', HTTP_TOKEN }).httpSignIn).toBe('always');
    expect(refusal({ ...ENV, HTTP_SIGN_IN: 'never' }).faults).toEqual(['HTTP_SIGN_IN: elsewhere or always']);
  });

  it.each(['10.0.0.7', '10.0.0.7, 10.1.0.0/16,fd00::/8', '::1'])('accept trusted proxies: %s', (text) => {
    expect(loadSettings([], { HTTP_TRUSTED_PROXIES: text }).httpTrustedProxies).toBe(text);
  });

  it.each(['proxy.example', '10.0.0.0/33', '10.0.0.0/', '::1/129', '1.2.3.4/8/8'])(
    'refuse trusted proxies: %s',
    (text) => {
      expect(refusal({ ...ENV, HTTP_TRUSTED_PROXIES: text }).faults).toEqual([
        `HTTP_TRUSTED_PROXIES: ${text} is no address or network; write 10.0.0.7, 10.1.0.0/16 or fd00::/8, separated by commas`,
      ]);
    },
  );
});

describe('the proxy for requests to the service', () => {
  const proxyOf = (env: NodeJS.ProcessEnv) => loadSettings(NEEDS, { ...ENV, ...env }).api?.proxy;
  const url = 'http://user:p%40ss@proxy:3128';

  it('is HTTPS_PROXY, except for NO_PROXY and this machine, and lower case wins', () => {
    const except = 'localhost,127.0.0.1,[::1]';
    expect(proxyOf({ HTTPS_PROXY: url })).toEqual({ url, except });
    expect(proxyOf({ https_proxy: url, HTTPS_PROXY: 'http://other:1', NO_PROXY: 'a.b' })).toEqual({
      url,
      except: `a.b,${except}`,
    });
    expect(proxyOf({ HTTPS_PROXY: url, no_proxy: '*' })).toBeUndefined();
    expect(proxyOf({ HTTPS_PROXY: ' ', HTTP_PROXY: url })).toBeUndefined();
  });

  it.each([
    ['proxy:3128', 'not the address of a proxy; write http://host:3128'],
    ['socks5://proxy:1080', 'not the address of a proxy; write http://host:3128'],
    ['http://proxy:3128/pac', 'contains a path, ? or #; write http://host:3128'],
    ['http://user@proxy:3128', 'has a user without a password, or a password without a user'],
    ['http://user:50%@proxy:3128', 'contains a % in user or password that is not percent-encoded; write %25'],
  ])('is refused with its fault: %s', (text, fault) => {
    expect(refusal({ ...ENV, https_proxy: text }).faults).toEqual([`HTTPS_PROXY: ${fault}`]);
  });
});

describe('settings that cannot be used', () => {
  it('are all reported at once', () => {
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
    const names = faults.map((fault) => /^\w+/.exec(fault)?.[0] ?? '');
    expect(names.toSorted().join(' ')).toBe(
      'API_BASE_URL API_KEY_FILE API_ORGANIZATION_ID API_REQUESTS_PER_SECOND HTTP_PORT LOG_LEVEL ' +
        'MIRROR_DATABASE_URL REDIS_URL STATE_DATABASE_URL',
    );
    expect(remedy).toContain('.env');
  });

  it('are each reported with the value to write', () => {
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
    ['HTTP_HOST', 'http://localhost', 'only the address of this machine, such as 127.0.0.1 or ::1'],
    ['ALERT_WEBHOOK_SECRET', 'a secret of enough length', 'must be whsec_ followed by 24 to 64 bytes'],
    ['ALERT_WEBHOOK_SECRET', `whsec_${'A'.repeat(28)}`, 'must be whsec_ followed by 24 to 64 bytes'],
    ['ALERT_WEBHOOK_SECRET', `whsec_${'A'.repeat(88)}`, 'must be whsec_ followed by 24 to 64 bytes'],
    ['HTTP_TOKEN', 'short', 'has 5 characters; use at least 16, for example from: openssl rand -hex 24'],
    ['TIMEZONE', 'Sweden/Lund', 'not a time zone; write its name, such as Europe/Stockholm or UTC'],
    ['HTTP_PORT', '65536', 'a whole number from 0 to 65535'],
    ['LOG_LEVEL', 'verbose', 'fatal, error, warn, info, debug, trace or silent'],
    ['REDIS_URL', 'cache:6379', 'not a Redis address; write redis://user:password@host:6379'],
    [
      'MIRROR_DATABASE_URL',
      'db/mirror',
      'not a PostgreSQL address; write postgres://user:password@host:5432/',
    ],
  ])('are refused: %s=%s', (name, value, message) => {
    expect(refusal({ ...ENV, [name]: value }).faults).toEqual([
      expect.stringContaining(`${name}: ${message}`),
    ]);
  });

  it('are reported without any secret', () => {
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
  const before = { folder: process.cwd(), env: process.env };
  beforeEach(() => {
    process.env = { PATH: before.env['PATH'] };
    process.chdir(mkdtempSync(path.join(folder, 'env-')));
  });
  afterEach(() => {
    vi.restoreAllMocks();
    process.chdir(before.folder);
    process.env = before.env;
  });

  const write = (values: Record<string, string>) => {
    const lines = Object.entries(values).map(([name, value]) => `${name}=${value}\n`);
    writeFileSync('.env', lines.join(''));
  };

  it('is read by default', () => {
    write(ENV);
    expect(loadSettings(NEEDS, readEnvironment())).toEqual(loadSettings(NEEDS, ENV));
  });

  it('yields to the environment', () => {
    write({ ...ENV, LOG_LEVEL: 'debug' });
    process.env['API_KEY'] = 'from-environment';
    expect(loadSettings(NEEDS, readEnvironment())).toMatchObject({
      api: { key: 'from-environment' },
      logLevel: 'debug',
    });
  });

  it('need not exist', () => {
    Object.assign(process.env, ENV);
    expect(loadSettings(NEEDS, readEnvironment()).mirrorUrl).toBe(ENV.MIRROR_DATABASE_URL);
  });

  it('is replaced by the file that is named, which must exist', () => {
    write({ ...ENV, LOG_LEVEL: 'debug' });
    writeFileSync('other.env', 'LOG_LEVEL=trace\nAPI_ORGANIZATION_ID=7\n');
    expect(loadSettings([], readEnvironment('other.env'))).toMatchObject({
      mirrorUrl: undefined,
      logLevel: 'trace',
    });
    expect(() => readEnvironment('nowhere.env')).toThrow(/^the settings file .*nowhere\.env does not exist$/);
  });

  it('is refused at once when it is a pipe, but a named pipe is read to its end', () => {
    execFileSync('mkfifo', ['.env']);
    expect(() => readEnvironment()).toThrow('.env is a pipe or a device, not a file');
    expect(findExposedSecrets('.env', {})).toEqual([]);
    const writer = spawn('sh', ['-c', 'echo LOG_LEVEL=trace > .env']);
    expect(loadSettings([], readEnvironment('.env')).logLevel).toBe('trace');
    writer.kill();
  });

  describe('the file .env with rights of other users', () => {
    interface Rights {
      uid?: number;
      gid?: number;
      mode?: number;
      folder?: number;
      /** The user of the process. */
      user?: number;
    }
    it.each<[string, Rights, RegExp | undefined]>([
      ['another user owns it', { uid: 42 }, /user 42 owns the file. .*chown 0 \.env/],
      ['its group may write it', { uid: 0, gid: 0, mode: 0o660 }, /other users can write .*chmod go-w/],
      ['everybody may write it', { mode: 0o602 }, /other users can write to the file. .*chmod go-w/],
      ['everybody may replace it', { folder: 0o777 }, /every user can replace the file. .*chmod o-w \./],
      ['a group of several users may write it', { uid: 42, gid: 43, mode: 0o660, user: 42 }, /other users/],
      ['a group of its owner alone may', { uid: 42, gid: 42, mode: 0o660, user: 42 }, undefined],
      ['its folder is one such as /tmp', { folder: 0o1777 }, undefined],
    ])(
      'is refused or loaded: %s',
      (_, { uid, gid = 0, mode = 0o600, folder: rights = 0o700, user = 0 }, refusal) => {
        if (uid !== undefined && process.getuid?.() !== 0) return; // nobody else chowns
        write(ENV);
        if (uid !== undefined) {
          chownSync('.env', uid, gid);
          vi.spyOn(process, 'geteuid').mockReturnValue(user);
        }
        chmodSync('.env', mode);
        chmodSync('.', rights);
        expect(() => readEnvironment('.env')).not.toThrow();
        const warnings = findForeignFiles(['.env', undefined]);
        expect(warnings).toEqual(
          refusal ? [expect.stringContaining('.env is loaded because you named it')] : [],
        );
        if (!refusal) {
          expect(() => readEnvironment()).not.toThrow();
          return;
        }
        const error = refusalOf(() => readEnvironment());
        expect(`${error.message}. ${error.remedy}`).toMatch(refusal);
        expect(error.remedy).toContain('name it: --settings .env');
      },
    );
  });

  it.each([
    ['a line of another syntax', 'LOG_LEVEL=info\r\nAPI_KEY: k3y\n', '.env: line 2 is not NAME=value'],
    ['a name alone', '# see the docs\n\nAPI_KEY\n', '.env: line 3 is not NAME=value'],
    [
      'authorities that Node ignores',
      'NODE_EXTRA_CA_CERTS=/ca.pem',
      '.env: NODE_EXTRA_CA_CERTS has no effect',
    ],
    ['UTF-16', Buffer.from('API_KEY=k3y\n', 'utf16le'), '.env is not UTF-8 text'],
  ])('is refused with %s', (_, text, message) => {
    writeFileSync('.env', text);
    expect(() => loadSettings([], readEnvironment())).toThrow(message);
  });

  it('may hold comments, quotes over lines, blanks, and a byte order mark', () => {
    writeFileSync(
      '.env',
      `\uFEFFAPI_ORGANIZATION_ID=7 # the test one\n# it's ="so\n  export LOG_LEVEL = "trace"\n\nSTATE_DATABASE_PASSWORD="a\nb: c\n" # two\nREDIS_URL='redis://cache'\r\n`,
    );
    expect(loadSettings([], readEnvironment())).toMatchObject({
      logLevel: 'trace',
      redisUrl: 'redis://cache',
    });
    expect(process.env['API_ORGANIZATION_ID']).toBe('7');
  });

  it('is refused when it exists but cannot be read', () => {
    mkdirSync('.env');
    expect(() => loadSettings([], readEnvironment())).toThrow('.env is a folder');
  });

  it.each<[string, Record<string, string>, NodeJS.ProcessEnv, string[]]>([
    ['a letter is missing', { API_REGIO: 'EU' }, {}, ['API_REGIO', 'API_REGION']],
    ['it is in lower case', { api_region: 'EU' }, {}, ['api_region', 'API_REGION']],
    ['it has our prefix', { SLOTSYNC_LOG_LEVEL: 'info' }, {}, ['SLOTSYNC_LOG_LEVEL', 'LOG_LEVEL']],
    ['the environment has it', {}, { HTTP_PROT: '80' }, ['HTTP_PROT', 'HTTP_PORT']],
    ['other programs have it', { REDIS_PASSWORD: 'p', API_URL: 'u', HTTP_PROXY: 'x', no_proxy: 'y' }, {}, []],
    ['the environment has one without our prefix', {}, { LOGLEVEL: 'info' }, []],
    ['the setting it resembles is set', { APP_KEY: 'k', API_KEY: 'k3y' }, {}, []],
  ])('is searched for a misspelled setting: %s', (_, values, env, [name, meant]) => {
    write(values);
    const expected =
      name === undefined ? [] : [`${name} is no setting and has no effect; did you mean ${meant}?`];
    expect(findMisspelledSettings('.env', { ...values, ...env })).toEqual(expected);
  });
});
