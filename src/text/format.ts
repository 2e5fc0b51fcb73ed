// Formats numbers, durations and times for people: on a terminal, on the page and in messages.

export function formatNumber(value: number): string {
  return value.toLocaleString('en-US').replaceAll(',', ' ');
}

/** Formats a count with its noun: `3 rows`, `1 row`. */
export function plural(count: number, singular: string, many = `${singular}s`): string {
  return `${formatNumber(count)} ${count === 1 ? singular : many}`;
}

/**
 * Formats a sentence about a count, which is the first number in it: counted`${1} row{|s} {was|were} deleted` is `1 row
 * was deleted`. Only the words of the template may have such forms, not its values.
 */
export function counted(strings: TemplateStringsArray, ...values: readonly (string | number)[]): string {
  const form = values.find((value) => typeof value === 'number') === 1 ? '$1' : '$2';
  const raw = strings.map((words) => words.replaceAll(/\{([^{|}]*)\|([^{|}]*)\}/g, form));
  return String.raw(
    { raw },
    ...values.map((value) => (typeof value === 'number' ? formatNumber(value) : value)),
  );
}

/** Formats a duration: `45 s`, `12 min`, `3 h 20 min`, `6 d 4 h`. */
export function formatDuration(seconds: number): string {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 90) return `${Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** Formats a time as `2026-10-25 02:30:00 CEST`: the zone's wall clock, and the zone's name at that time. */
export function formatTime(time: Date | null, timeZone: string): string {
  return time === null ? '–' : inZone(time, timeZone, { dateStyle: 'short', timeStyle: 'medium' });
}

/** Formats a time to the minute: `2026-10-25 02:30 CEST`. */
export function formatMinute(time: Date | null, timeZone: string): string {
  return time === null ? '–' : inZone(time, timeZone, { dateStyle: 'short', timeStyle: 'short' });
}

/** Returns the day in a time zone, as `2026-10-25`. */
export const dayOf = (time: Date, timeZone: string): string => time.toLocaleDateString('sv-SE', { timeZone });

/** Formats a time as `02:30` if it is on the same day as `now`, otherwise as `25 Oct`. */
export function formatNear(time: Date, now: Date, timeZone: string): string {
  return dayOf(time, timeZone) === dayOf(now, timeZone)
    ? time.toLocaleTimeString('sv-SE', { timeZone, timeStyle: 'short' })
    : time.toLocaleDateString('en-GB', { timeZone, day: 'numeric', month: 'short' });
}

/** Formats a time as `02:30:00 CEST`, for consecutive lines. By default, in the zone of this machine. */
export function formatClock(time: Date, timeZone?: string): string {
  return `${time.toLocaleTimeString('sv-SE', { timeZone })} ${nameOfZone(time, timeZone)}`;
}

function inZone(time: Date, timeZone: string, style: Intl.DateTimeFormatOptions): string {
  // The Swedish locale formats dates as in ISO 8601. British English has short names of most European zones.
  return `${time.toLocaleString('sv-SE', { timeZone, ...style })} ${nameOfZone(time, timeZone)}`;
}

/** Returns the name of the zone at that time, such as `CET` or `GMT-5`. */
export function nameOfZone(time: Date, timeZone?: string): string {
  const parts = new Intl.DateTimeFormat('en-GB', { timeZone, timeZoneName: 'short' }).formatToParts(time);
  return parts.find(({ type }) => type === 'timeZoneName')?.value ?? timeZone ?? 'local';
}

/** Returns true for the name of a time zone, such as Europe/Stockholm. */
export function isTimeZone(name: string): boolean {
  try {
    Intl.DateTimeFormat('en', { timeZone: name });
    return true;
  } catch {
    return false;
  }
}

/** Shortens a text to `most` characters. The end that is left out is shown as `…`. */
export function shorten(text: string, most: number): string {
  const characters = Array.from(text);
  return characters.length <= most ? text : `${characters.slice(0, most - 1).join('')}…`;
}

export const sum = (numbers: readonly number[]): number =>
  numbers.reduce((total, number) => total + number, 0);

/** Returns the largest number, at least `least`. */
export const mostOf = (numbers: readonly number[], least = 0): number =>
  numbers.reduce((most, number) => Math.max(most, number), least);

/** Returns the values without false, null and undefined. A list is replaced by its elements. */
export function present<Value>(
  ...values: readonly (Value | readonly (Value | false | null | undefined)[] | false | null | undefined)[]
): Value[] {
  return values.flat().filter((value) => value !== false && value !== null && value !== undefined) as Value[];
}

export const lines = present<string>;
