// Output on a terminal. A row, a key or an answer of the service may hold characters that a terminal obeys: every command
// shows them.
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { beforeAll, expect, it } from 'vitest';
import { visibleInLine } from '../../src/text/visible-text.js';
import { endWithTests } from '../support/child-processes.js';
import { createScreen } from '../support/screen.js';
import { until } from '../support/wait.js';
import { CONFIGURATION } from '../support/rehearsal.js';
import { rehearseOnce } from '../support/rehearsals.js';

const OBEYED = '\x1b]0;x\x07\u202E\x9b2J\x7f\nFORGED';
const SHOWN = String.raw`\u001b]0;x\u0007\u202e\u009b2J\u007f`;

const world = rehearseOnce({ rows: 2, sandbox: { rate: 0 } });
beforeAll(async () => {
  await world.sql`INSERT INTO rooms VALUES (${`K${OBEYED}`}, ${`Name${OBEYED}`}, 1)`;
  world.sandbox.refuseObject('room_R1', { status: 400, message: `refused ${OBEYED}` });
});

/** Each command, and whether it shows a text of the row, of its key or of the service. */
const COMMANDS: [args: string[], shows: boolean][] = [
  [['plan'], true],
  [['sync', 'rooms'], true],
  [['status'], false],
  [['runs'], false],
  [['runs', '1'], true],
  [['failures'], true],
  [['explain', 'rooms', `K${OBEYED}`], true],
  [['push', 'rooms', `no${OBEYED}`], true],
  [['retry', `no${OBEYED}`, 'R1'], true],
  [[`no${OBEYED}`], true],
  [['status', `--no${OBEYED}`], true],
  [['verify'], false],
  [['report'], true],
  [['check', '--rows'], false],
  [['match', 'rooms', '--by', 'room.name'], false],
  [['actions'], false],
  [['triggers', 'print'], false],
  [['reconcile', `--from=${OBEYED}`], true],
];

const titled = COMMANDS.map(([args, shows]) => ({ title: visibleInLine(args.join(' ')), args, shows }));
it.each(titled)('the output of $title shows control characters escaped', async ({ args, shows }) => {
  for (const json of [[], ['--json']]) {
    const { stdout, stderr } = await world.run([...args, ...json]);
    for (const printed of [stdout, stderr]) {
      expect(printed).not.toMatch(/(?!\n)[\p{Cc}\p{Bidi_Control}]/u);
      expect(printed).not.toMatch(/^FORGED/m);
    }
    if (json.length === 0 && shows) expect(stdout + stderr).toContain(SHOWN);
    if (json.length > 0 && stdout !== '') JSON.parse(stdout);
  }
});

/** True if a program can run in a terminal of the `script` of util-linux. On other systems, `script` has other options. */
const hasScript = spawnSync('script', ['--version']).stdout?.toString().includes('util-linux') ?? false;

/** Starts a command on a terminal of 80 columns and 24 rows. */
function startOnTerminal(args: string, env: Record<string, string | undefined> = {}) {
  const cli = fileURLToPath(new URL('../../dist/cli.js', import.meta.url));
  const command = `stty cols 80 rows 24 && exec '${process.execPath}' '${cli}' ${args}`;
  const child = spawn('script', ['-qec', command, '/dev/null'], {
    cwd: world.folder,
    env: { PATH: process.env['PATH'], HOME: process.env['HOME'], TERM: 'xterm', ...world.env, ...env },
  });
  endWithTests(child);
  const screen = createScreen();
  child.stdout.setEncoding('utf8').on('data', (text: string) => screen.write(text));
  return {
    screen,
    press: (keys: string) => child.stdin.write(keys),
    shows: (text: RegExp) =>
      until(() => text.test(screen.shown().join('\n')), {
        describe: () => `${text} on the screen:\n${screen.shown().join('\n')}`,
      }),
    ended: once(child, 'exit').then(([code]) => code as number),
  };
}

it.skipIf(!hasScript)(
  'Ctrl-C removes the line of progress, above which log lines are in the zone of the schedule',
  async () => {
    const schedule = "schedule: { nightly: '0 2 * * *', timezone: 'Europe/Stockholm' }";
    await world.configure(CONFIGURATION.replace('streams: {', `${schedule},\n  streams: {`));
    await world.sql`UPDATE rooms SET name = 'Sal'`;
    world.holdWrites();
    const sync = startOnTerminal('sync rooms', { LOG_LEVEL: 'info' });
    await sync.shows(/^ .*% {2}\d+ of \d+ records.* run \d+/m);
    const lines = sync.screen.shown();
    const logged = lines.filter((line) => / info /.test(line));
    expect(logged.length).toBeGreaterThan(0);
    for (const line of logged) expect(line).toMatch(/^\d\d:\d\d:\d\d CES?T info /);
    expect(lines.filter((line) => line.includes('records'))).toEqual([lines.at(-1)]);
    sync.press('\u0003');
    await sync.shows(/Stopping: finishing the work in flight/);
    world.sandbox.openGate();
    expect(await sync.ended).toBeLessThanOrEqual(1);
    expect(sync.screen.shown().join('\n')).not.toMatch(/ of \d+ records {2}|\^C/);
    expect(sync.screen.isCursorShown()).toBe(true);
  },
);

it.skipIf(!hasScript)('status --watch redraws one screen, and removes the screen after q', async () => {
  await world.run(['sync', 'rooms']);
  const giveUp = (key: string) =>
    world.sql`UPDATE slotsync.records SET status = 'dead', error_code = 'refused_400' WHERE local_key = ${key}`;
  await giveUp('R1');
  const watch = startOnTerminal('status --watch 1');
  await watch.shows(/1 thing needs you: 1 record to correct/);
  expect(watch.screen.isAlternate()).toBe(true);
  expect(watch.screen.shown()).toHaveLength(24);
  await giveUp('R2');
  await watch.shows(/things? needs? you: 2 records to correct/);
  watch.press('q');
  expect(await watch.ended).toBe(0);
  expect(watch.screen.isAlternate()).toBe(false);
  expect(watch.screen.isCursorShown()).toBe(true);
  expect(watch.screen.shown()).toEqual(['']);
});

it.skipIf(!hasScript)('init names the tables that it does not list, and how to include them', async () => {
  await world.sql`CREATE TABLE audit_log (at timestamptz)`;
  const init = startOnTerminal('init --out other.config.ts');
  await init.shows(/Tables to include:/);
  const shown = init.screen.shown().join(' ').replaceAll(/\s+/g, ' ');
  expect(shown).toMatch(
    /1 table not listed, .*: public.audit_log\. .*: slotsync init --tables <table>,<table>=<type>/,
  );
  init.press('\u0003');
  expect(await init.ended).toBe(2);
});

it('status --watch refuses a pipe and --json, and says what to do', async () => {
  await world.refuses(
    'status --watch',
    '--watch draws a screen, and standard output is no terminal\n  → Leave --watch out',
  );
  for (const args of ['--watch --json', '--watch 0']) await world.ends(`status ${args}`, 2);
});

it.skipIf(!hasScript)('reset removes nothing on a terminal unless yes is typed', async () => {
  for (const keys of ['y\r', '\u0003']) {
    const reset = startOnTerminal('reset');
    await reset.shows(/Remove it\? Type yes:/);
    reset.press(keys);
    expect(await reset.ended).not.toBe(0);
    await world.read('status --full');
  }
  const reset = startOnTerminal('reset');
  await reset.shows(/Remove it\? Type yes:/);
  reset.press('yes\r');
  expect(await reset.ended).toBe(0);
  await world.refuses('status --full', 'no slotsync schema yet');
});
