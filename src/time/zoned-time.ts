// Converts between a time and what the clock of a time zone shows: for schedules, and for times in options and in the
// configuration. Bookings are converted in SQL, by PostgreSQL: `instant` of mirror/read-bookings.ts.

/** The clock of a time zone: what it shows at a time, read as if it were UTC. Milliseconds. */
export function createWallClock(timeZone: string): (atMs: number) => number {
  // Swedish writes dates as ISO 8601 does.
  const format = new Intl.DateTimeFormat('sv-SE', { timeZone, dateStyle: 'short', timeStyle: 'medium' });
  return (atMs) => Date.parse(`${format.format(atMs).replace(' ', 'T')}Z`);
}

/** A day, or a time with or without its zone. */
const TIME = /^(\d{4}-\d{2}-\d{2})(?:[T ](\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?)(Z|[+-]\d{2}:?\d{2})?)?$/;

/**
 * Milliseconds since 1970 of a day, which is its start, or of an ISO time; undefined: the text is neither. Without a zone it is
 * read by the clock of `timeZone`; a time that a clock change leaves out is taken as if the clock had not changed.
 */
export function parseTime(text: string, timeZone = 'UTC'): number | undefined {
  const [, day = '', clock, zone] = TIME.exec(text) ?? [];
  const at = Date.parse(`${day}T${clock ?? '00:00'}${zone ?? 'Z'}`);
  // Date.parse takes 30 February for 2 March.
  const isDay = !Number.isNaN(at) && new Date(Date.parse(day)).toISOString().startsWith(day);
  if (at < 0 || !isDay) return undefined;
  if (zone !== undefined || timeZone === 'UTC') return at;
  const wallClock = createWallClock(timeZone);
  const about = at - (wallClock(at) - at);
  return at - (wallClock(about) - about);
}
