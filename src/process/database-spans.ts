// The spans of waits on a database. What connects to databases is loaded by every command, and tracing by those that work with
// the service: that makes the spans.

export type OpenDatabaseSpan = (
  system: 'postgresql' | 'redis',
  /** A statement, or the name of a command. */
  statement: string,
) => { end(error?: unknown): void } | undefined;

let open: OpenDatabaseSpan | undefined;

export function useDatabaseSpans(spans: OpenDatabaseSpan): void {
  open = spans;
}

/** Begins the span of a wait on a database; undefined where nothing is traced. */
export const openDatabaseSpan: OpenDatabaseSpan = (system, statement) => open?.(system, statement);
