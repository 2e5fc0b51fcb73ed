// Guarantee 10
// The text of a char(n), which the driver hands over with its padding.
import { expect, it } from 'vitest';
import { VALUE_TYPES } from '../../src/mirror/column-values.js';

it('char(n): a million spaces inside a value take no time by their square', () => {
  const text = `a${' '.repeat(1_000_000)}b`;
  expect(VALUE_TYPES.fixedWidth.parse(`${text}  `) === text).toBe(true);
});
