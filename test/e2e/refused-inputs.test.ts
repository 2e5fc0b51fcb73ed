// Guarantee 10
// Wrong input of people: each ends with its exit code and one line that names the place, without a stack trace or a secret.
// test/unit/{settings,config-file}.test.ts test faults that need no program.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { run, start, type Env, type Finished } from '../support/program.js';
import { CONFIGURATION } from '../support/rehearsal.js';
import { rehearseOnce } from '../support/rehearsals.js';

const SECRET = 'S3CRET';
const CLI = fileURLToPath(new URL('../../dist/cli.js', import.meta.url));

interface Input {
  /** Arguments, split at spaces. A list if an argument contains a space. */
  args: string | readonly string[];
  env?: Env;
  /** Files in the working folder, beside the configuration. */
  files?: Record<string, string | Buffer>;
  /** Runs as a process of its own, at the cost of half a second, if the input concerns the process. */
  isProcess?: boolean;
}

type Row = readonly [
  title: string,
  input: Input | string | readonly string[],
  exitCode: number,
  line: RegExp | string,
];

/** Placeholder for the port of a server that listens. */
const TAKEN = '<taken>';

const database = (address: string): Env => ({ MIRROR_DATABASE_URL: address });
const configuration = (text: string, name = 'sync.config.ts'): Input => ({
  args: 'plan',
  files: { [name]: text },
});
/** A configuration with a cursor whose values are compared as numbers. */
const polled = {
  'sync.config.ts': CONFIGURATION.replace("retire: 'deactivate'", "cursor: 'seats'").replaceAll(
    "from: 'rooms'",
    "from: { query: 'SELECT code, name, seats::numeric FROM rooms' }",
  ),
};

// prettier-ignore
const TABLE: Record<string, readonly Row[]> = {
  'the command line': [
    ['unknown command', { args: 'sinc', isProcess: true }, 2, "unknown command 'sinc'; did you mean sync?"],
    ['unknown option', 'plan --jsno', 2, "unknown option '--jsno'; did you mean --json?"],
    ['option without its value', 'plan --config', 2, "option '-c, --config <file>' argument missing"],
    ['argument too many', 'migrate now', 2, "too many arguments for 'migrate'. Expected 0 arguments but got 1."],
    ['configuration that is not there', 'sync -c nowhere.ts', 2, /^there is no configuration file/],
    ['argument missing', 'push rooms', 2, "missing required argument 'keys'"],
    ['key that looks like an option', 'retry rooms -x', 2, "unknown option '-x'"],
    ['unknown stream', 'plan romms', 2, "no stream 'romms' in the configuration"],
    ['unknown stream of the state', 'failures romms', 2, "no stream 'romms' is in the state or in the configuration"],
    ['unknown stream to retry', 'retry romms R1', 2, "no stream 'romms' is in the state or in the configuration"],
    ['unknown run', 'runs 999', 2, 'there is no run 999'],
    ['unknown kind', 'runs --kind nightly', 2, "--kind takes one of incremental, sync, backfill, reconcile, verify, repair, not 'nightly'"],
    ['unknown action', 'triggers instal', 2, "triggers takes install, remove or print, not 'instal'"],
    ['unknown stream of a filter', 'failures --stream romms', 2, "no stream 'romms' is in the state or in the configuration"],
    ['two streams', 'failures rooms --stream courses', 2, 'either rooms or --stream courses, not both'],
    ['unknown code', 'failures --code refuzed_400', 2, "no record has the code 'refuzed_400'"],
    ['unknown code to retry', 'retry rooms --code refuzed_400', 2, "no record has the code 'refuzed_400'"],
    ['unknown status', 'failures --status broken', 2, "option '--status <status>' argument 'broken' is invalid. Allowed choices are dead, failed, deferred, pending, held."],
    ['status that is not retried', 'retry rooms --status deferred', 2, "option '--status <status>' argument 'deferred' is invalid. Allowed choices are dead, failed."],
    ['keys and a code', 'retry rooms R1 --code refused_400', 2, 'either keys or --code, not both'],
    ['keys and a status', 'retry rooms R1 --status dead', 2, 'either keys or --status, not both'],
    ['former objects of a code', 'retry rooms --retire-former --code refused_400', 2, '--retire-former selects its own records: leave out --code'],
    ['stream and --all', 'retry rooms --all', 2, 'either a stream or --all, not both'],
    ['neither stream nor --all', 'retry', 2, 'name a stream, a stream and keys, or --all'],
    ['two forms of the report', 'report --html --text', 2, 'choose one of --text, --html'],
    ['period of the report of a run', 'report 1 --since 2h', 2, 'a run has its own period: leave out --since'],
    ['plan in a spreadsheet', 'plan --out plan.xlsx', 2, /^--out needs a file name that ends with \.csv or \.jsonl, not 'plan\.xlsx'/],
    ['plan in a file as its folder', { args: 'plan --out file/plan.csv', files: { file: '' } }, 2, /plan\.csv cannot be written \(ENOTDIR\)/],
    ['write probe without a number', 'check --write-probe', 2, /argument missing$/],
    ['external id without a write probe', 'check --external-id room_X', 2, /is used only with --write-probe <number>/],
    ['names of types in no file', ['discover', '--types', ''], 2, /^--types writes TypeScript, and no file is named/],
    ['names of types in a folder that is not there', 'discover --types nowhere/service.d.ts', 2, /nowhere\/service\.d\.ts cannot be written \(ENOENT\)/],
    ['names of types in JSON', 'discover --types service.json', 2, /'service\.json' does not end in \.ts/],
    ['contract that is not there as JSON', { args: 'check --against contract', files: { contract: '{' } }, 2, /cannot be read/],
    ['contract of another kind', { args: 'check --against contract', files: { contract: '{"version":2}' } }, 2, /is not a recorded contract: version/],
  ],
  verify: [
    ['adopt and repair', 'verify --adopt --repair', 2, '--adopt makes records and compares nothing: leave out --repair'],
    ['adopt and a sample', 'verify --adopt --sample 5', 2, '--adopt makes records and compares nothing: leave out --sample'],
    ['detached without a repair', 'verify --detach', 2, '--detach is about a repair: add --repair'],
    ['unknown stream', 'verify halls', 2, /no stream 'halls' in the configuration/],
    ['folder that does not exist', 'verify --out no/such/folder/drift.csv', 2, /no\/such\/folder\/drift\.csv cannot be written/],
  ],
  match: [
    ['unknown field', 'match rooms --by room.nme', 2, "  - --by: streams.rooms maps no field 'room.nme'; it maps room.name, room.seats   → Name fields of the mapping, and with --by only the streams that have them."],
    ['empty field', 'match rooms --by room.name,', 2, "--by takes field ids separated by commas, not 'room.name,'"],
    ['folder that does not exist', 'match rooms --out none/matches.csv', 2, 'none/matches.csv cannot be written (ENOENT)'],
    ['folder instead of a file', 'match rooms --out .', 2, '. is a folder, a link or a device: only an ordinary file is replaced'],
    ['file to apply beside a stream', 'match rooms --apply matches.csv', 2, '--apply takes a file, and neither streams nor other options'],
    ['unknown stream to unlink', 'match --unlink halls R1', 2, /no stream 'halls' in the configuration/],
    ['unknown stream to link', 'match --link halls R1', 2, /no stream 'halls' in the configuration/],
    ['record without an object', 'match --link rooms R1', 2, /^nothing was linked, because rooms 'R1' has no object/],
  ],
  'an exception': [
    ['key that has neither row nor record', 'except rooms nobody --reason x', 2, /no row and no record of rooms has the key 'nobody'/],
    ['time in the past', 'except rooms R1 --reason x --until 2001-01-01', 2, '--until is in the past: 2001-01-01'],
    ['no reason', 'except rooms R1', 2, /--reason is missing/],
    ['unknown stream', 'except halls R1 --reason x', 2, /'halls'/],
    ['end of a missing exception', 'except rooms R1 --end', 2, /rooms 'R1' is not an exception/],
    ['both an end and a time', 'except rooms R1 --end --until 2099-01-01', 2, /use --end or --until, not both/],
  ],
  'a number': [
    ['negative', 'sync --limit -1', 2, "--limit takes a whole number from 1 on, not '-1'"],
    ['with a fraction', 'runs 1.5', 2, "a run is a whole number from 1 on, not '1.5'"],
    ['too large', 'worker --concurrency 201', 2, "--concurrency takes a whole number from 1 to 200, not '201'"],
    ['that is a word', 'demo --seed one', 2, "--seed takes a whole number from 0 on, not 'one'"],
    ['none of a sample', 'verify --sample 0', 2, "--sample takes a whole number from 1 on, not '0'"],
    ['share beyond 1', 'sandbox --hang 2', 2, "--hang takes a share from 0 to 1, not '2'"],
  ],
  'a time': [
    ['time that is to come', 'failures --since 2999-01-01', 2, '--since is in the future: 2999-01-01'],
    ['day that does not exist', 'reconcile --from 2026-02-30', 2, "--from takes a day such as 2026-09-01, or an ISO time, not '2026-02-30'"],
    ['hour that does not exist', 'reconcile --to 2026-02-03T25:00', 2, "--to takes a day such as 2026-09-01, or an ISO time, not '2026-02-03T25:00'"],
    ['word', 'reconcile --from yesterday', 2, "--from takes a day such as 2026-09-01, or an ISO time, not 'yesterday'"],
    ['end before the begin', 'reconcile --from 2026-05-02 --to 2026-05-01', 2, '--from is not before --to'],
  ],
  'a part of the mirror': [
    ['that closes its parenthesis', { args: ['backfill', 'rooms', '--where', 'false) OR (true', '--limit', '1'] }, 2, '--where, for rooms: syntax error at or near ")"'],
    ['with a second statement', { args: ['backfill', 'rooms', '--where', 'true; DROP TABLE rooms'] }, 2, '--where, for rooms: syntax error at or near ";"'],
    ['with a second statement behind its parenthesis', { args: ['backfill', 'rooms', '--where', 'true); COMMIT; DROP TABLE rooms; SELECT (1'] }, 2, '--where, for rooms: cannot insert multiple commands into a prepared statement'],
    ['with a union', { args: ['backfill', 'rooms', '--where', 'true) UNION (SELECT 1'] }, 2, /^--where, for rooms: syntax error/],
    ['with a column that does not exist', { args: ['backfill', 'rooms', '--where', 'seat > 1'] }, 2, '--where, for rooms: column "seat" does not exist'],
    ['with an open comment', { args: ['backfill', 'rooms', '--where', 'true /* all'] }, 2, /^--where, for rooms: unterminated \/\* comment/],
    ['with an order', { args: ['backfill', 'rooms', '--where', 'true ORDER BY 1'] }, 2, '--where, for rooms: syntax error at or near "ORDER"'],
    ['with a parameter', { args: ['backfill', 'rooms', '--where', 'code = $1'] }, 2, '--where, for rooms: parameters such as $1 are not supported here'],
    ['that is no condition', { args: ['backfill', 'rooms', '--where', 'seats'] }, 2, '--where, for rooms: argument of WHERE must be type boolean, not type integer'],
    ['with no condition', { args: ['backfill', 'rooms', '--where', ' '] }, 2, '--where takes a condition, such as "seats > 100"'],
    ['of a cursor that is not there', 'backfill --from 5', 2, 'rooms has no cursor, so --from and --to do not apply: set streams.rooms.cursor, or use --where instead'],
    ['from a value of another type', { args: 'backfill rooms --from soon', files: polled }, 2, '--from, for rooms: invalid input syntax for type numeric: "soon"'],
    ['to a value of another type', { args: 'backfill rooms --to later', files: polled }, 2, '--to, for rooms: invalid input syntax for type numeric: "later"'],
    ['that ends before it begins', { args: 'backfill rooms --from 10 --to 9', files: polled }, 2, '--from is not before --to, for rooms'],
    ['that ends where it begins', { args: 'backfill rooms --from 9 --to 9.0', files: polled }, 2, '--from is not before --to, for rooms'],
    ['with a condition without end', { args: ['backfill', 'rooms', '--where', 'true AND '.repeat(2000)] }, 2, /^--where takes at most 10.000 characters; shorten it, or use --keys-file$/],
    ['of no stream', 'backfill --keys R1', 2, '--keys applies to one stream: name the stream'],
    ['of no stream, by a condition', 'backfill --where true', 2, '--where applies to one stream: name the stream'],
    ['of keys twice', 'backfill rooms --keys R1 --keys-file x', 2, 'use --keys or --keys-file, not both'],
    ['of an earlier backfill', 'backfill rooms --resume', 2, '--resume continues the latest unfinished backfill, so it takes neither streams nor other options'],
    ['without keys', 'backfill rooms --keys ,', 2, '--keys names no key'],
    ['in a file that is not there', 'backfill rooms --keys-file keys', 2, '--keys-file keys cannot be read (ENOENT)'],
    ['in a folder', 'backfill rooms --keys-file .', 2, '--keys-file . is a folder'],
    ['in an empty file', { args: 'backfill rooms --keys-file keys', files: { keys: '\uFEFF\r\n' } }, 2, '--keys-file names no key'],
    ['in a file of UTF-16', { args: 'backfill rooms --keys-file keys', files: { keys: Buffer.from('\uFEFFR1\n', 'utf16le') } }, 2, '--keys-file keys is not UTF-8 text'],
  ],
  'a port': [
    ['beyond the last', 'sandbox --port 65536', 2, "--port takes a whole number from 0 to 65535, not '65536'"],
    ['that is taken, of the sandbox', `sandbox --port ${TAKEN}`, 2, /^--port: port \d+ of 127\.0\.0\.1 is in use by another program$/],
    ['of an address elsewhere', 'sandbox --port 0 --host 192.0.2.1', 2, '--port: port 0 of 192.0.2.1 cannot be opened: this machine does not have that address'],
    ['of an address elsewhere, of a worker', { args: 'worker', env: { HTTP_HOST: '192.0.2.1', HTTP_PORT: TAKEN } }, 2, /^HTTP_HOST: port \d+ of 192\.0\.2\.1 cannot be opened: this machine does not have that address$/],
    ['that is taken, of the page', `page --port ${TAKEN}`, 2, /^--port: port \d+ of 127\.0\.0\.1 is in use by another program$/],
    ['that is taken, of a worker', { args: 'worker', env: { HTTP_PORT: TAKEN } }, 2, /^HTTP_PORT: port \d+ of 127\.0\.0\.1 is in use by another program$/],
  ],
  'a setting': [
    ['two at once', { args: 'plan', env: { API_KEY: `${SECRET}\t`.repeat(2), HTTP_PORT: '0x10' } }, 2, /HTTP_PORT: a whole number from 0 to 65535 .*API_KEY: character 7 of 13 /],
    ['key with an emoji', { args: 'plan', env: { API_KEY: `${SECRET}😀` } }, 2, /API_KEY: character 7 of 7 is not printable ASCII/],
    ['organization that commands the terminal', { args: 'plan', env: { API_ORGANIZATION_ID: 'de\u001B[31mmo' } }, 2, /API_ORGANIZATION_ID: contains a space or a control character/],
    ['organization of dots', { args: 'plan', env: { API_ORGANIZATION_ID: '..' } }, 2, /API_ORGANIZATION_ID: an id cannot consist only of dots/],
    ['certificates that are not looked at', { args: 'plan', env: { NODE_TLS_REJECT_UNAUTHORIZED: '0' }, isProcess: true }, 2, /NODE_TLS_REJECT_UNAUTHORIZED: 0 accepts every certificate; unset it/],
    ['# in a password', { args: 'plan', env: database(`postgres://me:${SECRET}#x@db/campus`) }, 2, /MIRROR_DATABASE_URL: .*# as %23/],
    ['role that does not exist', { args: 'status', env: { STATE_DATABASE_URL: '<nobody>' } }, 2, /^the state database refused the connection: /],
    ['database that does not answer', { args: 'status', env: { STATE_DATABASE_URL: `postgres://me:${SECRET}@127.0.0.1:1/campus` } }, 1, 'the state database cannot be reached (ECONNREFUSED)'],
  ],
  'a configuration': [
    ['beside another one', { args: 'plan', files: { 'sync.config.ts': CONFIGURATION, 'sync.config.mjs': CONFIGURATION } }, 2, /^several configurations are in .*: sync\.config\.ts and sync\.config\.mjs$/],
    ['with a query that has a parameter', { ...configuration(CONFIGURATION.replace("from: 'rooms'", "from: { query: 'SELECT * FROM rooms WHERE code = $1' }")) }, 2, 'the mirror lacks what the configuration names'],
    ['with a syntax error', configuration('export default {\n  streams: {,\n};'), 2, /^sync\.config\.ts cannot be loaded: Unexpected token, at .*sync\.config\.ts:2:13\b/],
    ['that is a function', configuration('export default () => ({});'), 2, 'sync.config.ts exports no configuration'],
  ],
};

const world = rehearseOnce({ rows: 3, sandbox: { rate: 0 } });
let folder: string;
const taken = createServer();

beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'slotsync-inputs-'));
  taken.listen(0, '0.0.0.0');
  await once(taken, 'listening');
});
afterAll(async () => {
  await rm(folder, { recursive: true });
  taken.close();
});

/** Runs an input in a folder of its own, with the configuration of the world unless the files have another. */
async function runWith({ args, env = {}, files = {}, isProcess = false }: Input): Promise<Finished> {
  const place = await mkdtemp(path.join(folder, 'input-'));
  const all: typeof files = Object.keys(files).some((name) => name.startsWith('sync.config'))
    ? files
    : { 'sync.config.ts': CONFIGURATION, ...files };
  for (const [name, text] of Object.entries(all)) await writeFile(path.join(place, name), text);
  const nobody = new URL(world.url);
  [nobody.username, nobody.password] = ['nobody_there', SECRET];
  const fill = (text: string) =>
    text.replace(TAKEN, String((taken.address() as AddressInfo).port)).replace('<nobody>', nobody.href);
  const words = (typeof args === 'string' ? args.split(' ') : args).map(fill);
  const settings: Env = Object.fromEntries(
    Object.entries({ ...world.env, ...env }).map(([name, text]) => [name, text && fill(text)]),
  );
  return isProcess ? start(words, settings, place).finished : run(words, settings, place);
}

const asInput = (input: Row[1]): Input =>
  typeof input === 'string' || !('args' in input) ? { args: input } : input;

/** Errors that name what is wrong in the next lines. */
const HEADS = ['the settings cannot be used', 'rows cannot be matched by a field that they do not map'];

describe.each(Object.entries(TABLE))('%s', (_, rows) => {
  it.concurrent.each(rows)('is refused in one line: %s', async (title, input, exitCode, line) => {
    const { code, stdout, stderr } = await runWith(asInput(input));
    const [first = '', ...others] = stderr.trimEnd().split('\n');
    const said = first.replace(/^slotsync: /, '');
    const what = HEADS.includes(said) ? others.join(' ') : said;
    expect(first, `${title}: ${stderr}`).toMatch(/^slotsync: /);
    if (typeof line === 'string') expect(what).toBe(line);
    else expect(what).toMatch(line);
    expect(code).toBe(exitCode);
    // An error, its faults and the next step.
    expect(others.filter((other) => !/^ {2}(- |→ )/.test(other))).toEqual([]);
    expect(stdout).toBe('');
    expect(stderr).not.toContain(SECRET);
    // eslint-disable-next-line no-control-regex
    expect(stderr).not.toMatch(/[\u0000-\u0009\u000B-\u001F]/);
    // Nothing was sent, no run has begun, and no row is gone.
    expect(world.sandbox.objects()).toEqual([]);
    expect(await world.sql`SELECT FROM slotsync.runs UNION ALL SELECT FROM slotsync.exceptions`).toEqual([]);
    expect(await world.sql`SELECT FROM rooms`).toHaveLength(3);
  });
});

it('plan ends with exit code 1 if no row to be sent can be mapped', async () => {
  const odd = (when: string) =>
    CONFIGURATION.replace('=> row.seats', `=> { if (${when}) throw new Error('odd'); return row.seats; }`);
  const none = await runWith({ args: 'plan rooms', files: { 'sync.config.ts': odd('true') } });
  expect(none.stdout).toContain(
    'rooms: none of the checked rows can be sent. To check all rows: slotsync check --rows',
  );
  expect(none.code).toBe(1);
  const some = await runWith({ args: 'plan rooms', files: { 'sync.config.ts': odd("row.code === 'R1'") } });
  expect(some.code).toBe(0);
});

/** Runs a script of the shell, with the program as its function `slotsync`. */
async function runScript(script: string, cwd?: string) {
  const child = spawn('sh', ['-c', `slotsync() { "${process.execPath}" "${CLI}" "$@"; }\n${script}`], {
    cwd,
    env: { PATH: process.env['PATH'], ...world.env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (data: Buffer) => (output += data.toString()));
  const [code] = (await once(child, 'close')) as [number];
  return { code, output };
}

it('a reader that closes the pipe early causes no failure', async () => {
  const { output } = await runScript('slotsync --help | head -n 1');
  expect(output).toBe('Usage: slotsync [options] [command]\n');
});

it('a working directory that was removed is named in one line', async () => {
  const gone = await mkdtemp(path.join(folder, 'gone-'));
  expect(await runScript(`rmdir "${gone}"; slotsync plan`, gone)).toEqual({
    code: 2,
    output: expect.stringMatching(/^slotsync: the working directory no longer exists\n {2}→ /),
  });
});

it('a timer that a configuration has started does not keep the process alive', async () => {
  const text = `${CONFIGURATION} setInterval(() => undefined, 1000);`;
  const files = { 'sync.config.ts': text };
  const { code, stderr } = await runWith({ args: 'plan romms', files, isProcess: true });
  expect([code, stderr]).toEqual([2, expect.stringContaining("no stream 'romms'")]);
});

it('the commands that failures prints can be pasted, whatever their keys contain', async () => {
  const keys = ['--all', '-x', "it's", 'two words', '$(touch x)', 'R1'];
  await world.sql`DELETE FROM courses`;
  await world.sql`DELETE FROM rooms`;
  for (const code of keys) await world.sql`INSERT INTO rooms VALUES (${code}, 'a', 1)`;
  await world.configure(CONFIGURATION.replace('(row) => row.seats', "() => { throw new Error('odd'); }"));
  await world.ends('sync rooms', 1);
  const commands = [...(await world.read('failures --all')).matchAll(/slotsync retry rooms .*$/gm)];
  // The shell splits each command into its arguments.
  const split = String.raw`slotsync() { printf '%s\0' "$@"; printf '\n'; }`;
  const { output } = await runScript([split, ...commands].join('\n'));
  const lines = output.trimEnd().split('\n');
  expect(lines).toHaveLength(keys.length);
  for (const line of lines)
    await world.ends(
      line.split('\0').slice(0, -1),
      0,
      /^1 record will be sent by the next run: slotsync sync$/m,
    );
});
