// Guarantee 9
// Redaction in the logger, the last guard against a secret that a caller logs.
import { existsSync, readFileSync, rmSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { nameOfZone } from '../../src/text/format.js';
import { createLogger, logUnexpected } from '../../src/process/logger.js';
import { createFolder } from '../support/folders.js';
import { createScreen } from '../support/screen.js';

const FIELDS = ['authorization', 'apiKey', 'token', 'password', 'connectionString', 'databaseUrl'];

const folder = createFolder('logger');

describe.each([
  { place: 'a file', terminal: undefined },
  { place: 'a terminal', terminal: { timeZone: 'Europe/Stockholm', hasColours: true } },
])('a log line for $place', ({ place, terminal }) => {
  it.each(FIELDS)('hides the field %s at any depth', async (field) => {
    const file = path.join(folder, `${field}-${place}.log`);
    const log = createLogger('info', terminal, file);
    log.info({ [field]: 'hunter2' }, 'at the top');
    log.info({ request: { [field]: 'hunter2' } }, 'inside');
    log.info({ request: { headers: { [field]: 'hunter2', host: 'shown' } } }, 'deeper');
    log.child({ [field]: 'hunter2' }).info('of a child');
    const written = readFileSync(file, 'utf8');
    expect(written).not.toContain('hunter2');
    expect(written.match(/\[secret\]/g)).toHaveLength(4);
    expect(written).toContain('shown');
  });

  it('escapes control characters, wherever they stand', async () => {
    const file = path.join(folder, `controls-${place}.log`);
    const log = createLogger('info', terminal, file);
    const text = 'a\x1b]0;x\x07b\u202Ec\x9bd\x7fe';
    log.info({ text, inside: { [text]: [text] }, err: new Error(text) }, text);
    const written = readFileSync(file, 'utf8').replaceAll(/\r?\p{Cc}\[\d*[mJ]/gu, ''); // our own
    expect(written).not.toMatch(/(?!\n)[\p{Cc}\p{Bidi_Control}]/u);
    const shown = written.split('a\\u001b]0;x\\u0007b\\u202ec\\u009bd\\u007fe').length - 1;
    expect(shown).toBeGreaterThanOrEqual(4);
  });
});

describe('a log line on a terminal', () => {
  it('contains no line break of a message or of a name of a field', () => {
    const data = 'a\nwarn sending stopped';
    expect(lineOf({ [data]: data }, data)).toEqual([
      expect.stringContaining(String.raw`a\nwarn sending stopped  a\nwarn`),
    ]);
  });

  const lineOf = (facts: object, message: string, timeZone?: string) => {
    const file = path.join(folder, 'lines.log');
    rmSync(file, { force: true });
    createLogger('info', { timeZone, hasColours: false }, file).warn(facts, message);
    const screen = createScreen({ columns: 1000 });
    screen.write('a drawn line that is longer than most others are\r');
    screen.write(readFileSync(file, 'utf8'));
    return screen.shown();
  };

  it('has its facts after the message, and replaces a line that is drawn', () => {
    const facts = { runId: 3, stream: 'rooms', reason: 'refused\nas before', counts: { dead: 1 } };
    expect(lineOf(facts, 'throttled', 'Europe/Stockholm')).toEqual([
      expect.stringMatching(
        /^\d\d:\d\d:\d\d CES?T warn throttled {2}runId=3 stream=rooms reason="refused\\nas before" counts={"dead":1}$/,
      ),
    ]);
  });

  it('shows a time among its facts in its own time zone', () => {
    const [line] = lineOf(
      { dueAt: new Date('2026-11-23T01:00:00.000Z'), text: '2026' },
      'x',
      'Europe/Stockholm',
    );
    expect(line).toMatch(/dueAt="2026-11-23 02:00:00 CET" text=2026$/);
  });

  it('follows a time zone that becomes known later', () => {
    const file = path.join(folder, 'zones.log');
    const terminal = { timeZone: 'UTC', hasColours: false };
    const log = createLogger('info', terminal, file);
    terminal.timeZone = 'Asia/Tokyo';
    log.info('x');
    expect(readFileSync(file, 'utf8')).toMatch(/:\d\d GMT\+9 info x/);
  });

  it('names its time zone: that of the settings, else that of the machine', () => {
    const zone = (line = '') => line.split(' ')[1];
    expect(zone(lineOf({}, 'x', 'UTC')[0])).toBe('UTC');
    expect(zone(lineOf({}, 'x')[0])).toBe(nameOfZone(new Date()));
  });
});

it.skipIf(!existsSync('/dev/full'))('a log line that cannot be written is lost without an error', () => {
  const log = createLogger('info', undefined, '/dev/full');
  for (let line = 1; line <= 3; line++) expect(() => log.info('no room')).not.toThrow();
});

describe('the log of an unexpected error', () => {
  const SECRET = 'hunter2';
  const logTwice = (error: unknown) => {
    const file = path.join(folder, 'unexpected.log');
    rmSync(file, { force: true });
    const log = createLogger('error', undefined, file).child({ runId: 7 });
    logUnexpected(log, error);
    logUnexpected(log, error);
    return existsSync(file) ? readFileSync(file, 'utf8') : '';
  };

  it('has classes, codes and frames of the chain once, and no message', () => {
    const driver = Object.assign(new SyntaxError(`invalid "${SECRET}"\n    at ${SECRET}`), {
      code: '22P02',
      detail: SECRET,
    });
    const error = new TypeError(`redis://:${SECRET}@host`, { cause: driver });
    const written = logTwice(error);
    expect(written).not.toContain(SECRET);
    expect(written.trim().split('\n')).toHaveLength(1);
    const line = JSON.parse(written) as { level: number; runId: number; chain: { at: string[] }[] };
    expect(line).toMatchObject({
      level: 50,
      runId: 7,
      chain: [
        { name: 'TypeError', code: 'unexpected' },
        { name: 'SyntaxError', code: '22P02' },
      ],
    });
    for (const { at } of line.chain) expect(at[0]).toContain('logger.test.ts');
  });

  it('leaves out an error that has a code of its own', () => {
    expect(logTwice(Object.assign(new Error('refused'), { code: 'ECONNREFUSED' }))).toBe('');
  });
});
