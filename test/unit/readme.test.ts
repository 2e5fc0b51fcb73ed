// README, docs and .env.example name what exists: every command, setting and configuration key, and no other.
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { loadSettings, SETTING_NAMES } from '../../src/config/settings.js';
import { configSchema } from '../../src/streams/config-schema.js';

const root = fileURLToPath(new URL('../../', import.meta.url));
const read = (file: string) => readFileSync(path.join(root, file), 'utf8');
const docs = readdirSync(`${root}docs`)
  .filter((file) => file.endsWith('.md'))
  .map((file) => `docs/${file}`);
const examples = readdirSync(`${root}examples`, { recursive: true, encoding: 'utf8' })
  .filter((file) => file.endsWith('.md'))
  .map((file) => `examples/${file.replaceAll(path.sep, '/')}`);
const pages = ['README.md', ...docs, ...examples];

const commandFiles = readdirSync(`${root}src/commands`).map((file) => read(`src/commands/${file}`));
const commands = commandFiles.flatMap((source) =>
  [...source.matchAll(/\.command\('([\w-]+)'\)/g)].map(([, name = '']) => name),
);
const options = new Set(
  commandFiles.flatMap((source) =>
    [...source.matchAll(/'(?:-\w, )?(--[\w-]+)(?:, (--[\w-]+))?[ ']/g)].flatMap(([, ...names]) => names),
  ),
);

/** Returns the rows of the tables of a page, as cells. */
function rows(page: string): string[][] {
  return [...read(page).matchAll(/^\|(.+)\|$/gm)]
    .map(([, row = '']) => row.split('|').map((cell) => cell.trim()))
    .filter((cells) => cells.some((cell) => cell.startsWith('`')));
}

/** Returns the anchor of a heading at GitHub. */
const anchorOf = (heading: string) =>
  heading
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N} _-]/gu, '')
    .replaceAll(' ', '-');

const anchorsOf = (page: string) =>
  [...read(page).matchAll(/^#+ (.+)$/gm)].map(([, text = '']) => anchorOf(text));

describe('the pages of docs', () => {
  it('list exactly the commands that exist', () => {
    const named = rows('docs/commands.md').map(([, command = '']) => /`([\w-]+)/.exec(command)?.[1] ?? '');
    expect(named.toSorted()).toEqual(commands.toSorted());
  });

  it('begin with the two commands that do all the set-up', () => {
    expect(read('README.md')).toMatch(/```sh\nnpm ci && npm run demo .*\nnpm ci && npm test .*\n```/);
  });

  it('say what every command needs', () => {
    const [, needs = ''] = read('docs/settings.md').split('## Which command needs what');
    const named = [...needs.matchAll(/^\|([^|]+)/gm)].flatMap(
      ([, cell = '']) => cell.match(/(?<=`)[a-z-]+(?=`)/g) ?? [],
    );
    expect(named.toSorted()).toEqual(commands.toSorted());
  });

  it('list exactly the settings that exist', () => {
    const named = rows('docs/settings.md').flatMap(([setting = '']) =>
      [...setting.matchAll(/`([A-Z_]+)`/g)].map(([, name = '']) => name),
    );
    expect(named.toSorted()).toEqual(SETTING_NAMES.toSorted());
  });

  it('are all linked from docs/README.md', () => {
    const index = read('docs/README.md');
    for (const page of docs.filter((page) => page !== 'docs/README.md'))
      expect(index, page).toContain(`](${path.basename(page)})`);
  });
});

const files = readdirSync(root, { recursive: true, encoding: 'utf8' })
  .map((file) => file.replaceAll(path.sep, '/'))
  .filter((file) => !/(^|\/)(node_modules|dist[^/]*|\.git)\//.test(file));

it.each(['CONTRIBUTING.md', ...pages])('names only source files that exist: %s', (page) => {
  const named = [...read(page).matchAll(/`((?:[\w.-]+\/)*[\w.-]+\.(?:ts|mjs|lua))`/g)].map(
    ([, name = '']) => name,
  );
  expect(named.filter((name) => !files.some((file) => `/${file}`.endsWith(`/${name}`)))).toEqual([]);
});

describe.each(pages)('%s', (page) => {
  const text = read(page);

  it('names only commands that exist', () => {
    const named = [
      ...text.matchAll(
        /(?:^|`|npx |: |\| )(?:slotsync|node dist\/cli\.js|docker compose run --rm -T worker) ([a-z][\w-]*)/gm,
      ),
    ]
      // Prose names the program too: only code counts.
      .filter(({ 0: match, index }) => isCode(text, index + match.length))
      .map(([, name = '']) => name);
    expect(named.filter((name) => !commands.includes(name))).toEqual([]);
  });

  it('names only options that exist', () => {
    const named = [...text.matchAll(/(?:^|[\s`(])(--[a-z][\w-]+)/gm)]
      .filter(({ index }) => isCode(text, index + 1))
      .filter(({ index }) => !/(?:npm|docker|kubectl|redis-server|git) .*$/.test(lineUpTo(text, index)))
      .map(([, name = '']) => name);
    expect(named.filter((name) => !options.has(name) && !['--help', '--version'].includes(name))).toEqual([]);
  });
});

/** All pages of the repository, also those of tests and benchmarks. */
const allPages = files.filter((file) => file.endsWith('.md'));

describe.each(allPages)('%s', (page) => {
  it('links only to files and headings that exist', () => {
    const text = read(page);
    for (const [, link = '', anchor] of text.matchAll(/\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)]+))?\)/g)) {
      const target = link === '' ? page : path.join(path.dirname(page), link);
      expect(existsSync(path.join(root, target)), `${link} of ${page}`).toBe(true);
      if (anchor !== undefined) expect(anchorsOf(target), `#${anchor} of ${page}`).toContain(anchor);
    }
    // A link that is named after a page leads to that page.
    for (const [, name = '', link = ''] of text.matchAll(/\[([\w./-]+\.md)\]\(([^)#\s]+)/g))
      expect(path.basename(link), `${name} of ${page}`).toBe(path.basename(name));
    for (const [, image = ''] of text.matchAll(/<img src="([^"]+)"/g))
      expect(existsSync(path.join(root, path.dirname(page), image)), `${image} of ${page}`).toBe(true);
  });
});

describe('docs/configuration.md', () => {
  const configuration = read('docs/configuration.md');
  /** Keys that are shown with the key that they belong to. */
  const inExamples = (
    'query table columns stream count percent retire update create overwrite case trim normalize maxLength refused ' +
    'pastDays futureDays add ifNull'
  ).split(' ');
  const schema = z.toJSONSchema(configSchema, { io: 'input', unrepresentable: 'any' });

  it('has a row with an example for every key', () => {
    const keys = keysOf(schema);
    expect(keys.size).toBeGreaterThan(40);
    const inTables = [...configuration.matchAll(/^\| `(\w+)` +\|[^|]*\| +`/gm)].map(([, key]) => key);
    for (const key of keys) {
      if (inExamples.includes(key)) expect(configuration).toMatch(new RegExp(`\\b${key}: `));
      else expect(inTables).toContain(key);
    }
  });

  it('has the default of every key that has one', () => {
    const written = (value: unknown) => (typeof value === 'string' ? `'${value}'` : String(value));
    const defaults = defaultsOf(schema).map(([key, value]) => [key, written(value)] as const);
    expect(defaults.length).toBeGreaterThan(20);
    for (const [key, value] of defaults) {
      if (inExamples.includes(key)) continue;
      const row = new RegExp(`^\\| \`${key}\` +\\| ([^|]*[^| ]) +\\|`, 'gm');
      const inTables = [...configuration.matchAll(row)].map(([, cell]) => cell);
      expect(inTables, key).toContain(`\`${value}\``);
    }
  });
});

describe('settings', () => {
  const API = { API_BASE_URL: 'https://service.example', API_KEY: 'key', API_ORGANIZATION_ID: '1' };
  const { api, ...settings } = loadSettings([], API);
  const defaults = {
    API_REGION: api?.region,
    API_REQUESTS_PER_SECOND: settings.requestsPerSecond,
    MIRROR_STATEMENT_SECONDS: settings.mirrorStatementSeconds,
    STATE_STATEMENT_SECONDS: settings.stateStatementSeconds,
    HTTP_PORT: settings.httpPort,
    HTTP_HOST: settings.httpHost,
    HTTP_SIGN_IN: settings.httpSignIn,
  };

  it.each(Object.entries(defaults))('have the default of the program in both lists: %s', (name, value) => {
    expect(read('docs/settings.md')).toMatch(new RegExp(`^\\| \`${name}\` +\\| \`${value}\` `, 'm'));
    expect(read('.env.example')).toContain(`#${name}=${value}\n`);
  });

  it('are all in the list of connections of docs/security.md if they are addresses', () => {
    const network = read('docs/security.md').split('\n## Network\n')[1]?.split('\n## ')[0] ?? '';
    const addresses = SETTING_NAMES.filter((name) => /(?<!NO)_(?:URL|ENDPOINT|PROXY)$/.test(name));
    expect(addresses.length).toBeGreaterThan(8);
    for (const name of addresses)
      expect(network.replaceAll('`…_TRACES', '`OTEL_EXPORTER_OTLP_TRACES')).toContain(`\`${name}\``);
  });

  it('reach the containers of docker-compose.yml, which sets only settings that exist', () => {
    const [shared = '', services = ''] = read('docker-compose.yml').split(/^services:$/m);
    expect(shared).toMatch(/^ {2}env_file: \.env$/m);
    expect(services).not.toContain('env_file');
    const [worker = ''] = /^ {2}worker:$[^]*?(?=^\w)/m.exec(services) ?? [];
    const named = [...`${shared}${worker}`.matchAll(/^ +([A-Z_]+): /gm)].map(([, name = '']) => name);
    expect(named.length).toBeGreaterThan(5);
    expect(SETTING_NAMES).toEqual(expect.arrayContaining(named));
    expect(named).toEqual(expect.arrayContaining(['STATE_DATABASE_URL', 'REDIS_URL', 'SLOTSYNC_CONFIG']));
  });

  it('reach the service of the systemd unit, which sets only settings that exist', () => {
    const unit = read('examples/systemd/slotsync-worker.service');
    expect(unit).toMatch(/^EnvironmentFile=\S+$/m);
    const named = [...unit.matchAll(/^Environment=([A-Z_]+)=/gm)].map(([, name = '']) => name);
    expect(SETTING_NAMES).toEqual(expect.arrayContaining(named));
  });
});

describe('sentences of the program', () => {
  const source = [...allSources('src'), ...allSources('migrations')]
    .map((file) => read(file))
    .join('\n')
    .replaceAll(/\s+/g, ' ');
  /** Texts that are composed from parts, or that another program prints. */
  const ELSEWHERE = ['Nothing is known yet', 'records in run 17 were not sent', "unknown option '-x'"];

  it.each(pages)('are quoted in %s as the program contains them', (page) => {
    const prose = read(page).replaceAll(/^ *```[^]*?^ *```/gm, '');
    const quoted = [...prose.matchAll(/`([^`\n]+)`/g)]
      .map(([, text = '']) => text)
      .filter((text) => /^(?:…|[\w',.:() -])+$/.test(text) && !ELSEWHERE.includes(text));
    const fragments = quoted.flatMap((text) => text.split(/…|\d+|[():]/)).map((text) => text.trim());
    // Words alone: no command, no code, no SQL.
    const said = fragments.filter((text) => /^[A-Z]?[a-z]+(?:[', ]+[a-z]+){2,}$/.test(text));
    const isCommand = (text: string) => /^(?:slotsync|npm|npx|node|git|docker|systemctl) /.test(text);
    expect(said.filter((text) => !isCommand(text) && !source.includes(text))).toEqual([]);
  });
});

describe('.env.example', () => {
  it('explains exactly the settings that exist', () => {
    const named = [...read('.env.example').matchAll(/^#? ?([A-Z][A-Z_]+)=/gm)].map(([, name = '']) => name);
    const ofCompose = ['STATE_DATABASE_PASSWORD', 'REDIS_PASSWORD'];
    expect([...new Set(named)].toSorted()).toEqual([...SETTING_NAMES, ...ofCompose].toSorted());
  });
});

/** Returns true if a place in a page is inside a code block or between backticks. */
function isCode(text: string, index: number): boolean {
  const before = text.slice(0, index);
  const fences = before.match(/^ *```/gm)?.length ?? 0;
  if (fences % 2 === 1) return true;
  const paragraph = before.split(/\n\n|```\w*\n/).at(-1) ?? '';
  return (paragraph.match(/`/g)?.length ?? 0) % 2 === 1;
}

/** Returns the files of a folder, of every kind. */
function allSources(folder: string): string[] {
  return readdirSync(path.join(root, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => path.join(path.relative(root, entry.parentPath), entry.name));
}

function lineUpTo(text: string, index: number): string {
  return text.slice(text.lastIndexOf('\n', index - 1) + 1, index);
}

/** Returns the properties of a JSON schema, at any depth, whose default is a text, a number or a boolean. */
function defaultsOf(schema: unknown): (readonly [key: string, value: unknown])[] {
  if (typeof schema !== 'object' || schema === null) return [];
  return Object.entries(schema).flatMap(([name, value]: [string, unknown]) => {
    const own = name === 'properties' ? Object.entries(value as Record<string, { default?: unknown }>) : [];
    const simple = own.flatMap(([key, property]) =>
      ['string', 'number', 'boolean'].includes(typeof property.default)
        ? [[key, property.default] as const]
        : [],
    );
    return [...simple, ...defaultsOf(value)];
  });
}

/** Names of all properties of a JSON schema, at any depth. */
function keysOf(schema: unknown, keys = new Set<string>()): Set<string> {
  if (typeof schema !== 'object' || schema === null) return keys;
  for (const [name, value] of Object.entries(schema)) {
    if (name === 'properties') for (const key of Object.keys(value as object)) keys.add(key);
    keysOf(value, keys);
  }
  return keys;
}
