// Parses option values that an operator types: whole numbers and times.
import { UsageError } from '../errors/errors.js';
import { parseTime } from '../time/zoned-time.js';

const MINUTE_MS = 60_000;
const UNITS_MS: Record<string, number> = { m: MINUTE_MS, h: 60 * MINUTE_MS, d: 24 * 60 * MINUTE_MS };

/** Returns milliseconds since 1970. A day means its start in UTC. The UsageError names the option. */
export function readTime(text: string, option: string): number {
  const at = parseTime(text);
  if (at !== undefined) return at;
  throw new UsageError(`${option} takes a day such as 2026-09-01, or an ISO time, not '${text}'`);
}

/** Parses a past time: a duration before now, such as `12h`, `90m` or `7d`, or a time in the time zone. */
export function readSince(text: string, option: string, now: Date, timeZone: string): Date {
  const at = readTimeOrDuration(text, option, (ms) => now.getTime() - ms, timeZone);
  if (at > now.getTime()) throw new UsageError(`${option} is in the future: ${text}`);
  return new Date(at);
}

/** Parses a future time: a duration from now, such as `14d`, or a time in the time zone. */
export function readUntil(text: string, option: string, now: Date, timeZone: string): Date {
  const at = readTimeOrDuration(text, option, (ms) => now.getTime() + ms, timeZone);
  if (at <= now.getTime()) throw new UsageError(`${option} is in the past: ${text}`);
  return new Date(at);
}

function readTimeOrDuration(
  text: string,
  option: string,
  fromNow: (ms: number) => number,
  timeZone: string,
): number {
  const [, number, unit = ''] = /^(\d{1,6})([mhd])$/.exec(text) ?? [];
  const at =
    number === undefined ? parseTime(text, timeZone) : fromNow(Number(number) * (UNITS_MS[unit] ?? 0));
  if (at !== undefined && at >= 0) return at;
  throw new UsageError(
    `${option} takes a duration such as 12h, 90m or 7d, a day such as 2026-09-01, or an ISO time, not '${text}'`,
  );
}

/** Returns a parser of whole numbers from `min` to `max`. The message of its UsageError begins with `what`. */
export const wholeNumber =
  (what: string, { min = 1, max = Infinity, unit = '' } = {}) =>
  (text: string): number => {
    const value = Number(text);
    if (/^\s*\d+\s*$/.test(text) && Number.isSafeInteger(value) && value >= min && value <= max) return value;
    const bounds = `from ${min} ${max === Infinity ? 'on' : `to ${max}`}`;
    throw new UsageError(`${what} a whole number ${unit}${bounds}, not '${text}'`);
  };

export const runNumber = wholeNumber('a run is');
