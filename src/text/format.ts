// Numbers, durations and times as people read them: on a terminal, on the page and in messages.

export function formatNumber(value: number): string {
  return value.toLocaleString('en-US').replaceAll(',', ' ');
}

/** `3 rows`, `1 row`. */
export function plural(count: number, singular: string, many = `${singular}s`): string {
  return `${formatNumber(count)} ${count === 1 ? singular : many}`;
}

/** `45 s`, `12 min`, `3 h 20 min`, `6 d 4 h`. */
export function formatDuration(seconds: number): string {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 90) return `${Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** `2026-10-25 02:30:00 CEST`: the wall clock of a time zone, with its name at that time. */
export function formatTime(time: Date | null, timeZone: string): string {
  return time === null ? '–' : inZone(time, timeZone, { dateStyle: 'short', timeStyle: 'medium' });
}

/** The same to the minute, where the second does not matter. */
export function formatMinute(time: Date | null, timeZone: string): string {
  return time === null ? '–' : inZone(time, timeZone, { dateStyle: 'short', timeStyle: 'short' });
}

/** `2026-10-25`: the day by the clock of a time zone. */
export const dayOf = (time: Date, timeZone: string): string => time.toLocaleDateString('sv-SE', { timeZone });

/** `02:30` of the same day, `25 Oct` of another one. */
export function formatNear(time: Date, now: Date, timeZone: string): string {
  return dayOf(time, timeZone) === dayOf(now, timeZone)
    ? time.toLocaleTimeString('sv-SE', { timeZone, timeStyle: 'short' })
    : time.toLocaleDateString('en-GB', { timeZone, day: 'numeric', month: 'short' });
}

/** `02:30:00 CEST`, in lines that follow each other. Unset: the zone of this machine. */
export function formatClock(time: Date, timeZone?: string): string {
  return `${time.toLocaleTimeString('sv-SE', { timeZone })} ${nameOfZone(time, timeZone)}`;
}

function inZone(time: Date, timeZone: string, style: Intl.DateTimeFormatOptions): string {
  // Swedish writes dates as ISO 8601 does; British English has short names of most European zones.
  return `${time.toLocaleString('sv-SE', { timeZone, ...style })} ${nameOfZone(time, timeZone)}`;
}

/** `CET`, `GMT-5`: what the zone is called at that time. */
export function nameOfZone(time: Date, timeZone?: string): string {
  const parts = new Intl.DateTimeFormat('en-GB', { timeZone, timeZoneName: 'short' }).formatToParts(time);
  return parts.find(({ type }) => type === 'timeZoneName')?.value ?? timeZone ?? 'local';
}

/** Whether it is the name of a time zone, such as Europe/Stockholm. */
export function isTimeZone(name: string): boolean {
  try {
    Intl.DateTimeFormat('en', { timeZone: name });
    return true;
  } catch {
    return false;
  }
}

/** A text of at most so many characters; what is left out at its end is shown as `…`. */
export function shorten(text: string, most: number): string {
  const characters = Array.from(text);
  return characters.length <= most ? text : `${characters.slice(0, most - 1).join('')}…`;
}

/** The largest of these numbers, and at least `least`. */
export const mostOf = (numbers: readonly number[], least = 0): number =>
  numbers.reduce((most, number) => Math.max(most, number), least);

/** The values that apply: false, null and undefined are left out, and a list is its elements one after the other. */
export function present<Value>(
  ...values: readonly (Value | readonly (Value | false | null | undefined)[] | false | null | undefined)[]
): Value[] {
  return values.flat().filter((value) => value !== false && value !== null && value !== undefined) as Value[];
}

/** The lines that apply. */
export const lines = present<string>;
