// Every failure says what happens next. error-catalogue.ts says what its code means; only queue/executor.ts
// turns a disposition into an action.
import { ERRORS, remedyFor, type Disposition, type ErrorCode } from './error-catalogue.js';
import { lines } from '../text/format.js';

interface ErrorFacts {
  [fact: string]: string | number | boolean | undefined;
}

export class SlotsyncError extends Error {
  override readonly name = 'SlotsyncError';
  /** Stable, snake_case: what logs, tables and tests match on. Messages may change, codes do not. */
  readonly code: ErrorCode;
  readonly disposition: Disposition;
  /** The remedy, as a sentence or a command. Empty when the message says it. */
  readonly remedy: string;
  /** Figures for the log line. Never tokens, keys or bodies. */
  readonly facts: ErrorFacts;
  /**
   * The message of another system. It may contain personal data: printed by the command and stored in the state, but in
   * no message, log line or job. Not enumerable, so that no serializer includes it.
   */
  declare readonly detail: string | undefined;

  constructor(
    code: ErrorCode,
    message: string,
    options: {
      /** Replaces the catalogue's remedy by a more specific one. */
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

/** Wrong use, settings or configuration: the command ends with exit code 2. */
export class UsageError extends SlotsyncError {
  /** The faults, a line each, all of them at once. */
  readonly faults: readonly string[];

  constructor(
    message: string,
    options: { faults?: readonly string[]; remedy?: string; cause?: unknown } = {},
  ) {
    super('usage', message, options);
    this.faults = options.faults ?? [];
  }
}

/** A reading of the mirror that failed for what it reads, not for the connection: whatever else is read may succeed. */
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

/** The message of anything thrown, for people. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message || error.name : String(error);
}

/** The message with the other system's: for the state and for the command's output, not for logs. */
export function messageWithDetail(error: unknown): string {
  const detail = error instanceof SlotsyncError ? error.detail : undefined;
  return detail ? `${messageOf(error)}: ${detail}` : messageOf(error);
}

/** The disposition of anything thrown; an error without a code is tried again. */
export function dispositionOf(error: unknown): Disposition {
  return error instanceof SlotsyncError ? error.disposition : 'retry';
}

/** The code of anything thrown; system errors keep their own (`ECONNREFUSED`). */
export function codeOf(error: unknown): string {
  if (error instanceof SlotsyncError) return error.code;
  if (error instanceof Error && 'code' in error && typeof error.code === 'string') return error.code;
  return 'unexpected';
}

/** The error that ends a command as lines: what failed, every fault, and what to do about it. */
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

/** Undefined when the message already says what to do. */
function remedyOf(error: unknown): string | undefined {
  return (error instanceof SlotsyncError && error.remedy) || undefined;
}
