// Which moments a schedule has, the two nights on which clocks change included.
import { describe, expect, it } from 'vitest';
import { findPatternFault, latestDue, nextDue } from '../../src/cron-schedule.js';
import { countProcessorTime } from '../support/wait.js';

const STOCKHOLM = { pattern: '30 2 * * *', timezone: 'Europe/Stockholm' };
const at = (text: string) => new Date(text);

/** The moments between two times, asked for one after the other. */
function moments(schedule: typeof STOCKHOLM, from: string, to: string): string[] {
  const found: string[] = [];
  for (let due = nextDue(schedule, at(from)); due < at(to); due = nextDue(schedule, due))
    found.push(due.toISOString());
  return found;
}

describe('a night at 02:30 in Stockholm', () => {
  it('comes an hour later on the wall when the clock leaves 02:30 out', () => {
    expect(moments(STOCKHOLM, '2026-03-28T00:00:00Z', '2026-03-31T00:00:00Z')).toEqual([
      '2026-03-28T01:30:00.000Z', // 02:30
      '2026-03-29T01:30:00.000Z', // 03:30: there is no 02:30
      '2026-03-30T00:30:00.000Z', // 02:30
    ]);
  });

  it('comes once when the clock shows 02:30 twice', () => {
    expect(moments(STOCKHOLM, '2026-10-24T00:00:00Z', '2026-10-27T00:00:00Z')).toEqual([
      '2026-10-24T00:30:00.000Z',
      '2026-10-25T00:30:00.000Z', // the first 02:30
      '2026-10-26T01:30:00.000Z',
    ]);
  });

  it.each([
    ['2026-10-25T00:29:59Z', '2026-10-25T00:30:00.000Z'],
    ['2026-10-25T00:30:00Z', '2026-10-26T01:30:00.000Z'],
    ['2026-10-25T01:10:00Z', '2026-10-26T01:30:00.000Z'], // between the two
    ['2026-10-25T01:30:00Z', '2026-10-26T01:30:00.000Z'],
    ['2026-03-29T01:10:00Z', '2026-03-29T01:30:00.000Z'], // in the hour after the gap
  ])('after %s is at %s, wherever one starts to ask', (after, due) => {
    expect(nextDue(STOCKHOLM, at(after)).toISOString()).toBe(due);
  });
});

describe('the latest moment that is due', () => {
  const nightly = { pattern: '0 2 * * *', timezone: 'UTC' };

  it.each([
    ['none yet', '2026-05-01T02:00:00Z', '2026-05-02T01:59:59Z', undefined],
    ['this very moment', '2026-05-01T02:00:00Z', '2026-05-02T02:00:00Z', '2026-05-02T02:00:00.000Z'],
    ['one of several', '2026-05-01T02:00:00Z', '2026-05-20T12:00:00Z', '2026-05-20T02:00:00.000Z'],
    ['registered after it', '2026-05-20T02:00:01Z', '2026-05-20T12:00:00Z', undefined],
  ])('is %s', (_, since, now, due) => {
    expect(latestDue(nightly, at(since), at(now))?.toISOString()).toBe(due);
  });

  it('is found at once after years of missed minutes', () => {
    const spentMs = countProcessorTime();
    const due = latestDue(
      { pattern: '* * * * *', timezone: 'UTC' },
      at('2020-01-01T00:00:00Z'),
      at('2026-01-01T00:00:30Z'),
    );
    expect(due?.toISOString()).toBe('2026-01-01T00:00:00.000Z');
    expect(spentMs()).toBeLessThan(3000);
  });

  it('is found years back', () => {
    const leap = { pattern: '0 0 29 2 *', timezone: 'UTC' };
    expect(latestDue(leap, at('2023-01-01T00:00:00Z'), at('2027-01-01T00:00:00Z'))?.toISOString()).toBe(
      '2024-02-29T00:00:00.000Z',
    );
  });
});

describe('a pattern', () => {
  it.each([
    ['0 0 31 2 *', "'0 0 31 2 *' never occurs: no such month has such a day"],
    ['0 0 31 2,4 *', "'0 0 31 2,4 *' never occurs: no such month has such a day"],
    ['0 2', "'0 2' is not minute, hour, day, month, weekday"],
    ['0 0 2 * * *', "'0 0 2 * * *' is not minute, hour, day, month, weekday"],
    ['H 2 * * *', "'H 2 * * *' is not minute, hour, day, month, weekday"],
    ['60 2 * * *', expect.stringMatching(/^'60 2 \* \* \*' cannot be read: .*60.*0-59/)],
    ['x 2 * * *', expect.stringMatching(/^'x 2 \* \* \*' cannot be read: .*x/)],
  ])('%s is refused with its fault', (pattern, fault) => {
    expect(findPatternFault(pattern)).toEqual(fault);
  });

  it.each(['0 2 * * *', '0 0 29 2 *', '0 2 * * MON-FRI', '*/5 0-4 1,15 * *', '0 0 L * *', '0 2 * * THU'])(
    '%s can be followed',
    (pattern) => {
      expect(findPatternFault(pattern)).toBeUndefined();
    },
  );
});
