// Schedules by their names and patterns. Whoever only names one does not load what finds its occurrences.

export interface Schedule {
  /** Minute, hour, day of the month, month, day of the week. */
  pattern: string;
  /** The time zone by whose wall clock the pattern is read. */
  timezone: string;
}

/** The name of the nightly schedule. One of streams with times of their own is named by its pattern. */
export const NIGHTLY = 'nightly';
/** In the place of a pattern: after each nightly sync. */
export const AFTER_SYNC = 'sync';
