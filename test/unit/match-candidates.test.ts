import { expect, it } from 'vitest';
import { matchValue, NOT_THERE_YET } from '../../src/sync/identity/match-candidates.js';

const fields = (values: Record<string, string[]>) =>
  Object.entries(values).map(([fieldId, list]) => ({ fieldId, values: list }));

it('match values are equal only if every named field is equal', () => {
  const one = matchValue(['code', 'campus'], fields({ campus: ['N'], code: ['1'], seats: ['4'] }));
  expect(one).toBe(matchValue(['code', 'campus'], fields({ code: ['1'], campus: ['N'] })));
  expect(one).not.toBe(matchValue(['code', 'campus'], fields({ code: ['N'], campus: ['1'] })));
  expect(matchValue(['a', 'b'], fields({ a: ['x'], b: ['y","z'] }))).not.toBe(
    matchValue(['a', 'b'], fields({ a: ['x'], b: ['y', 'z'] })),
  );
});

it('match values are undefined if a field is empty or refers to an object that is not there yet', () => {
  expect(matchValue([], fields({ a: ['x'] }))).toBeUndefined();
  expect(matchValue(['a', 'b'], fields({ a: ['x'] }))).toBeUndefined();
  expect(matchValue(['a'], fields({ a: [''] }))).toBeUndefined();
  expect(matchValue(['a'], fields({ a: ['x', NOT_THERE_YET] }))).toBeUndefined();
});
