// How values of the mirror print as text, and which database a session is in.

/**
 * How values print as text. Row hashes and local keys are made of that text, so every transaction at the mirror, and
 * every function that makes keys, has the same settings.
 */
export const SESSION_FORMATS = {
  TimeZone: 'UTC',
  DateStyle: 'ISO, YMD',
  IntervalStyle: 'iso_8601',
  extra_float_digits: 1,
  bytea_output: 'hex',
} as const;

/** Two connections belong to the same database when these are equal. */
export interface DatabaseIdentity {
  database: string;
  startedAt: string;
  port: string;
}

/** Returns one DatabaseIdentity. */
export const SELECT_DATABASE_IDENTITY = `
  SELECT current_database() AS database, extract(epoch FROM pg_postmaster_start_time())::text AS "startedAt",
    current_setting('port') AS port`;
