import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  findRule,
  isSimilarId,
  keyOf,
  toRule,
  type ExternalIdRule,
} from '../../src/streams/external-id-rule.js';

describe('the compared form of an external id', () => {
  it.each<[ExternalIdRule, string, string]>([
    [{ case: 'insensitive' }, 'Room_ÅÄ1', 'room_åä1'],
    [{ trim: true }, ' \tA 1\n', 'A 1'],
    [{ normalize: 'NFC' }, 'A\u030a', '\u00c5'],
    [{ maxLength: 3 }, 'a😀bc', 'a😀b'],
    [{ maxLength: 3, trim: true }, ' ab cd', 'ab'],
    [{ case: 'insensitive', trim: true, normalize: 'NFC', maxLength: 2 }, ' A\u030aBc', '\u00e5b'],
    [{ case: 'sensitive', trim: false }, ' A ', ' A '],
  ])('follows the rule %j: %j becomes %j', (rule, extId, key) => {
    expect(keyOf(rule, extId)).toBe(key);
  });

  it('is unchanged when it is formed again', () => {
    const rules = fc.record<ExternalIdRule>({
      case: fc.constantFrom('sensitive', 'insensitive'),
      trim: fc.boolean(),
      normalize: fc.constantFrom(undefined, 'NFC'),
      maxLength: fc.constantFrom(undefined, 1, 3, 8),
    });
    fc.assert(
      fc.property(rules, fc.string({ unit: 'binary' }), (rule, extId) => {
        const key = keyOf(rule, extId);
        expect(keyOf(rule, key)).toBe(key);
      }),
    );
  });

  it('is the id itself without a rule in the configuration', () => {
    expect(toRule(undefined)).toBeUndefined();
    expect(toRule({ case: 'sensitive', trim: false })).toBeUndefined();
    expect(toRule({ trim: true })).toEqual({ trim: true });
  });
});

it('the rule proposed for two external ids is the shortest that makes them equal', () => {
  expect(findRule('a1', 'A1')).toEqual({ case: 'insensitive' });
  expect(findRule('A', 'A ')).toEqual({ trim: true });
  expect(findRule('\u00c5', 'A\u030a')).toEqual({ normalize: 'NFC' });
  expect(findRule('room_lo', 'room_long')).toEqual({ maxLength: 7 });
  expect(findRule('a1', ' A1')).toEqual({ case: 'insensitive', trim: true });
  expect(findRule('b', 'A')).toBeUndefined();
  expect(isSimilarId('b', 'A')).toBe(false);
});
