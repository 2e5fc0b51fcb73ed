// Values as SQL text. Quoted values keep their meaning.
import { describe, expect, test } from 'vitest';
import { arrayLiteral, quoteBody } from '../../src/text/sql-text.js';

describe('quoteBody', () => {
  test.each([
    ['SELECT 1', '$slotsync$'],
    ['SELECT "id$slotsync$; DROP TABLE x; --"', '$slotsync1$'],
    ['SELECT "$slotsync$$slotsync1$"', '$slotsync2$'],
    ['SELECT "$slotsync', '$slotsync1$'],
  ])('puts %s between tags that it does not contain', (body, tag) => {
    expect(quoteBody(body)).toBe(`${tag}${body}${tag}`);
  });
});

describe('arrayLiteral', () => {
  test('escapes quotes and backslashes only', () => {
    expect(arrayLiteral(['a', 'b"c', String.raw`d\e`, 'NULL', ''])).toBe(
      String.raw`{"a","b\"c","d\\e","NULL",""}`,
    );
  });

  test('writes undefined as null, and not as the text NULL', () => {
    expect(arrayLiteral([undefined, 'a'])).toBe('{NULL,"a"}');
  });
});
