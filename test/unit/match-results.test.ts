import { expect, it } from 'vitest';
import { matchResults } from '../../src/destination/match-results.js';
import type { WriteResult } from '../../src/dialect/dialect.js';

const ok = (extId: string, id?: number): WriteResult => ({ extId, id: id?.toString(), status: 200 });
const match = (sent: readonly string[], ...results: WriteResult[]) =>
  Object.fromEntries(
    matchResults(
      sent.map((extId) => ({ extId })),
      results,
      (extId) => extId,
    ),
  );
const accepted = (id?: number) => ({ accepted: true, id: id?.toString() });
const proposing = (rule: string) => `; if both ids mean one object, set service.externalIds: ${rule}`;
const contradicts = (message: string) => ({ accepted: false, status: undefined, message });

it('results in any order are assigned to their objects', () => {
  expect(match(['a', 'b'], { extId: 'b', status: 400, reason: 'no' }, ok('a', 1))).toEqual({
    a: accepted(1),
    b: { accepted: false, status: 400, message: 'no' },
  });
  expect(match(['a', 'b'], ok('a'), ok('b'))).toEqual({ a: accepted(), b: accepted() });
});

it('an object without a result has no outcome', () => {
  expect(match(['a', 'b'], ok('b', 2))).toEqual({ b: accepted(2) });
});

it('a result under another spelling contradicts its object, and other results count', () => {
  expect(match(['A1', 'b'], ok('a1', 1), ok('b', 2))).toEqual({
    A1: contradicts(`the service knows 'A1' as 'a1'${proposing("{ case: 'insensitive' }")}`),
    b: accepted(2),
  });
  for (const [sent, stored, rule] of [
    ['a ', 'a', '{ trim: true }'],
    ['A\u030a', '\u00c5', "{ normalize: 'NFC' }"],
    ['room_long_name', 'room_long_na', '{ maxLength: 12 }'],
  ] as const)
    expect(match([sent, 'z'], ok(stored), ok('z'))[sent]).toEqual(
      contradicts(`the service knows '${sent}' as '${stored}'${proposing(rule)}`),
    );
});

it('a result for a name that was not sent accepts nothing', () => {
  expect(match(['a'], ok('org:a'))).toEqual({ a: contradicts("the service knows 'a' as 'org:a'") });
  expect(match(['a', 'b'], ok('x', 1), ok('b', 2))).toEqual({
    a: contradicts("the service answered about 'x', which was not sent, but not about 'a'"),
    b: accepted(2),
  });
  expect(match(['a'], ok('a', 1), ok('x', 2))).toEqual({ a: accepted(1) });
});

it('several results for one object accept nothing, whatever they say', () => {
  expect(match(['a', 'b'], ok('a', 1), ok('a', 1), ok('b', 2))).toEqual({
    a: contradicts("the service returned 2 results for 'a'"),
    b: accepted(2),
  });
  expect(match(['a'], ok('a', 1), { extId: 'a', status: 400 })['a']).toMatchObject({ accepted: false });
});

it('two objects with the same number are both not accepted', () => {
  expect(match(['a', 'A', 'b'], ok('a', 1), ok('A', 1), ok('b', 2))).toEqual({
    a: contradicts("the service gave the same number, 1, to 'a' and 'A'"),
    A: contradicts("the service gave the same number, 1, to 'A' and 'a'"),
    b: accepted(2),
  });
});
