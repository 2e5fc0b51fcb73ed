// Converts between times and the clock of a time zone: for schedules, and for times in options and in the
// configuration. PostgreSQL converts the times of bookings in SQL (`instant` in mirror/read-bookings.ts).

/** Returns a function from a time to the zone's clock at that time, as milliseconds of the same clock time in UTC. */
export function createWallClock(timeZone: string): (atMs: number) => number {
  // The Swedish locale formats dates as in ISO 8601.
  const format = new Intl.DateTimeFormat('sv-SE', { timeZone, dateStyle: 'short', timeStyle: 'medium' });
  return (atMs) => Date.parse(`${format.format(atMs).replace(' ', 'T')}Z`);
}

/** Matches a day, or a time with or without its zone. */
const TIME = /^(\d{4}-\d{2}-\d{2})(?:[T ](\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?)(Z|[+-]\d{2}:?\d{2})?)?$/;

/**
 * Returns the milliseconds since 1970 of an ISO time, or of the start of a day. Undefined for any other text. A time
 * without a zone is a clock time in `timeZone`. A time that a clock change leaves out is converted as if there were no
 * change.
 */
export function parseTime(text: string, timeZone = 'UTC'): number | undefined {
  const [, day = '', clock, zone] = TIME.exec(text) ?? [];
  const at = Date.parse(`${day}T${clock ?? '00:00'}${zone ?? 'Z'}`);
  // Date.parse converts 30 February to 2 March.
  const isDay = !Number.isNaN(at) && new Date(Date.parse(day)).toISOString().startsWith(day);
  if (at < 0 || !isDay) return undefined;
  if (zone !== undefined || timeZone === 'UTC') return at;
  const wallClock = createWallClock(timeZone);
  const about = at - (wallClock(at) - at);
  return at - (wallClock(about) - about);
}
