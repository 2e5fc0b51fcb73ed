// When a schedule is due. The library answers "what comes next", and the answer depends on where one starts asking
// where a clock is put back; here every question starts some hours earlier, so that there is one list of moments.
import { CronExpressionParser } from 'cron-parser';
import { closest } from 'fastest-levenshtein';
import { messageOf } from './errors.js';

export interface Schedule {
  /** Minute, hour, day of the month, month, day of the week. */
  pattern: string;
  /** Name of a time zone whose wall clock the pattern is read by. */
  timezone: string;
}

const HOUR = 60 * 60 * 1000;
/** No clock is put forward or back by as much. */
const CLOCK_CHANGE_MS = 3 * HOUR;
/** Looked back over for the latest moment, so that years of missed minutes are not walked through one by one. */
const WINDOWS_MS = [HOUR, 48 * HOUR, Infinity];

/** What is wrong with a schedule, by the part that is wrong; empty when it can be followed. */
export function findScheduleFaults({
  pattern,
  timezone,
}: Schedule): { part: keyof Schedule; message: string }[] {
  const faults = [...findTimezoneFaults(timezone)];
  const fields = pattern.trim().split(/\s+/);
  if (fields.length !== 5 || /(^|[\s,])H/.test(pattern)) {
    return [...faults, { part: 'pattern', message: `'${pattern}' is not minute, hour, day, month, weekday` }];
  }
  const wrong = reasonOf(pattern);
  if (wrong === undefined) return faults;
  const [minute, hour, day, , weekday] = fields;
  const everyMonth = [minute, hour, day, '*', weekday].join(' ');
  const message =
    reasonOf(everyMonth) === undefined
      ? `'${pattern}' never comes: no such month has such a day`
      : `'${pattern}' cannot be read: ${wrong}`;
  return [...faults, { part: 'pattern', message }];
}

function findTimezoneFaults(timezone: string): { part: 'timezone'; message: string }[] {
  try {
    Intl.DateTimeFormat('en', { timeZone: timezone });
    return [];
  } catch {
    const near = closest(timezone, Intl.supportedValuesOf('timeZone'));
    return [{ part: 'timezone', message: `there is no time zone '${timezone}'; did you mean '${near}'?` }];
  }
}

function reasonOf(pattern: string): string | undefined {
  try {
    CronExpressionParser.parse(pattern, { tz: 'UTC' }).next();
    return undefined;
  } catch (error) {
    return messageOf(error);
  }
}

/**
 * The first moment after this one. A wall-clock time that a clock change leaves out comes an hour later on the wall,
 * and one that comes twice counts the first time.
 */
export function nextDue(schedule: Schedule, after: Date): Date {
  const moments = momentsFrom(schedule, after.getTime() - CLOCK_CHANGE_MS);
  let due = moments.next();
  while (due <= after) due = moments.next();
  return due;
}

/** The latest moment after `since` and not after `now`; undefined when there is none. */
export function latestDue(schedule: Schedule, since: Date, now: Date): Date | undefined {
  if (nextDue(schedule, since) > now) return undefined;
  for (const windowMs of WINDOWS_MS) {
    const from = new Date(Math.max(since.getTime(), now.getTime() - windowMs));
    let latest: Date | undefined;
    for (let due = nextDue(schedule, from); due <= now; due = nextDue(schedule, due)) latest = due;
    if (latest) return latest;
  }
  return undefined;
}

function momentsFrom({ pattern, timezone }: Schedule, atMs: number) {
  const expression = CronExpressionParser.parse(pattern, { tz: timezone, currentDate: new Date(atMs) });
  return { next: () => expression.next().toDate() };
}
