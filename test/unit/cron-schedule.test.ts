// Occurrences of a schedule, also in the two nights in which clocks change.
import { describe, expect, it } from 'vitest';
import { findPatternFault, latestDue, nextDue } from '../../src/time/cron-schedule.js';
import { countProcessorTime } from '../support/wait.js';

const STOCKHOLM = { pattern: '30 2 * * *', timezone: 'Europe/Stockholm' };
const at = (text: string) => new Date(text);

/** Returns the occurrences between two times, each found from the one before. */
function moments(schedule: typeof STOCKHOLM, from: string, to: string): string[] {
  const found: string[] = [];
  for (let due = nextDue(schedule, at(from)); due < at(to); due = nextDue(schedule, due))
    found.push(due.toISOString());
  return found;
}

describe('a nightly schedule at 02:30 in Stockholm', () => {
  it('occurs at 03:30 when the clock skips 02:30', () => {
    expect(moments(STOCKHOLM, '2026-03-28T00:00:00Z', '2026-03-31T00:00:00Z')).toEqual([
      '2026-03-28T01:30:00.000Z', // 02:30
      '2026-03-29T01:30:00.000Z', // 03:30: there is no 02:30
      '2026-03-30T00:30:00.000Z', // 02:30
    ]);
  });

  it('occurs once when the clock shows 02:30 twice', () => {
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
  ])('occurs after %s next at %s', (after, due) => {
    expect(nextDue(STOCKHOLM, at(after)).toISOString()).toBe(due);
  });
});

const MINUTE = 60_000;
const DAY = 24 * 60 * MINUTE;
const AROUND = 2 * DAY;
/** Offsets of starting times from a clock change: dense near the change, sparse on the days beside it. */
const STARTS = [
  ...Array.from({ length: 16 }, (_, at) => (at - 8) * 30 * MINUTE),
  ...Array.from({ length: 16 }, (_, at) => (at - 8) * 180 * MINUTE),
];

/** The wall clock of a zone, `2026-04-05 02:00`. */
const clockOf = (timeZone: string) => {
  const format = new Intl.DateTimeFormat('sv-SE', { timeZone, dateStyle: 'short', timeStyle: 'short' });
  return (atMs: number) => format.format(atMs);
};

/** Returns when the offset of a zone changed in a year, to the hour. */
function changesOf(show: (atMs: number) => string, year: number): number[] {
  const offset = (atMs: number) => Date.parse(`${show(atMs).replace(' ', 'T')}Z`) - atMs;
  const hours = Array.from({ length: 366 * 24 }, (_, hour) => Date.UTC(year, 0, 1) + hour * 60 * MINUTE);
  const offsets = hours.map(offset);
  return hours.filter((_, at) => at > 0 && offsets[at] !== offsets[at - 1]);
}

/** Returns when the clock first shows each minute of the days around a change. Skipped minutes are missing. */
function minutesAround(show: (atMs: number) => string, change: number): Map<string, number> {
  const first = new Map<string, number>();
  for (let atMs = change - AROUND; atMs < change + AROUND; atMs += 5 * MINUTE)
    if (!first.has(show(atMs))) first.set(show(atMs), atMs);
  return first;
}

describe.each([
  ['Australia/Lord_Howe', [2025, 2026], 2], // by half an hour
  ['Europe/Stockholm', [2026], 2],
  ['America/New_York', [2026], 2],
  ['Africa/Casablanca', [2026], 2],
  ['America/Havana', [2026], 2], // at midnight
  ['Asia/Kathmandu', [1985], 1], // by a quarter of an hour
  ['Pacific/Apia', [2011], 3], // once by a day
] as const)('a daily schedule around the clock changes of %s', (timezone, years, changesOfYear) => {
  const show = clockOf(timezone);

  it('occurs once a day, at its time if the clock shows it, from any starting time', () => {
    const changes = years.flatMap((year) => changesOf(show, year));
    expect(changes).toHaveLength(years.length * changesOfYear);
    for (const change of changes) {
      const first = minutesAround(show, change);
      const days = [...new Set([...first.keys()].map((shown) => shown.slice(0, 10)))].slice(1, -1);
      for (const time of ['00:00', '00:15', '01:00', '01:45', '02:00', '02:15', '02:40', '03:00', '23:45']) {
        const [hour, minute] = time.split(':').map(Number);
        const schedule = { pattern: `${minute} ${hour} * * *`, timezone };
        const found: number[] = [];
        const next = (atMs: number) => nextDue(schedule, new Date(atMs)).getTime();
        for (let due = next(change - AROUND); due < change + AROUND; due = next(due)) found.push(due);
        for (const day of days) {
          const ofDay = found.filter((due) => show(due).startsWith(day));
          const what = `${day} ${time} in ${timezone}`;
          expect(ofDay, what).toHaveLength(1);
          const expected = first.get(`${day} ${time}`);
          if (expected !== undefined) expect(ofDay, what).toEqual([expected]);
          else expect(show(ofDay[0] ?? 0) > `${day} ${time}`, what).toBe(true);
        }
        for (const atMs of STARTS.map((ms) => change + ms))
          expect(next(atMs), time).toBe(found.find((due) => due > atMs));
      }
    }
  });
});

it('an hourly schedule occurs in both hours when the clock is put back', () => {
  const hourly = { pattern: '30 * * * *', timezone: 'Europe/Stockholm' };
  expect(moments(hourly, '2026-10-24T23:00:00Z', '2026-10-25T03:00:00Z')).toEqual([
    '2026-10-24T23:30:00.000Z',
    '2026-10-25T00:30:00.000Z', // the first 02:30
    '2026-10-25T01:30:00.000Z', // the second
    '2026-10-25T02:30:00.000Z',
  ]);
});

it('a schedule keeps the order of its times when the clock skips half an hour', () => {
  const often = { pattern: '0,20,40 2 * * *', timezone: 'Australia/Lord_Howe' };
  expect(moments(often, '2026-10-03T00:00:00Z', '2026-10-04T00:00:00Z')).toEqual([
    '2026-10-03T15:30:00.000Z', // 02:30 in the place of 02:00
    '2026-10-03T15:40:00.000Z', // 02:40
    '2026-10-03T15:50:00.000Z', // 02:50 in the place of 02:20
  ]);
});

describe('the latest due time of a schedule', () => {
  const nightly = { pattern: '0 2 * * *', timezone: 'UTC' };

  it.each([
    ['none has occurred', '2026-05-01T02:00:00Z', '2026-05-02T01:59:59Z', undefined],
    ['one occurs now', '2026-05-01T02:00:00Z', '2026-05-02T02:00:00Z', '2026-05-02T02:00:00.000Z'],
    ['several have occurred', '2026-05-01T02:00:00Z', '2026-05-20T12:00:00Z', '2026-05-20T02:00:00.000Z'],
    ['registered after the occurrence', '2026-05-20T02:00:01Z', '2026-05-20T12:00:00Z', undefined],
  ])('is the last occurrence since the registration: %s', (_, since, now, due) => {
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

  it('is found although the pattern occurs only every four years', () => {
    const leap = { pattern: '0 0 29 2 *', timezone: 'UTC' };
    expect(latestDue(leap, at('2023-01-01T00:00:00Z'), at('2027-01-01T00:00:00Z'))?.toISOString()).toBe(
      '2024-02-29T00:00:00.000Z',
    );
  });
});

describe('a cron pattern', () => {
  it.each([
    ['0 0 31 2 *', "'0 0 31 2 *' never occurs: none of its months has that day"],
    ['0 0 31 2,4 *', "'0 0 31 2,4 *' never occurs: none of its months has that day"],
    ['0 2', "'0 2' does not have the five fields minute, hour, day, month, weekday"],
    ['0 0 2 * * *', "'0 0 2 * * *' does not have the five fields minute, hour, day, month, weekday"],
    ['H 2 * * *', "'H 2 * * *' does not have the five fields minute, hour, day, month, weekday"],
    ['60 2 * * *', expect.stringMatching(/^'60 2 \* \* \*' cannot be read: .*60.*0-59/)],
    ['x 2 * * *', expect.stringMatching(/^'x 2 \* \* \*' cannot be read: .*x/)],
  ])('is refused with its fault: %s', (pattern, fault) => {
    expect(findPatternFault(pattern)).toEqual(fault);
  });

  it.each(['0 2 * * *', '0 0 29 2 *', '0 2 * * MON-FRI', '*/5 0-4 1,15 * *', '0 0 L * *', '0 2 * * THU'])(
    'is accepted: %s',
    (pattern) => {
      expect(findPatternFault(pattern)).toBeUndefined();
    },
  );
});
