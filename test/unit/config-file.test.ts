import { chmodSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { createJiti } from 'jiti';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { checkConfiguration, schedulesOf, loadConfiguration } from '../../src/config/config-file.js';
import { UsageError } from '../../src/errors/errors.js';
import { configKeys, type SlotsyncConfig } from '../../src/streams/config-schema.js';
import { mapRow } from '../../src/streams/map-row.js';
import { createFolder } from '../support/folders.js';
import { refusalOf, ROOMS, rooms } from './declare.js';

function asUsageError(error: unknown): UsageError {
  if (error instanceof UsageError) return error;
  throw error;
}

/** Returns the error with which a configuration is refused. */
const refusal = (exported: unknown) => refusalOf(() => checkConfiguration(exported, 'sync.config.ts'));
const home = createFolder('config-file');

/** Creates a folder with these files, outside the project. */
function folderOf(files: Record<string, string>): string {
  const folder = mkdtempSync(path.join(home, 'organization-'));
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(path.dirname(path.join(folder, name)), { recursive: true });
    writeFileSync(path.join(folder, name), text);
  }
  return folder;
}

const loadRefusal = (folder: string, file?: string) =>
  loadConfiguration(file, folder).then(() => {
    throw new Error('the configuration was loaded');
  }, asUsageError);

describe('a configuration file', () => {
  const source = (row: string) => `
    import { defineConfig } from 'slotsync';
    import { trim } from './text.js';
    export default defineConfig({
      streams: {
        rooms: {
          from: 'campus.rooms', key: 'room_code', type: 'room', externalId: 'room_{room_code}',
          fields: { 'room.name': (${row}) => trim(row.name) },
        },
      },
    });`;

  it.each([
    ['TypeScript', 'sync.config.ts', 'text.ts', 'row: { name: string }', 'name: string'],
    ['JavaScript', 'sync.config.js', 'text.js', 'row', 'name'],
    ['JavaScript', 'sync.config.mjs', 'text.js', 'row', 'name'],
  ])(
    'is loaded from any folder, with the modules beside it: %s, %s',
    async (_, name, beside, row, parameter) => {
      const folder = folderOf({
        [name]: source(row),
        [beside]: `export const trim = (${parameter}) => name.trim();`,
        'package.json': '{ "type": "module" }',
      });
      const { streams } = await loadConfiguration(undefined, folder);
      const [stream] = streams;
      expect(stream?.source).toEqual({ table: ['campus', 'rooms'] });
      expect(stream && mapRow(stream, { room_code: 'N1', name: ' Newton ' }).values.get('room.name')).toEqual(
        ['Newton'],
      );
    },
  );

  it('may be JSON, with a byte order mark', async () => {
    const folder = folderOf({ 'sync.config.json': `\uFEFF${JSON.stringify({ streams: { rooms: ROOMS } })}` });
    expect((await loadConfiguration(undefined, folder)).streams.map(({ name }) => name)).toEqual(['rooms']);
  });

  it('is loaded although other users may write it only if it is named', async () => {
    const folder = folderOf({ 'sync.config.json': JSON.stringify({ streams: { rooms: ROOMS } }) });
    const file = path.join(folder, 'sync.config.json');
    chmodSync(file, 0o646);
    const { message, remedy } = await loadRefusal(folder);
    expect(message).toBe(`${file} is not loaded: other users can write to the file`);
    expect(remedy).toBe(`If you trust it: chmod go-w ${file}, or name it: SLOTSYNC_CONFIG=${file}`);
    expect((await loadConfiguration(file, folder)).streams).toHaveLength(1);
  });

  it('may be named by a relative or an absolute path', async () => {
    const folder = folderOf({ 'etc/rooms.json': JSON.stringify({ streams: { rooms: ROOMS } }) });
    for (const file of ['etc/rooms.json', path.join(folder, 'etc/rooms.json')]) {
      expect((await loadConfiguration(file, folder)).streams).toHaveLength(1);
    }
  });

  it('reports changes of itself, its modules and its lookups, until they are restored', async () => {
    const config = {
      lookups: { kinds: { file: 'kinds.csv', key: 'code', value: 'kind' } },
      streams: { rooms: rooms({ fields: { 'room.kind': { column: 'kind', lookup: 'kinds' } } }) },
    };
    const files = {
      'sync.config.mjs': `import { type } from './type.mjs'; export default ${JSON.stringify(config).replace('"room"', 'type')};`,
      'type.mjs': `export const type = 'room';`,
      'kinds.csv': 'code,kind\nL,lecture\n',
    };
    const folder = folderOf(files);
    const { isChanged, streams } = await loadConfiguration(undefined, folder);
    expect(streams[0]?.type).toBe('room');
    expect(await isChanged()).toBe(false);
    for (const [name, text] of Object.entries(files)) {
      writeFileSync(path.join(folder, name), `${text} `);
      expect(await isChanged(), name).toBe(true);
      rmSync(path.join(folder, name));
      expect(await isChanged(), name).toBe(true);
      writeFileSync(path.join(folder, name), text);
      expect(await isChanged(), name).toBe(false);
    }
  });
});

describe('the dialect of a configuration', () => {
  const config = (dialect: string) =>
    `import { defineConfig } from 'slotsync';
    export default defineConfig(${JSON.stringify({ streams: { rooms: rooms() }, service: { dialect } })});`;
  const dialect = `import { defineDialect } from 'slotsync'; import { unit } from './unit.ts';
    export default defineDialect((base) => ({ times: unit, find: { ask: (q) => ({ ...base.find.ask(q), path: '/x' }) } }));`;
  const files = {
    'sync.config.ts': config('./wire/own.ts'),
    'wire/own.ts': dialect,
    'wire/unit.ts': `export const unit = 'milliseconds' as const;`,
  };

  it('is loaded from the folder of the configuration, and its files are watched for changes', async () => {
    const folder = folderOf(files);
    const { service, isChanged } = await loadConfiguration(undefined, folder);
    expect(service.dialect).toMatchObject({ times: 'milliseconds', file: 'own.ts' });
    const question = { kind: 'objects', filter: { by: 'none' }, page: 1, limit: 1 } as const;
    expect(service.dialect.find.ask(question)).toMatchObject({ method: 'POST', path: '/x' });
    for (const name of ['wire/own.ts', 'wire/unit.ts'] as const) {
      writeFileSync(path.join(folder, name), `${files[name]} `);
      expect(await isChanged(), name).toBe(true);
      writeFileSync(path.join(folder, name), files[name]);
      expect(await isChanged(), name).toBe(false);
    }
  });

  it('changes the fingerprint of every stream, with the modules that it imports, but the hash of no row', async () => {
    const folder = folderOf(files);
    const read = async () => {
      const { fingerprints, streams } = await loadConfiguration(undefined, folder);
      return { fingerprints, mapping: String(streams[0]?.fingerprint) };
    };
    const first = await read();
    expect(await read()).toEqual(first);
    writeFileSync(path.join(folder, 'wire/unit.ts'), `export const unit = 'seconds' as const;`);
    const second = await read();
    expect(second.fingerprints.configuration).not.toBe(first.fingerprints.configuration);
    expect(second.fingerprints.streams['rooms']).not.toBe(first.fingerprints.streams['rooms']);
    expect(second.mapping).toBe(first.mapping);
  });

  it('is refused with the file and the place of its fault', async () => {
    const folder = folderOf({ ...files, 'wire/own.ts': `export default { find: { reed: () => 1 } };` });
    await expect(loadConfiguration(undefined, folder)).rejects.toMatchObject({
      faults: [expect.stringContaining('own.ts find.reed: unknown; there are ask, read')],
    });
    rmSync(path.join(folder, 'wire/own.ts'));
    await expect(loadConfiguration(undefined, folder)).rejects.toThrow(
      /service\.dialect: there is no file .*own\.ts/,
    );
    expect(() =>
      checkConfiguration({ streams: { rooms: rooms() }, service: { dialect: './x.ts' } }),
    ).toThrow();
  });

  it('is not loaded if other users may write it, unless the configuration is named', async () => {
    const folder = folderOf(files);
    chmodSync(path.join(folder, 'wire/own.ts'), 0o666);
    await expect(loadConfiguration(undefined, folder)).rejects.toThrow(/own\.ts is not loaded/);
    await loadConfiguration(path.join(folder, 'sync.config.ts'), folder);
  });
});

describe('the cache of compiled files that another user may write to', () => {
  it('is neither read nor written', async () => {
    const config = (type: string) =>
      `export default ${JSON.stringify({ streams: { rooms: rooms({ type }) } })};`;
    const temporary = folderOf({});
    const folder = folderOf({ 'sync.config.ts': config('room') });
    vi.stubEnv('TMPDIR', temporary);
    vi.stubEnv('JITI_FS_CACHE', 'true');
    onTestFinished(() => void vi.unstubAllEnvs());
    const typeOf = async () => (await loadConfiguration(undefined, folder)).streams[0]?.type;
    expect(await typeOf()).toBe('room');
    expect(readdirSync(temporary)).toEqual([]);

    // As another user would plant it: the compiled file in its place, with other code.
    const program = path.resolve('src/config/config-file.ts');
    const options = { moduleCache: false, interopDefault: false };
    await createJiti(program, options).import(path.join(folder, 'sync.config.ts'));
    const [compiled = ''] = readdirSync(path.join(temporary, 'jiti'));
    const planted = path.join(temporary, 'jiti', compiled);
    writeFileSync(planted, readFileSync(planted, 'utf8').replace('"type": "room"', '"type": "planted"'));
    expect(readFileSync(planted, 'utf8')).toContain('planted');
    expect(await typeOf()).toBe('room');
    expect(readdirSync(path.join(temporary, 'jiti'))).toEqual([compiled]);
  });
});

describe('a configuration file that cannot be loaded', () => {
  it('is reported with the folder that was searched, and how to name another file', async () => {
    const folder = folderOf({});
    const error = await loadRefusal(folder);
    expect(error.message).toBe(`there is no sync.config.ts in ${folder}`);
    expect(error.remedy).toMatch(/--config.*SLOTSYNC_CONFIG/);
  });

  it('is reported with the candidates when a folder has several and none is named', async () => {
    const text = `export default ${JSON.stringify({ streams: { rooms: ROOMS } })};`;
    const folder = folderOf({ 'sync.config.ts': text, 'sync.config.js': text });
    const error = await loadRefusal(folder);
    expect(error.message).toBe(`several configurations are in ${folder}: sync.config.ts and sync.config.js`);
    expect(error.remedy).toMatch(/--config.*SLOTSYNC_CONFIG/);
    expect((await loadConfiguration('sync.config.js', folder)).streams).toHaveLength(1);
  });

  it('is reported with its path when it was named and does not exist', async () => {
    const folder = folderOf({});
    expect((await loadRefusal(folder, 'other.ts')).message).toBe(
      `there is no configuration file ${path.join(folder, 'other.ts')}`,
    );
  });

  const TS = 'sync.config.ts';
  const JSON_FILE = 'sync.config.json';
  it.each<[what: string, name: string, text: string, says: RegExp]>([
    [
      'an error of its own',
      TS,
      "throw new Error('no tenant');",
      /^sync\.config\.ts cannot be loaded: no tenant$/,
    ],
    [
      'a missing file that it imports',
      TS,
      "import './words.js';",
      /^sync\.config\.ts cannot .*'\.\/words\.js'/,
    ],
    ['JSON that ends too early', JSON_FILE, '{\n"streams": ', /^sync\.config\.json cannot be loaded: .*JSON/],
    ['text that is not JSON', JSON_FILE, '{ streams: {} }', /^sync\.config\.json cannot be loaded: .*JSON/],
    ['UTF-16', JSON_FILE, '\0{\0}', /^.*sync\.config\.json is not UTF-8 text$/],
    ['a missing package', TS, "import 'words-of-nobody';", /: Cannot find module 'words-of-nobody'$/],
    ['the end of the process', TS, 'process.exit(0);', /: it ends the process with process\.exit\(\)$/],
    ['a thrown value that is no error', TS, 'throw "no tenant";', /: no tenant$/],
    [
      'a property that throws',
      TS,
      'export default { get streams() { throw new Error("none"); } };',
      /: none$/,
    ],
  ])('is reported in one line that names %s', async (_, name, text, says) => {
    const { exit } = process;
    const error = await loadRefusal(folderOf({ [name]: text }));
    expect(error.message).toMatch(says);
    expect(error.faults).toEqual([]);
    expect(error.message).not.toContain('\n');
    expect(process.exit).toBe(exit);
  });

  it('is reported with the place and the line of a syntax error', async () => {
    const error = await loadRefusal(folderOf({ [TS]: 'export default {\n  streams: {,\n};' }));
    expect(error.message).toMatch(/^sync\.config\.ts cannot be loaded: Unexpected token, at .*:2:13$/);
    expect(error.faults).toEqual(['line 2: streams: {,']);
  });

  it('is reported when its top level still awaits a promise after the timeout', async () => {
    const folder = folderOf({ 'sync.config.ts': 'await new Promise(() => undefined);\nexport default {};' });
    await expect(loadConfiguration(undefined, folder, 50)).rejects.toThrow(
      'sync.config.ts cannot be loaded: it still waits for something after 0.05 s',
    );
  });

  it('is reported when it is a folder', async () => {
    const folder = folderOf({ 'sync.config.ts/nothing': '' });
    expect((await loadRefusal(folder)).message).toBe(`${path.join(folder, 'sync.config.ts')} is a folder`);
  });

  it.each([
    ['nothing', ''],
    ['only by name', 'export const config = { streams: {} };'],
    ['undefined', 'export default undefined;'],
    ['null', 'export default null;'],
    ['a list', 'export default [];'],
    ['a promise', 'export default Promise.resolve({});'],
    ['a number', 'export default 42;'],
    ['a string', 'export default "rooms";'],
    ['a function', 'export default () => ({});'],
    ['a class', 'export default class Rooms {}'],
  ])('is reported with the export that is needed when it exports %s', async (_, text) => {
    const error = await loadRefusal(folderOf({ 'sync.config.ts': text }));
    expect(error.message).toBe('sync.config.ts exports no configuration');
    expect(error.remedy).toContain('export default defineConfig({');
  });
});

describe('the check of a configuration', () => {
  it('reports all faults at once, each with its path and what to write', () => {
    const error = refusal({
      schedule: { nightly: 5 },
      streams: {
        '1st': ROOMS,
        rooms: {
          from: { table: 'campus.rooms' },
          key: [],
          externalId: '',
          fields: { 'room.name': 5, '': 'name' },
          references: { 'room.building': 'buildings' },
          retire: 'delete',
          owns: 'all',
          batchSize: 'many',
          limits: { retire: { percent: 200 } },
          waitDays: 0,
        },
      },
      reservations: { from: 'campus.bookings', key: 'id', externalId: 'res_{id}', begin: 'starts_at' },
      service: { prefix: 'v1', pageSize: 0 },
    });
    expect(error.message).toBe('sync.config.ts has 17 faults');
    expect(Object.fromEntries(error.faults.map((fault) => fault.split(/: (.*)/s)))).toEqual({
      'schedule.nightly': "a cron expression such as '0 2 * * *', as text",
      'streams.1st': 'a stream name: letters, digits and _, at most 63',
      'streams.rooms.from':
        "a table or view such as 'campus.rooms', { table: 'campus.rooms', columns: ['room_code', 'name'] }, or { query: 'select …' }",
      'streams.rooms.key': 'at least one column',
      'streams.rooms.type': "is missing: the external id of a type at the service, such as 'room', as text",
      'streams.rooms.externalId': "a template such as 'room_{room_code}': must not be empty",
      'streams.rooms.fields.room.name':
        "a column name, a function of the row: (row) => …, { column: 'code', lookup: 'name' }, or { from: …, write: 'changed' }",
      'streams.rooms.fields.': 'a field id: must not be empty',
      'streams.rooms.references.room.building': expect.stringContaining('expected object'),
      'streams.rooms.retire':
        "'keep', 'deactivate', or { deactivate: true, fields: { 'room.name': 'closed' } }",
      'streams.rooms.owns': "'fields' or 'object'",
      'streams.rooms.batchSize': "'auto', or a whole number of objects from 1 to 1000",
      'streams.rooms.limits.retire.percent': expect.stringContaining('<=100'),
      'streams.rooms.waitDays': 'a number of days above 0',
      'reservations.end': 'is missing: a column name, as text',
      'service.prefix': "a path such as '/v1', or '' for none",
      'service.pageSize': expect.stringContaining('>=1'),
    });
  });

  it('reports unknown keys with the keys that were probably meant', () => {
    const { faults } = refusal({
      shedule: { nightly: '0 2 * * *' },
      streams: { rooms: { ...ROOMS, externalID: 'x', batch_size: 5, paintwork: 'red', window: {} } },
      reservations: {
        from: 'b',
        key: 'id',
        externalId: 'r_{id}',
        begin: 'b',
        end: 'e',
        window: { futureDay: 1 },
      },
    });
    expect(faults).toEqual([
      "streams.rooms.externalID: unknown; did you mean 'externalId'?",
      "streams.rooms.batch_size: unknown; did you mean 'batchSize'?",
      'streams.rooms.paintwork: unknown; remove it, or check the spelling',
      'streams.rooms.window: unknown; remove it, or check the spelling',
      "reservations.window.futureDay: unknown; did you mean 'futureDays'?",
      "shedule: unknown; did you mean 'schedule'?",
    ]);
  });

  it('reports a schedule that cannot be followed, and the time zone that was probably meant', () => {
    const schedule = { nightly: '0 2', timezone: 'Europe/Stokholm' };
    expect(refusal({ schedule, streams: { rooms: ROOMS } }).faults).toEqual([
      "schedule.nightly: '0 2' does not have the five fields minute, hour, day, month, weekday",
      "schedule.timezone: there is no time zone 'Europe/Stokholm'; did you mean 'Europe/Stockholm'?",
    ]);
  });

  it('reports a time to verify that never comes', () => {
    const verifying = (after: string, more = {}) =>
      refusal({ verify: { after }, streams: { rooms: ROOMS }, ...more }).faults;
    expect(verifying('0 2')).toEqual([
      "verify.after: '0 2' does not have the five fields minute, hour, day, month, weekday",
    ]);
    expect(verifying('sync')).toEqual([
      "verify.after: 'sync' means after each nightly sync, but `schedule.nightly` is not set",
    ]);
    const configuration = { verify: { after: 'sync' }, schedule: { nightly: '0 2 * * *' } };
    expect(checkConfiguration({ ...configuration, streams: { rooms: ROOMS } }).verify).toEqual({
      after: 'sync',
      repair: 'never',
      share: 0.5,
    });
  });

  it('reports a stream schedule that never occurs, and a nightly schedule that is missing or unused', () => {
    const faults = (schedule: object | undefined, ...own: (string | undefined)[]) =>
      refusal({
        schedule,
        streams: Object.fromEntries(own.map((of, at) => [`s${at}`, { ...ROOMS, schedule: of }])),
      }).faults;
    expect(faults(undefined, '0 0 30 2 *')).toEqual([
      "streams.s0.schedule: '0 0 30 2 *' never occurs: none of its months has that day",
    ]);
    expect(faults({ nightly: '0 2 * * *' }, '0 * * * *')).toEqual([
      'schedule.nightly: applies to no stream, because every stream has its own `schedule`; remove `nightly`, or one of those',
    ]);
    expect(faults({ timezone: 'Europe/Stockholm' }, '0 * * * *', undefined)).toEqual([
      "schedule.nightly: is missing: a cron expression such as '0 2 * * *'",
    ]);
    expect(faults({ nightly: '0 2 * * *', waitForLoadMinutes: 60 }, undefined)).toEqual([
      'schedule.waitForLoadMinutes: needs `freshness`, which tells when the mirror was loaded',
    ]);
  });

  it('merges stream schedules of one pattern, in the time zone of the nightly one', () => {
    const configuration = checkConfiguration({
      schedule: { nightly: '0 2 * * *', timezone: 'Europe/Stockholm' },
      streams: {
        rooms: { ...ROOMS, schedule: '0 6 * * SUN' },
        halls: { ...ROOMS, externalId: 'h_{code}', schedule: '0 6 * * SUN' },
        staff: { ...ROOMS, externalId: 's_{code}' },
        guests: { ...ROOMS, externalId: 'g_{code}', schedule: '0 2 * * *' },
      },
    });
    const common = { timezone: 'Europe/Stockholm', catchUp: true, waitMinutes: 0 };
    expect(schedulesOf(configuration)).toEqual([
      { name: 'nightly', pattern: '0 2 * * *', ...common, streams: ['staff', 'guests'] },
      { name: '0 6 * * SUN', pattern: '0 6 * * SUN', ...common, streams: ['rooms', 'halls'] },
    ]);
  });

  it('reports an incomplete `freshness`, and applies the common `freshness` to the other streams', () => {
    const faults = (freshness: object, ofStream?: object) =>
      refusal({ freshness, streams: { rooms: { ...ROOMS, freshness: ofStream } } }).faults;
    const query = 'SELECT max(finished_at) FROM etl.load_log';
    expect(faults({ column: 'loaded_at' })).toEqual([
      'freshness: `column` needs a table: write it into a stream, or `query` here',
    ]);
    expect(faults({ maxHours: 8 })).toEqual([
      'freshness: needs `query`, which tells when the mirror was loaded',
    ]);
    expect(faults({ query }, { query, column: 'loaded_at' })).toEqual([
      'streams.rooms.freshness: needs either `column` or `query`, which tells when the mirror was loaded',
    ]);
    expect(faults({ query, then: 'stop', maxHours: 0 })).toEqual([
      expect.stringContaining('freshness.maxHours: '),
      "freshness.then: 'hold' or 'warn'",
    ]);
    const own = { ...ROOMS, externalId: 'h_{code}', freshness: { column: 'loaded_at', then: 'warn' } };
    const { streams } = checkConfiguration({ freshness: { query }, streams: { rooms: ROOMS, halls: own } });
    expect(streams.map(({ freshness }) => freshness)).toEqual([
      { query, maxHours: 26, then: 'hold' },
      { column: 'loaded_at', maxHours: 26, then: 'warn' },
    ]);
  });

  it('reads freezes in the time zone of the schedule, for the named streams or for all', () => {
    const { freezes } = checkConfiguration({
      schedule: { nightly: '0 2 * * *', timezone: 'Europe/Stockholm' },
      freeze: [
        { from: '2026-05-25', to: '2026-06-07 18:00', reason: 'exam weeks' },
        { from: '2026-12-21T00:00:00Z', to: '2027-01-04', streams: ['rooms'], reason: 'nobody is here' },
      ],
      streams: { rooms: ROOMS },
    });
    expect(freezes).toEqual([
      {
        stream: 'rooms',
        beginsAt: new Date('2026-05-24T22:00:00Z'),
        endsAt: new Date('2026-06-07T16:00:00Z'),
        reason: 'exam weeks',
      },
      {
        stream: 'rooms',
        beginsAt: new Date('2026-12-21T00:00:00Z'),
        endsAt: new Date('2027-01-03T23:00:00Z'),
        reason: 'nobody is here',
      },
    ]);
  });

  it.each([
    [{ to: '2026-05-24' }, 'to: is not after `from`: the freeze ends before it begins'],
    [{ reason: undefined }, 'reason: is missing: why nothing is written, as text'],
    [{ from: '2026-02-30' }, "from: '2026-02-30' is neither a day nor an ISO time"],
    [{ streams: ['room'] }, "streams: no stream 'room'; there are: rooms"],
  ])('refuses a freeze with %o', (change, fault) => {
    const freeze = [{ from: '2026-05-25', to: '2026-06-07', reason: 'exam weeks', ...change }];
    expect(refusal({ freeze, streams: { rooms: ROOMS } }).faults).toEqual([`freeze.0.${fault}`]);
  });

  it.each<[string, unknown, string]>([
    ['no streams', {}, 'streams: is missing: an object: stream name to declaration'],
    ['an empty list of streams', { streams: {} }, 'streams: at least one stream'],
    ['streams that are no object', { streams: [ROOMS] }, 'streams: an object: stream name to declaration'],
  ])('refuses %s', (_, exported, fault) => {
    const error = refusal(exported);
    expect(error.message).toBe('sync.config.ts has 1 fault');
    expect(error.faults).toEqual([fault]);
  });

  const TYPE = "type: the external id of a type at the service, such as 'room'";
  const LONG = 'x'.repeat(100_000);
  const tooLong = 'has 100000 characters; at most 1024 are possible';
  const proto = '__proto__ has a meaning of its own in JavaScript; choose another name';
  const control = 'contains a NUL character or half a character; write it again';
  const closed = (fields: object) => ({ retire: { deactivate: true, fields } });
  const retirement =
    "retire: 'keep', 'deactivate', or { deactivate: true, fields: { 'room.name': 'closed' } }";

  it.each<[fault: string, changes: object]>([
    [`${TYPE}: begins or ends with a blank; remove it`, { type: 'room ' }],
    ['key: names column a twice; keep one of them', { key: ['a', 'b', 'a'] }],
    [`key: a column name: ${proto}`, { key: '__proto__' }],
    [`externalId: ${proto}`, { externalId: 'x_{__proto__}' }],
    [`${TYPE}: ${tooLong}`, { type: LONG }],
    [`fields.${'x'.repeat(178)}…: a field id: ${tooLong}`, { fields: { [LONG]: 'name' } }],
    ['from.query: a SELECT: must not be empty', { from: { query: '' } }],
    ['from.query: a SELECT: contains a NUL character; remove it', { from: { query: 'SELECT \0' } }],
    [`${TYPE}: ${control}`, { type: 'ro\0om' }],
    [`externalId: a template such as 'room_{room_code}': ${control}`, { externalId: '\ud800{code}' }],
    [
      'fields.f: a function of the row must return its value at once: it cannot be async',
      { fields: { f: async () => 'x' } },
    ],
    ['graceDays: a number of days, from 0 to 3660', { graceDays: 1e9 }],
    [retirement, { retire: { deactivate: false } }],
    [retirement, { retire: { deactivate: false, fields: { 'room.name': 'closed' } } }],
    [retirement, { retire: {} }],
    [retirement, closed({ 'room.name': () => 'closed' })],
    [retirement, closed({ 'room.name': NaN })],
    ["retire.fields: at least one field; without any, write 'deactivate'", closed({})],
    [`retire.fields.room.name: a value: ${control}`, closed({ 'room.name': 'a\0' })],
    [
      "graceDays: a number of days, from 0 to 3660, or { column: 'ends_on', days: 30 }",
      { graceDays: { column: 'ends_on' } },
    ],
    [
      "operations: at least one of 'create', 'update' and 'retire'; to send nothing for a time: slotsync freeze",
      { operations: [] },
    ],
    ["operations.0: 'create', 'update' or 'retire'", { operations: ['delete'] }],
    [
      "operations: leaves 'retire' out, and retire: 'deactivate' asks for it; remove one of the two",
      { operations: ['create', 'update'], retire: 'deactivate' },
    ],
    [
      "operations: has only 'retire', which retire: 'deactivate' asks for; add that, or another operation",
      { operations: ['retire'] },
    ],
  ])('refuses a stream with its fault and place: %s', (fault, changes) => {
    expect(refusal({ streams: { rooms: { ...ROOMS, ...changes } } }).faults).toEqual([
      `streams.rooms.${fault}`,
    ]);
  });

  it.each([
    ['constructor', 'every object of JavaScript has something of this name; choose another one'],
    ['reservations', 'means the bookings, as in slotsync explain reservations; choose another name'],
    [LONG, 'a stream name: letters, digits and _, at most 63'],
  ])('refuses a name of a stream: %.20s', (name, fault) => {
    const place = name === LONG ? `${'x'.repeat(191)}…` : name;
    expect(refusal({ streams: { [name]: ROOMS } }).faults).toEqual([`streams.${place}: ${fault}`]);
  });

  it.each([
    ["history: 'names', 'values' or 'none'", { history: 'all' }],
    ['historyDays: a number of days above 0', { historyDays: 0 }],
    ['service.tokenSeconds: Too big: expected number to be <=86400', { service: { tokenSeconds: 1e12 } }],
    ["service.prefix: a path such as '/v1', or '' for none", { service: { prefix: '/v1/../admin' } }],
  ])('refuses a section with its fault and place: %s', (fault, sections) => {
    expect(refusal({ streams: { rooms: ROOMS }, ...sections }).faults).toEqual([fault]);
  });

  it('accepts a column, a field and a lookup called constructor', () => {
    const fields = { constructor: { column: 'constructor', lookup: 'constructor' } };
    const { streams } = checkConfiguration({
      streams: { rooms: rooms({ key: 'constructor', externalId: 'room_{constructor}', fields }) },
      lookups: { constructor: { a: 'b' } },
    });
    expect(streams[0] && mapRow(streams[0], { constructor: 'a' })).toMatchObject({
      extId: 'room_a',
      values: new Map([['constructor', ['b']]]),
    });
  });

  it('reports faults of names, templates, references and circles together', () => {
    const { faults } = refusal({
      streams: {
        rooms: rooms({
          from: 'my rooms',
          externalId: 'room',
          references: { a: { stream: 'halls', key: 'x' } },
        }),
        courses: rooms({ references: { a: { stream: 'groups', key: 'x' } } }),
        groups: rooms({ references: { a: { stream: 'courses', key: ['x', 'y'] } } }),
      },
    });
    expect(faults.toSorted()).toEqual([
      expect.stringMatching(/^streams\.courses\.references: .*courses → groups → courses/),
      expect.stringMatching(/^streams\.groups\.references\.a\.key: name one column for each/),
      expect.stringMatching(/^streams\.rooms\.externalId: 'room' names no column/),
      expect.stringMatching(/^streams\.rooms\.from: 'my rooms' is not a table name/),
      expect.stringMatching(/^streams\.rooms\.references\.a\.stream: no stream 'halls'/),
    ]);
  });
});

it('a configuration whose values have other types: these faults are reported before all others', () => {
  const { faults } = refusal({
    shedule: {},
    streams: {
      buildings: rooms({ type: undefined as unknown as string }),
      rooms: rooms({ externalId: 'room' }),
    },
  });
  expect(faults.toSorted()).toEqual([
    expect.stringMatching(/^shedule: unknown/),
    expect.stringMatching(/^streams\.buildings\.type: is missing/),
  ]);
});

describe('the reservations of a configuration', () => {
  const BOOKINGS = { from: 'campus.bookings', key: 'id', externalId: 'res_{id}', begin: 'b', end: 'e' };
  const check = (reservations: SlotsyncConfig['reservations']) =>
    checkConfiguration({ streams: { rooms: ROOMS }, reservations }).reservations;
  it('are resolved with their defaults', () => {
    expect(check({ ...BOOKINGS, objects: [{ stream: 'rooms', key: 'room' }] })).toMatchObject({
      bookings: { source: { table: ['campus', 'bookings'] }, key: ['id'], timezone: 'UTC' },
      rules: { types: new Set(['room']), status: new Set(['B_COMPLETE', 'C_CONFIRMED']) },
      window: { pastDays: 7, futureDays: 180 },
      everyMinutes: 15,
    });
    expect(check({})?.bookings).toBeUndefined();
  });

  const objects = (stream: string, key: string | string[]) => ({ ...BOOKINGS, objects: [{ stream, key }] });
  it.each<[fault: string, reservations: SlotsyncConfig['reservations']]>([
    ["objects.0.stream: no stream 'romms'; there are: rooms", objects('romms', 'room')],
    ['objects.0.key: name one column for each key column of rooms (room_code)', objects('rooms', ['a', 'b'])],
    ["timezone: there is no time zone 'Stockholm'; did you mean '", { ...BOOKINGS, timezone: 'Stockholm' }],
    ["externalId: 'res' names no column", { ...BOOKINGS, externalId: 'res' }],
    ["from: 'a b' is not a table name", { ...BOOKINGS, from: 'a b' }],
    ["from: is missing: a table or view such as 'campus.bookings'", { cancelled: 'is_off' }],
    ['status.0: ', { ...BOOKINGS, status: ['PLANNED'] as never }],
    ['status: at least one status', { ...BOOKINGS, status: [] }],
    ['key: names column id twice; keep one of them', { ...BOOKINGS, key: ['id', 'id'] }],
    ['end: is the column of begin; name another one', { ...BOOKINGS, end: BOOKINGS.begin }],
    [
      'window: is empty: one of both must be above 0',
      { ...BOOKINGS, window: { pastDays: 0, futureDays: 0 } },
    ],
  ])('are refused with the place of the fault: %s', (fault, reservations) => {
    const { faults } = refusalOf(() => check(reservations));
    expect(faults).toContainEqual(expect.stringContaining(`reservations.${fault}`));
  });
});

describe('the types of the configuration', () => {
  const read = (name: string) => readFileSync(new URL(`../../src/streams/${name}`, import.meta.url), 'utf8');
  const types =
    /export interface SourceQuery[^]*(?=export type SourceDeclaration)/.exec(read('source.ts'))?.[0] +
    (/export interface LookupField[^]*(?=type Shape<)/.exec(read('config-schema.ts'))?.[0] ?? '');
  /** Keys with their comments. */
  const keys = [...types.matchAll(/(?:\/\*\*((?:(?!\*\/)[^])*)\*\/)?\n +(\w+)\??: /g)];

  it('explain every key to an editor', () => {
    expect(new Set(keys.map(([, , key]) => key))).toEqual(new Set(configKeys()));
    for (const [, comment, key] of keys) expect(comment, key).toMatch(/^\s+(\*\s+)?[^\s*@]/);
  });
});
