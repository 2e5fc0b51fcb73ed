// Defines the errors. error-catalogue.ts says what a code means and what happens next. Only queue/executor.ts turns a
// disposition into an action.
import { ERRORS, remedyFor, type Disposition, type ErrorCode } from './error-catalogue.js';
import { lines } from '../text/format.js';

interface ErrorFacts {
  [fact: string]: string | number | boolean | undefined;
}

export class SlotsyncError extends Error {
  override readonly name = 'SlotsyncError';
  /** Stable code in snake_case, which logs, tables and tests rely on. Messages may change, codes do not. */
  readonly code: ErrorCode;
  readonly disposition: Disposition;
  /** Remedy as a sentence or a command. Empty if the message contains the remedy. */
  readonly remedy: string;
  /** Figures for the log line. They never contain tokens, keys or bodies. */
  readonly facts: ErrorFacts;
  /**
   * Text that another system returned. It may contain personal data, so only the command line prints it and only the
   * state stores it. No `message`, log line or job contains it. Not enumerable, so that no serializer includes it.
   */
  declare readonly detail: string | undefined;

  constructor(
    code: ErrorCode,
    message: string,
    options: {
      /** More specific remedy that replaces the remedy of the catalogue. */
      remedy?: string | undefined;
      facts?: ErrorFacts;
      detail?: string | undefined;
      cause?: unknown;
    } = {},
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    this.disposition = ERRORS[code].disposition;
    this.remedy = options.remedy ?? remedyFor(code);
    this.facts = options.facts ?? {};
    Object.defineProperty(this, 'detail', { value: options.detail, enumerable: false });
  }
}

/** Error for wrong use, settings or configuration. The command ends with exit code 2. */
export class UsageError extends SlotsyncError {
  readonly faults: readonly string[];

  constructor(
    message: string,
    options: { faults?: readonly string[]; remedy?: string; cause?: unknown } = {},
  ) {
    super('usage', message, options);
    this.faults = options.faults ?? [];
  }
}

/** Returns true if the mirror failed because of what was read, not the connection. Other reads may then succeed. */
export function isReadingFault(error: unknown): error is SlotsyncError {
  return (
    error instanceof SlotsyncError &&
    [
      'mirror_source',
      'mirror_row_security',
      'mirror_read_only',
      'mirror_raised',
      'mirror_failed',
      'mirror_timeout',
    ].includes(error.code)
  );
}

/** Returns a message for people, whatever was thrown. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message || error.name : String(error);
}

/** Returns the message with the other system's message, for the state and for the command's output, not for logs. */
export function messageWithDetail(error: unknown): string {
  const detail = error instanceof SlotsyncError ? error.detail : undefined;
  return detail ? `${messageOf(error)}: ${detail}` : messageOf(error);
}

/** Returns the next step for anything that was thrown. An error without a code is retried. */
export function dispositionOf(error: unknown): Disposition {
  return error instanceof SlotsyncError ? error.disposition : 'retry';
}

/** Returns the code of anything that was thrown. System errors keep their own code, such as `ECONNREFUSED`. */
export function codeOf(error: unknown): string {
  if (error instanceof SlotsyncError) return error.code;
  if (error instanceof Error && 'code' in error && typeof error.code === 'string') return error.code;
  return 'unexpected';
}

/** Returns code and message of an error, as the state stores them. */
export const reasonOf = (error: unknown) => ({ code: codeOf(error), message: messageWithDetail(error) });

/** Returns the lines that a command prints for an error: what failed, every fault, and the remedy. */
export function describeError(error: unknown): string[] {
  const remedy = remedyOf(error);
  return lines(
    `slotsync: ${messageWithDetail(error)}`,
    error instanceof UsageError && error.faults.map((fault) => `  - ${fault}`),
    remedy && `  → ${remedy}`,
  );
}

export function errorToJson(error: unknown) {
  const faults = error instanceof UsageError ? { faults: error.faults } : {};
  return { error: { code: codeOf(error), message: messageOf(error), ...faults, remedy: remedyOf(error) } };
}

/** Returns the remedy, or undefined if the message already contains it. */
function remedyOf(error: unknown): string | undefined {
  return (error instanceof SlotsyncError && error.remedy) || undefined;
}

/** Reasons why a server cannot listen on a port. */
const LISTEN_FAULTS: Record<string, string> = {
  EADDRINUSE: 'is in use by another program',
  EACCES: 'may not be opened by this user; ports below 1024 need a special right',
  EADDRNOTAVAIL: 'cannot be opened: this machine does not have that address',
  ENOTFOUND: 'cannot be opened: the host is unknown',
};

/** Converts an error of `listen` to a UsageError. `setting` is the name of the setting that contains the port. */
export function asListenError(
  error: unknown,
  { setting, port, host, remedy }: { setting: string; port: number; host: string; remedy: string },
): UsageError {
  const reason = LISTEN_FAULTS[codeOf(error)] ?? `cannot be opened (${codeOf(error)})`;
  return new UsageError(`${setting}: port ${port} of ${host} ${reason}`, { remedy, cause: error });
}
