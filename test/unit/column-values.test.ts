// Guarantee 10
// Values of char(n), which the driver returns with padding.
import { expect, it } from 'vitest';
import { VALUE_TYPES } from '../../src/mirror/column-values.js';

it('a char(n) value with a million inner spaces is trimmed in linear time', () => {
  const text = `a${' '.repeat(1_000_000)}b`;
  expect(VALUE_TYPES.fixedWidth.parse(`${text}  `) === text).toBe(true);
});
