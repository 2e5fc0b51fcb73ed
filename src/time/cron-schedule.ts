// The occurrences of a cron pattern. The library finds none any more after a clock change of half an hour, and where a
// clock is put back its next occurrence depends on where the search starts. So it is only asked in UTC, what the wall
// clock has to show; when the clock of the zone shows that is found here.
import { CronExpressionParser } from 'cron-parser';
import { messageOf } from '../errors/errors.js';
import type { Schedule } from './schedule.js';
import { createWallClock } from './zoned-time.js';

const HOUR = 60 * 60 * 1000;
/** More than any clock is put forward or back: Samoa once left out a whole day. */
const CLOCK_CHANGE_MS = 25 * HOUR;
const HOURS_OF_A_DAY = 24;
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
 * The first occurrence after a time. A wall-clock time that a clock change leaves out is taken as much later as the clock
 * was put forward; one that occurs twice is taken the first time, and both times by a pattern of every hour.
 */
export function nextDue(schedule: Schedule, after: Date): Date {
  for (const due of occurrences(schedule, after)) return due;
  throw new Error(`'${schedule.pattern}' never occurs`);
}

/** The latest occurrence after `since` and not after `now`; undefined when the pattern has no such occurrence. */
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

/** A schedule as the state knows it: what was started of it, and since when. */
export interface FollowedSchedule extends Schedule {
  registeredAt: Date;
  lastDue: Date | null;
}

/** The latest occurrence that is due and was not started yet. A schedule that was registered just now has missed nothing. */
export function unstartedDue(schedule: FollowedSchedule, now: Date): Date | undefined {
  return latestDue(schedule, startedUntil(schedule), now);
}

/** The earliest occurrence that was not started yet, or is to come. */
export const firstUnstarted = (schedule: FollowedSchedule): Date => nextDue(schedule, startedUntil(schedule));

/** Occurrences up to here were started, or were before the schedule. */
export function startedUntil({ registeredAt, lastDue }: Omit<FollowedSchedule, keyof Schedule>): Date {
  return lastDue && lastDue > registeredAt ? lastDue : registeredAt;
}

/** Every occurrence after a time, in order. */
function* occurrences({ pattern, timezone }: Schedule, after: Date): Generator<Date, undefined> {
  const wallClock = createWallClock(timezone);
  const currentDate = new Date(wallClock(after.getTime()) - CLOCK_CHANGE_MS);
  const expression = CronExpressionParser.parse(pattern, { tz: 'UTC', currentDate });
  const isHourly = expression.fields.hour.values.length === HOURS_OF_A_DAY;
  let last = after.getTime();
  /** Occurrences that a clock change has moved, in order, behind others that are still to come. */
  let moved: number[] = [];
  for (;;) {
    const shown = expression.next().getTime();
    // By the clock before a change on that day, and by the clock after it: the same on any other day.
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
