// Values as SQL text: what stands between quotes stays what it was.
import { describe, expect, test } from 'vitest';
import { arrayLiteral, quoteBody } from '../../src/text/sql-text.js';

describe('quoteBody', () => {
  test.each([
    ['SELECT 1', '$slotsync$'],
    ['SELECT "id$slotsync$; DROP TABLE x; --"', '$slotsync1$'],
    ['SELECT "$slotsync$$slotsync1$"', '$slotsync2$'],
    ['SELECT "$slotsync', '$slotsync1$'],
  ])('%s stands between tags that end it', (body, tag) => {
    expect(quoteBody(body)).toBe(`${tag}${body}${tag}`);
  });
});

describe('arrayLiteral', () => {
  test('quotes and backslashes are escaped, other texts stand as they are', () => {
    expect(arrayLiteral(['a', 'b"c', String.raw`d\e`, 'NULL', ''])).toBe(
      String.raw`{"a","b\"c","d\\e","NULL",""}`,
    );
  });

  test('undefined is null, and not the text NULL', () => {
    expect(arrayLiteral([undefined, 'a'])).toBe('{NULL,"a"}');
  });
});
