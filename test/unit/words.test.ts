// The check of the project's language: which words it finds, where, and what it leaves alone.
import { describe, expect, it } from 'vitest';
import { findWords } from '../../scripts/check-words.mjs';

const code = (text: string) => findWords(text, false);
const document = (text: string) => findWords(text, true);

describe('the words of comments, titles and strings', () => {
  it.each(['Of a part, all of it.', 'What it holds.', 'Which rows.', 'Where it stands.', 'One line.'])(
    'a comment that opens with its object or a pronoun is found: %s',
    (comment) => {
      expect(code(`// ${comment}`)).toEqual([expect.stringMatching(/^1: opens with/)]);
      expect(code(`/** ${comment} */`)).toEqual([expect.stringMatching(/^1: opens with/)]);
      expect(code(`/**\n * ${comment}\n */`)).toEqual([expect.stringMatching(/^2: opens with/)]);
    },
  );

  it('only the first line of a comment opens it', () => {
    expect(code('// The rows are read here,\n// Which may take a while.')).toEqual([]);
  });

  it('the title of a test is held to the same', () => {
    expect(code("it('of two rows, neither is sent', () => {")).toHaveLength(1);
    expect(code("  ])('which rows are sent: %s', () => {")).toHaveLength(1);
    expect(code("it('sends neither of two rows', () => {")).toHaveLength(0);
  });

  it.each([
    ['record 7 is dead', 'is given up'],
    ['12 retirements of staff', 'deactivations of'],
    ['nothing is sent since 02:14', 'perfect tense'],
    ['the row gives the id', 'returns'],
    ['the record stands for the object', 'owns'],
    ['they are told', 'is reported'],
  ])('%s: the finding says what to write instead', (sentence, instead) => {
    expect(code(`print('${sentence}');`)).toEqual([expect.stringContaining(instead)]);
    expect(document(`Then ${sentence}.`)).toEqual([expect.stringContaining(instead)]);
  });

  it('names of columns, settings and codes are left alone: identifiers, backticks and code blocks', () => {
    expect(code('const gives = row.dead;')).toEqual([]);
    expect(document('A record is `dead` or `gives`.')).toEqual([]);
    expect(document('```sql\n-- what gives\nSELECT 1\n```')).toEqual([]);
  });
});
