// Parses option values that an operator types: whole numbers and times.
import { UsageError } from '../errors/errors.js';
import { parseTime } from '../time/zoned-time.js';

const MINUTE_MS = 60_000;
const UNITS_MS: Record<string, number> = { m: MINUTE_MS, h: 60 * MINUTE_MS, d: 24 * 60 * MINUTE_MS };

/** Returns milliseconds since 1970. A day means its start in UTC. The UsageError names the option. */
export function readTime(text: string | undefined, option: string): number | undefined {
  const at = text === undefined ? undefined : parseTime(text);
  if (at !== undefined || text === undefined) return at;
  throw new UsageError(`${option} takes a day such as 2026-09-01, or an ISO time, not '${text}'`);
}

/** Parses `--since`: a duration before now, such as `12h`, `90m` or `7d`, or a past time in the time zone. */
export function readSince(text: string | undefined, now: Date, timeZone: string): Date | undefined {
  if (text === undefined) return undefined;
  const at = readTimeOrDuration('--since', text, { now, sign: -1, timeZone });
  if (at > now) throw new UsageError(`--since is in the future: ${text}`);
  return at;
}

/** Parses `--until`: a duration from now, such as `14d`, or a future time in the time zone. */
export function readUntil(text: string, now: Date, timeZone: string): Date {
  const at = readTimeOrDuration('--until', text, { now, sign: 1, timeZone });
  if (at <= now) throw new UsageError(`--until is in the past: ${text}`);
  return at;
}

function readTimeOrDuration(
  option: string,
  text: string,
  { now, sign, timeZone }: { now: Date; sign: 1 | -1; timeZone: string },
): Date {
  const [, number, unit = ''] = /^(\d{1,6})([mhd])$/.exec(text) ?? [];
  const at =
    number === undefined
      ? parseTime(text, timeZone)
      : now.getTime() + sign * Number(number) * (UNITS_MS[unit] ?? 0);
  if (at !== undefined && at >= 0) return new Date(at);
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
