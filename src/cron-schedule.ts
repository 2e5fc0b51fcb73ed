// The occurrences of a cron pattern. Where a clock is put back, the library's next occurrence depends on where the
// search starts. Here every search starts some hours earlier, so there is one list of occurrences.
import { CronExpressionParser } from 'cron-parser';
import { messageOf } from './errors.js';

export interface Schedule {
  /** Minute, hour, day of the month, month, day of the week. */
  pattern: string;
  /** The time zone by whose wall clock the pattern is read. */
  timezone: string;
}

/** In the place of a pattern: after each nightly sync. */
export const AFTER_SYNC = 'sync';

const HOUR = 60 * 60 * 1000;
/** More than any clock is put forward or back. */
const CLOCK_CHANGE_MS = 3 * HOUR;
/** Searched for the latest occurrence one after the other, so that years of missed minutes are not walked through. */
const SEARCH_WINDOWS_MS = [HOUR, 48 * HOUR, Infinity];

/** Why a pattern cannot be followed; undefined when it can. */
export function findPatternFault(pattern: string): string | undefined {
  const fields = pattern.trim().split(/\s+/);
  if (fields.length !== 5 || /(^|[\s,])H/.test(pattern))
    return `'${pattern}' is not minute, hour, day, month, weekday`;
  const reason = reasonOf(pattern);
  if (reason === undefined) return undefined;
  const [minute, hour, day, , weekday] = fields;
  return reasonOf([minute, hour, day, '*', weekday].join(' ')) === undefined
    ? `'${pattern}' never occurs: no such month has such a day`
    : `'${pattern}' cannot be read: ${reason}`;
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
 * The first occurrence after a time. A wall-clock time that a clock change leaves out is taken an hour later; one that
 * occurs twice is taken the first time.
 */
export function nextDue(schedule: Schedule, after: Date): Date {
  const occurrences = occurrencesFrom(schedule, after.getTime() - CLOCK_CHANGE_MS);
  let due = occurrences.next();
  while (due <= after) due = occurrences.next();
  return due;
}

/** The latest occurrence after `since` and not after `now`; undefined when there is none. */
export function latestDue(schedule: Schedule, since: Date, now: Date): Date | undefined {
  if (nextDue(schedule, since) > now) return undefined;
  for (const windowMs of SEARCH_WINDOWS_MS) {
    const from = new Date(Math.max(since.getTime(), now.getTime() - windowMs));
    let latest: Date | undefined;
    for (let due = nextDue(schedule, from); due <= now; due = nextDue(schedule, due)) latest = due;
    if (latest) return latest;
  }
  return undefined;
}

/** A schedule as the state knows it: what was started of it, and since when. */
export interface FollowedSchedule extends Schedule {
  registeredAt: Date;
  lastDue: Date | null;
}

/** The latest occurrence that is due and was not started yet. A schedule that was registered just now has missed nothing. */
export function unstartedDue(schedule: FollowedSchedule, now: Date): Date | undefined {
  return latestDue(schedule, startedUntil(schedule), now);
}

/** Occurrences up to here were started, or were before the schedule. */
export function startedUntil({ registeredAt, lastDue }: Omit<FollowedSchedule, keyof Schedule>): Date {
  return lastDue && lastDue > registeredAt ? lastDue : registeredAt;
}

function occurrencesFrom({ pattern, timezone }: Schedule, atMs: number) {
  const expression = CronExpressionParser.parse(pattern, { tz: timezone, currentDate: new Date(atMs) });
  return { next: () => expression.next().toDate() };
}
