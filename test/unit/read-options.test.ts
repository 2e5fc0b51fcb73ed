// Times that an operator types.
import { describe, expect, it } from 'vitest';
import { readSince, readUntil } from '../../src/commands/read-options.js';
import { parseTime } from '../../src/time/zoned-time.js';

const NOW = new Date('2026-03-28T12:00:00Z');
const STOCKHOLM = 'Europe/Stockholm';

describe('a time given as --until', () => {
  it.each([
    ['90m', '2026-03-28T13:30:00Z'],
    ['14d', '2026-04-11T12:00:00Z'],
    ['2026-03-29', '2026-03-28T23:00:00Z'],
    // Clocks were put forward at two.
    ['2026-03-29 08:00', '2026-03-29T06:00:00Z'],
    ['2026-03-29T08:00Z', '2026-03-29T08:00:00Z'],
  ])('is read: %s', (text, at) => {
    expect(readUntil(text, NOW, STOCKHOLM)).toEqual(new Date(at));
  });

  it.each([
    ['2026-03-28 12:59', /--until is in the past/],
    ['0d', /--until is in the past/],
    ['2026-02-30', /--until takes a duration such as 12h/],
    ['monday', /--until takes a duration such as 12h/],
    ['', /--until takes a duration such as 12h/],
    ['999999999d', /--until takes a duration such as 12h/],
  ])('is refused: %s', (text, why) => {
    expect(() => readUntil(text, NOW, STOCKHOLM)).toThrow(why);
  });
});

describe('a time given as --since', () => {
  it.each([
    ['90m', '2026-03-28T10:30:00Z'],
    ['2026-03-28', '2026-03-27T23:00:00Z'],
    ['2026-03-28 08:00', '2026-03-28T07:00:00Z'],
    ['2026-03-28T08:00Z', '2026-03-28T08:00:00Z'],
  ])('is read: %s', (text, at) => {
    expect(readSince(text, NOW, STOCKHOLM)).toEqual(new Date(at));
  });

  it('is refused when it is in the future', () => {
    expect(() => readSince('2026-03-28 13:01', NOW, STOCKHOLM)).toThrow(/--since is in the future/);
  });
});

it('a time that a clock change skips is an hour later, and a time without any zone is in UTC', () => {
  expect(parseTime('2026-03-29 02:30', STOCKHOLM)).toBe(Date.parse('2026-03-29T01:30:00Z'));
  expect(parseTime('2026-03-29 02:30')).toBe(Date.parse('2026-03-29T02:30:00Z'));
});
