// Times as an operator types them.
import { UsageError } from '../errors/errors.js';

/** A day, or a time with or without its zone. */
const TIME = /^(\d{4}-\d{2}-\d{2})(?:[T ](\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?)(Z|[+-]\d{2}:?\d{2})?)?$/;
const MINUTE_MS = 60_000;
const UNITS_MS: Record<string, number> = { m: MINUTE_MS, h: 60 * MINUTE_MS, d: 24 * 60 * MINUTE_MS };

/** Milliseconds since 1970. A day is its start in UTC. Throws UsageError that names the option. */
export function readTime(text: string, option: string): number {
  const at = parseTime(text);
  if (at !== undefined) return at;
  throw new UsageError(`${option} takes a day such as 2026-09-01, or an ISO time, not '${text}'`);
}

/** From when on: a duration before now, such as `12h`, `90m` or `7d`, or a time that is over. */
export function readSince(text: string, option: string, now: Date): Date {
  const [, number, unit = ''] = /^(\d+)([mhd])$/.exec(text) ?? [];
  const at = number === undefined ? parseTime(text) : now.getTime() - Number(number) * (UNITS_MS[unit] ?? 0);
  if (at === undefined || at < 0)
    throw new UsageError(
      `${option} takes a duration such as 12h, 90m or 7d, a day such as 2026-09-01, or an ISO time, not '${text}'`,
    );
  if (at > now.getTime()) throw new UsageError(`${option} is in the future: ${text}`);
  return new Date(at);
}

function parseTime(text: string): number | undefined {
  const [, day = '', clock, zone = 'Z'] = TIME.exec(text) ?? [];
  const at = Date.parse(clock === undefined ? day : `${day}T${clock}${zone}`);
  // Date.parse takes 30 February for 2 March.
  const isDay = !Number.isNaN(at) && new Date(Date.parse(day)).toISOString().startsWith(day);
  return at >= 0 && isDay ? at : undefined;
}
