// Tables as text: columns without information are left out, and everything else is shown at every width.
import fc from 'fast-check';
import stringWidth from 'string-width';
import { describe, expect, it } from 'vitest';
import { table } from '../../src/render/table.js';
import { widthOf } from '../../src/render/wrap.js';

const LONG = 'stream_of_the_department_for_international_exchange_students'; // 60 characters

describe('a table', () => {
  it('leaves out the columns whose every number is zero', () => {
    const rows = [
      ['rooms', 3, 0, 0],
      ['courses', 0, 0, 1],
    ];
    expect(table(['stream', 'create', 'update', 'retire'], rows)).toBe(
      'stream   create  retire\nrooms         3       0\ncourses       0       1',
    );
  });

  it('keeps one column of numbers, and columns with words or missing cells', () => {
    expect(table(['records', 'synced', 'dead'], [['rooms', 0, 0]])).toBe('records  synced\nrooms         0');
    expect(table(['stream', 'verified', 'drift'], [['rooms', '–', 0]])).toBe(
      'stream  verified  drift\nrooms   –             0',
    );
    expect(table(['stream', 'create'], [])).toBe('stream  create');
  });

  it('wraps text at words, but not numbers', () => {
    const rows = [['rooms', 12_000, 'took 4 s: twice as many objects took no longer than half of them']];
    expect(table(['type', 'objects a request', 'because'], rows, { columns: 40 }).split('\n')).toEqual([
      'type   objects  because',
      '             a',
      '       request',
      'rooms   12 000  took 4 s: twice as many',
      '                objects took no longer',
      '                than half of them',
    ]);
  });

  it('puts a label that is too long on a line above the rest of its row', () => {
    const headings = ['records', 'synced', 'retired', 'deferred', 'failed', 'dead'];
    const rows = [
      [LONG, 1, 2, 3, 4, 5],
      ['rooms', 6, 7, 8, 9, 10],
    ];
    const made = table(headings, rows, { columns: 80 });
    expect(made.split('\n')[1]).toBe(LONG);
    expect(made).toMatch(/\n +1 +2 +3 +4 +5\nrooms +6 +7 +8 +9 +10$/);
  });

  it('aligns wide letters and letters with marks below their headings', () => {
    const made = table(
      ['stream', 'name', 'x'],
      [
        ['会議室', 'é'.normalize('NFD'), '1'],
        ['rooms', '👩‍🔧', '2'],
      ],
    );
    expect(made).toBe(`stream  name  x\n会議室  ${'é'.normalize('NFD')}     1\nrooms   👩‍🔧    2`);
  });

  it('measures each character as string-width does', () => {
    expect(['❤️', 'e\u0301', '\u200B', '한', '→', '\u00AD'].map(widthOf)).toEqual([2, 1, 0, 2, 1, 0]);
    const characters = Array.from({ length: 0x3000 }, (_, at) => String.fromCodePoint(at));
    expect(characters.filter((one) => widthOf(one) !== stringWidth(one))).toEqual([]);
  });

  it('becomes a list for each row when the headings do not fit', () => {
    const made = table(['run', 'kind', 'started', 'synced'], [[1, 'sync', 'at night', 20]], { columns: 16 });
    expect(made.split('\n')).toEqual(['run: 1', '  kind: sync', '  started: at', 'night', '  synced: 20']);
  });

  it('has no line beyond the width, and cuts nothing, whatever the cells are', () => {
    const word = fc.string({ minLength: 1, maxLength: 70, unit: fc.constantFrom('a', 'Å', '会', ' ', '_') });
    const rows = fc.array(fc.tuple(word, fc.nat(2_000_000), word, fc.nat(9)), { minLength: 1, maxLength: 4 });
    fc.assert(
      fc.property(rows, fc.integer({ min: 24, max: 120 }), (cells, columns) => {
        const made = table(['stream', 'objects', 'what happened', 'x'], cells, { columns });
        for (const line of made.split('\n')) expect(widthOf(line)).toBeLessThanOrEqual(columns);
        const letters = (text: string) => Array.from(text.replaceAll(/\s/g, '')).sort().join('');
        const isList = made.startsWith('stream: ');
        const shown = table(['stream', 'objects', 'what happened', 'x'], cells, { columns: Infinity });
        if (!isList) expect(letters(made)).toBe(letters(shown));
      }),
    );
  });
});

it('a table of 200 000 rows is written', () => {
  const rows = Array.from({ length: 200_000 }, (_, at) => [`R${at}`, at]);
  expect(table(['room', 'seats'], rows, { columns: 80 }).split('\n')).toHaveLength(200_001);
});
