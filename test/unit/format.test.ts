// Sentences about a count.
import { expect, it } from 'vitest';
import { counted } from '../../src/text/format.js';

it.each([
  [0, '0 rows of {a|b} were deleted, and are lost'],
  [1, '1 row of {a|b} was deleted, and is lost'],
  [1200, '1 200 rows of {a|b} were deleted, and are lost'],
])('a sentence about %s rows agrees with the number, and keeps its values', (rows, sentence) => {
  expect(counted`${rows} row{|s} of ${'{a|b}'} {was|were} deleted, and {is|are} lost`).toBe(sentence);
});
