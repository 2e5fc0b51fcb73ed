// Finds the occurrences of a cron pattern. After a clock change of half an hour, the library cron-parser finds no more
// occurrences. Where a clock is put back, its result depends on where the search starts. Therefore the library only
// computes, in UTC, what the wall clock must show. This file computes when the zone's clock shows that.
import { CronExpressionParser } from 'cron-parser';
import { messageOf } from '../errors/errors.js';
import type { Schedule } from './schedule.js';
import { createWallClock } from './zoned-time.js';

const HOUR = 60 * 60 * 1000;
/** Longer than any clock change: Samoa once left out a whole day. */
const CLOCK_CHANGE_MS = 25 * HOUR;
const HOURS_OF_A_DAY = 24;
/** Periods that are searched in turn for the latest occurrence, to avoid enumerating the minutes of years. */
const SEARCH_WINDOWS_MS = [HOUR, 48 * HOUR, Infinity];

/** Returns why a pattern is invalid, or undefined if it is valid. */
export function findPatternFault(pattern: string): string | undefined {
  const fields = pattern.trim().split(/\s+/);
  if (fields.length !== 5 || /(^|[\s,])H/.test(pattern))
    return `'${pattern}' does not have the five fields minute, hour, day, month, weekday`;
  const reason = reasonOf(pattern);
  if (reason === undefined) return undefined;
  const [minute, hour, day, , weekday] = fields;
  return reasonOf([minute, hour, day, '*', weekday].join(' ')) === undefined
    ? `'${pattern}' never occurs: none of its months has that day`
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
 * Returns the first occurrence after a time. An occurrence that a clock change skips is moved later by that change. If
 * a clock change repeats an occurrence, only the first counts; both count for a pattern of every hour.
 */
export function nextDue(schedule: Schedule, after: Date): Date {
  for (const due of occurrences(schedule, after)) return due;
  throw new Error(`'${schedule.pattern}' never occurs`);
}

/** Returns the latest occurrence after `since` and not after `now`, if there is one. */
export function latestDue(schedule: Schedule, since: Date, now: Date): Date | undefined {
  if (nextDue(schedule, since) > now) return undefined;
  for (const windowMs of SEARCH_WINDOWS_MS) {
    const from = new Date(Math.max(since.getTime(), now.getTime() - windowMs));
    let latest: Date | undefined;
    for (const due of occurrences(schedule, from)) {
      if (due > now) break;
      latest = due;
    }
    if (latest) return latest;
  }
  return undefined;
}

/** A schedule in the state: when it was registered, and its latest occurrence for which a run was started. */
export interface FollowedSchedule extends Schedule {
  registeredAt: Date;
  lastDue: Date | null;
}

/** Returns the latest due occurrence without a started run. Occurrences before the registration do not count. */
export function unstartedDue(schedule: FollowedSchedule, now: Date): Date | undefined {
  return latestDue(schedule, startedUntil(schedule), now);
}

/** Returns the earliest occurrence without a started run, in the past or in the future. */
export const firstUnstarted = (schedule: FollowedSchedule): Date => nextDue(schedule, startedUntil(schedule));

/** Returns the time until which no occurrence is missing: each was started, or was before the registration. */
export function startedUntil({ registeredAt, lastDue }: Omit<FollowedSchedule, keyof Schedule>): Date {
  return lastDue && lastDue > registeredAt ? lastDue : registeredAt;
}

function* occurrences({ pattern, timezone }: Schedule, after: Date): Generator<Date, undefined> {
  const wallClock = createWallClock(timezone);
  const currentDate = new Date(wallClock(after.getTime()) - CLOCK_CHANGE_MS);
  const expression = CronExpressionParser.parse(pattern, { tz: 'UTC', currentDate });
  const isHourly = expression.fields.hour.values.length === HOURS_OF_A_DAY;
  let last = after.getTime();
  /** Occurrences that a clock change has moved, in order. They wait until all earlier occurrences were yielded. */
  let moved: number[] = [];
  for (;;) {
    const shown = expression.next().getTime();
    // Two candidates: by the clock before and after a clock change on that day. On any other day they are equal.
    const times = [-CLOCK_CHANGE_MS, CLOCK_CHANGE_MS].map(
      (ms) => shown - (wallClock(shown + ms) - shown - ms),
    );
    const [first, second] = times.filter((ms) => wallClock(ms) === shown);
    if (first === undefined) moved.push(times[0] ?? 0);
    else {
      for (const ms of [...moved.filter((it) => it < first), first])
        if (ms > last) yield new Date((last = ms));
      moved = moved.filter((ms) => ms > first);
      if (isHourly && second !== undefined) moved.push(second);
    }
  }
}
