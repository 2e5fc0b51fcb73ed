import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { FieldValue } from '../../src/streams/config-schema.js';
import { toValues } from '../../src/streams/field-values.js';

describe('a value of the mirror', () => {
  it.each<[string, FieldValue, string[]]>([
    ['null sends nothing', null, []],
    ['undefined sends nothing', undefined, []],
    ['text stays as it is', ' Å ', [' Å ']],
    ['empty text is a value', '', ['']],
    ['zero is a value', 0, ['0']],
    ['false is a value', false, ['false']],
    ['true', true, ['true']],
    ['a number', 12.5, ['12.5']],
    ['a number too large for a double', 9_007_199_254_740_993n, ['9007199254740993']],
    ['a date is its day in UTC', new Date('2025-11-20T23:59:59.999Z'), ['2025-11-20']],
    ['a list has several values, in its order', ['b', 'a', 1], ['b', 'a', '1']],
    ['null in a list is left out', ['a', null, 'b'], ['a', 'b']],
    ['an empty list sends nothing', [], []],
    // As PostgreSQL's own unnest reads an array of several dimensions.
    ['a list in a list has its values in the outer one', [['b', null], [['a']]] as never, ['b', 'a']],
  ])('is converted: %s', (_, value, values) => {
    expect(toValues(value)).toEqual(values);
  });

  it('becomes the values of its parts in order when it is a list', () => {
    const scalar = fc.oneof(fc.string(), fc.boolean(), fc.bigInt(), fc.integer(), fc.constant(null));
    fc.assert(
      fc.property(fc.array(scalar), (list) => {
        expect(toValues(list)).toEqual(list.flatMap((one) => toValues(one)));
      }),
    );
  });

  it.each<[string, unknown, string]>([
    ['NaN', Number.NaN, 'NaN is not a number that can be sent'],
    ['infinity', Infinity, 'Infinity is not a number that can be sent'],
    ['an invalid date', new Date('never'), 'the date is not valid'],
    ['an object', { a: 1 }, 'an object cannot be sent; map it to text with a function of the row'],
    ['an object in a list', [{ a: 1 }], 'an object cannot be sent'],
    ['a promise', Promise.resolve('x'), 'a promise cannot be sent; a function of the row must'],
    ['a function', () => 'x', 'a function cannot be sent'],
    ['a symbol', Symbol('x'), 'a symbol cannot be sent'],
  ])('is refused with a reason when it is %s', (_, value, message) => {
    expect(() => toValues(value as FieldValue)).toThrow(message);
  });

  it('leaves no unhandled error when it is a promise that is rejected later', async () => {
    const late = Promise.reject(new Error('late'));
    expect(() => toValues(late as unknown as FieldValue)).toThrow('a promise cannot be sent');
    await new Promise((resolve) => setImmediate(resolve)); // an unhandled rejection would fail the test run
  });
});
