// Defines schedules. Code that only names a schedule imports this file, without cron-schedule.ts and its library.

export interface Schedule {
  /** Cron pattern: minute, hour, day of the month, month, day of the week. */
  pattern: string;
  /** Time zone whose wall clock the pattern refers to. */
  timezone: string;
}

/** Name of the nightly schedule. A schedule of streams with times of their own is named by its pattern. */
export const NIGHTLY = 'nightly';
/** Used instead of a pattern: after each nightly sync. */
export const AFTER_SYNC = 'sync';
