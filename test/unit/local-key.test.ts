import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { joinKey, splitKey } from '../../src/streams/local-key.js';

const anyPart = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 6 }),
  fc.string({ unit: fc.constantFrom('|', '\\', 'a', '😀'), maxLength: 6 }),
);
const anyKey = fc
  .integer({ min: 1, max: 4 })
  .chain((count) => fc.array(anyPart, { minLength: count, maxLength: count }));

describe('a local key', () => {
  it('is the text of its column, if it has one column', () => {
    expect(joinKey([String.raw`a|b\c`])).toBe(String.raw`a|b\c`);
    expect(joinKey([''])).toBe('');
  });

  it('joins several columns by |, and escapes | and \\ inside a part', () => {
    expect(joinKey(['TEK', '2025'])).toBe('TEK|2025');
    expect(joinKey(['a|b', String.raw`c\d`, ''])).toBe(String.raw`a\|b|c\\d|`);
  });

  it('is split into the parts that it was joined from', () => {
    fc.assert(
      fc.property(anyKey, (parts) => {
        expect(splitKey(joinKey(parts), parts.length)).toEqual(parts);
      }),
    );
  });

  it('differs for different parts', () => {
    const twoKeys = fc.integer({ min: 2, max: 3 }).chain((count) => {
      const key = fc.array(fc.string({ unit: fc.constantFrom('|', '\\', 'a'), maxLength: 3 }), {
        minLength: count,
        maxLength: count,
      });
      return fc.tuple(key, key);
    });
    fc.assert(
      fc.property(twoKeys, ([a, b]) => {
        expect(joinKey(a) === joinKey(b)).toBe(JSON.stringify(a) === JSON.stringify(b));
      }),
      { numRuns: 1000 },
    );
  });

  it.each([
    ['too few parts', 'a|b', 3],
    ['too many parts', 'a|b|c', 2],
    ['an escaped | where a part should end', String.raw`a\|b`, 2],
  ])('is refused with %s', (_, key, count) => {
    expect(splitKey(key, count)).toBeUndefined();
  });
});
