// Guarantee 11
// Consequences of the time at which the mirror was loaded.
import { describe, expect, it } from 'vitest';
import { describeLoad, describeWholeLoad, judgeLoad, toLoadFacts } from '../../src/sync/limits/load-age.js';
import type { LoadReading } from '../../src/mirror/mirror.js';
import { LOAD, NOW } from '../support/situations.js';

const hoursAgo = (hours: number) => new Date(NOW.getTime() - hours * 60 * 60 * 1000);
const BY_QUERY = { query: 'SELECT now()', maxHours: 26, then: 'hold' } as const;
const BY_COLUMN = { column: 'loaded_at', maxHours: 26, then: 'hold' } as const;
const FRESH = { ...LOAD, loadedAt: hoursAgo(3), problem: null, holds: false };

const judge = (
  reading: LoadReading | number,
  {
    noted = FRESH,
    asked = BY_QUERY,
  }: Partial<{ noted: typeof LOAD; asked: Parameters<typeof judgeLoad>[0] }> = {},
) => judgeLoad(asked, typeof reading === 'number' ? { at: hoursAgo(reading) } : reading, { noted, now: NOW });
const said = (...given: Parameters<typeof judge>) => {
  const facts = toLoadFacts(judge(...given));
  return facts && describeWholeLoad(facts);
};

describe('the load of the mirror', () => {
  it.each<[what: string, hours: number, says: string | undefined]>([
    ['as old as it may be', 26, undefined],
    [
      'too old',
      26.5,
      'the load of the mirror is 26 h 30 min old, more than 26 h, and 23 h 30 min older than the one before it',
    ],
    [
      'older than the one before',
      4,
      'the load of the mirror is 1 h 0 min older than the one before it: a backup may have been restored',
    ],
    ['newer than the one before', 1, undefined],
    ['by a clock that is a little ahead', -0.05, undefined],
    [
      'in the future',
      -2,
      'the load of the mirror is said to be 2 h 0 min in the future: a clock is wrong, or a time without a zone is not in UTC',
    ],
  ])('is judged by its age: %s', (what, hours, says) => {
    const noted = what === 'as old as it may be' ? { ...FRESH, loadedAt: hoursAgo(26) } : FRESH;
    expect(said(hours, { noted })).toBe(says);
    expect(judge(hours, { noted }).holds).toBe(says !== undefined);
  });

  it('causes no hold with `warn`, whatever its problem', () => {
    const asked = { ...BY_QUERY, then: 'warn' } as const;
    for (const reading of [40, 4, -2, { fault: 'it returns nothing' }])
      expect(judge(reading, { asked })).toMatchObject({ holds: false, problem: expect.any(String) });
  });

  it('causes a hold if its time is unknown, and the former time stays known', () => {
    const load = judge({ fault: 'it returns 2 columns' });
    expect(load).toMatchObject({ problem: 'unreadable', holds: true, loadedAt: null });
    expect(said({ fault: 'it returns 2 columns' })).toBe(
      'the load of the mirror has no known time: it returns 2 columns',
    );
    // The words of another system are in no text that leaves the installation.
    const facts = toLoadFacts(load);
    expect(facts && describeLoad(facts)).toBe('has no known time');
  });

  it('counts as older until a load is at least as new as the load before the older one', () => {
    const restored = judge(30, { asked: { ...BY_QUERY, maxHours: 100 } });
    expect(restored).toMatchObject({ problem: 'older', olderThan: FRESH.loadedAt });
    const noted = { ...FRESH, ...restored };
    expect(judge(20, { noted })).toMatchObject({ problem: 'older', olderThan: FRESH.loadedAt });
    expect(judge(2, { noted })).toMatchObject({ problem: null, olderThan: null });
  });

  it('may get older in a column whose latest row was deleted, which causes no hold', () => {
    const load = judge(4, { asked: BY_COLUMN });
    expect(load).toMatchObject({ problem: null, holds: false, olderThan: FRESH.loadedAt });
    expect(judge(40, { asked: BY_COLUMN })).toMatchObject({ problem: 'too_old', holds: true });
  });
});
