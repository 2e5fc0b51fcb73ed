// Output as a terminal shows it: within its width, with colours for statuses, and nothing that data could
// make it obey.
import { afterEach, describe, expect, it, vi } from 'vitest';
import { layOut, openScreen } from '../../src/render/print.js';
import { table } from '../../src/render/table.js';
import { columnsOf, hasColours } from '../../src/process/terminal.js';
import { createScreen } from '../support/screen.js';

const PIPE = { isTTY: false, write: () => true, getColorDepth: () => 1, columns: 0, rows: 0 };
const coloured = { ...createScreen(), getColorDepth: () => 8 };

afterEach(() => {
  vi.restoreAllMocks();
  vi.unstubAllEnvs();
});

describe('a printed text', () => {
  it('is wrapped at words, with the rest indented below its beginning', () => {
    const text =
      'Held in run 12: rooms: 40 of 60 records would be retired, more than 10 and more than 10 %\n' +
      '  → Look at what is held, then approve it, or correct the rows in the mirror and run the sync again';
    expect(layOut(createScreen({ columns: 60 }), text.split('\n')).split('\n')).toEqual([
      'Held in run 12: rooms: 40 of 60 records would be retired,',
      '  more than 10 and more than 10 %',
      '  → Look at what is held, then approve it, or correct the',
      '    rows in the mirror and run the sync again',
    ]);
  });

  const LIMIT = '9 of 20 records would be retired, more than 10 %, since 2026-11-22 21:13 CET (9 min)';
  const LONG = `  → Correct the row in the mirror, then: slotsync retry rooms 'Sal 1, north, 2'`;
  const EMPTY = 'No record is here yet: slotsync plan, then slotsync sync';
  it.each([
    [48, LIMIT, '9 of 20 records would be retired, more than\n  10 %, since 2026-11-22 21:13 CET (9 min)'],
    [40, LIMIT, '9 of 20 records would be retired, more\n  than 10 %, since 2026-11-22 21:13 CET\n  (9 min)'],
    [16, '12 300 of 1 200 300 records', '12 300 of\n1 200 300\nrecords'],
    [50, LONG, `  → Correct the row in the mirror, then:\n    slotsync retry rooms 'Sal 1, north, 2'`],
    [44, EMPTY, 'No record is here yet: slotsync plan, then\n  slotsync sync'],
  ])('keeps a number, its unit and a command on one line, in %i columns: %s', (columns, text, expected) => {
    expect(layOut(createScreen({ columns }), [text])).toBe(expected);
  });

  it('keeps a command that is longer than the terminal in one piece, to be copied', () => {
    const command = `slotsync retry rooms '${'x'.repeat(60)}'`;
    expect(layOut(createScreen({ columns: 50 }), [`Send it again: ${command}`]).split('\n')).toContain(
      `  ${command}`,
    );
  });

  it('stays unwrapped in a pipe, for programs that read it', () => {
    const text = 'x '.repeat(400).trim();
    expect(layOut(PIPE, [text])).toBe(text);
    expect(columnsOf(createScreen({ columns: 0 }))).toBe(80); // a terminal that does not say
  });
});

describe('a printed colour', () => {
  it('marks statuses, also in cells of a table, but no other words', () => {
    const shown = layOut(
      coloured,
      "run  status\n  1  partial\nRun 3 succeeded in 4 s\nrooms 'dead' (room_failed): dead, it failed".split(
        '\n',
      ),
    );
    expect(shown).toBe(
      "run  status\n  1  \x1b[33mpartial\x1b[39m\nRun 3 \x1b[32msucceeded\x1b[39m in 4 s\nrooms 'dead' (room_failed): \x1b[31mdead\x1b[39m, it failed",
    );
  });

  it('cannot come from data, which is made visible first', () => {
    expect(layOut(coloured, ["rooms '\x1b[31mx\x1b[2J': ok"])).toBe(
      String.raw`rooms '\u001b[31mx\u001b[2J': ok`,
    );
  });

  it('is absent in a pipe, unless FORCE_COLOR asks for it', () => {
    vi.stubEnv('FORCE_COLOR', undefined);
    expect([PIPE, createScreen(), coloured].map(hasColours)).toEqual([false, false, true]);
    vi.stubEnv('FORCE_COLOR', '1');
    expect(hasColours(PIPE)).toBe(true);
    vi.stubEnv('FORCE_COLOR', '0');
    expect(hasColours(coloured)).toBe(false);
  });
});

describe('a printed line', () => {
  it('is never begun by data, in a text or in a table', () => {
    const data = 'x\nRun 3 succeeded\v';
    expect(layOut(PIPE, [`rooms '${data}': ok`])).toBe(String.raw`rooms 'x\nRun 3 succeeded\u000b': ok`);
    expect(table(['key', 'n'], [[data, 1]]).split('\n')).toHaveLength(2);
  });
});

describe('a screen that is drawn again', () => {
  const open = (rows: number) => {
    const screen = createScreen({ columns: 20, rows });
    screen.write('$ slotsync status\n');
    vi.spyOn(process, 'stdout', 'get').mockReturnValue(screen as unknown as typeof process.stdout);
    return { screen, drawn: openScreen() };
  };

  it('fits the height and the width, counts the lines that do not fit, and keeps the last line', () => {
    const { screen, drawn } = open(6);
    drawn.draw(['one', 'two', 'three', 'four'], 'q ends it');
    expect(screen.shown()).toEqual(['one', 'two', 'three', 'four', '', 'q ends it']);
    drawn.draw(['1', 'x'.repeat(41), '3', '4'], 'q ends it, at any time');
    expect(screen.shown()).toEqual(['1', 'x'.repeat(20), '… 3 more lines', '4', '', 'q ends it, at any t']);
    drawn.close();
    expect(screen.shown()).toEqual(['$ slotsync status']);
    expect([screen.isAlternate(), screen.isCursorShown()]).toEqual([false, true]);
  });
});
