// Every failure says what happens next. What its code means stands in error-catalogue.ts;
// queue/retry-policy.ts alone turns a disposition into an action.
import { ERRORS, type Disposition, type ErrorCode } from './error-catalogue.js';

export interface ErrorFacts {
  [fact: string]: string | number | boolean | undefined;
}

export class SlotsyncError extends Error {
  override readonly name = 'SlotsyncError';
  /** Stable, snake_case: what logs, tables and tests match on. Messages may change, codes do not. */
  readonly code: ErrorCode;
  readonly disposition: Disposition;
  /** What the reader can do now, as a sentence or a command. Empty when the message says it. */
  readonly remedy: string;
  /** Figures for the log line. Never tokens, keys or bodies. */
  readonly facts: ErrorFacts;
  /**
   * What another system said, in its own words. They may name a person: shown to whoever ran the command, and kept in
   * the state, but in no message, log line or job. Not enumerable, so that no serializer takes them along.
   */
  declare readonly detail: string | undefined;

  constructor(
    code: ErrorCode,
    message: string,
    options: {
      /** Instead of the catalogue's, where this place knows better. */
      remedy?: string | undefined;
      facts?: ErrorFacts;
      detail?: string | undefined;
      cause?: unknown;
    } = {},
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    this.disposition = ERRORS[code].disposition;
    this.remedy = options.remedy ?? ERRORS[code].remedy;
    this.facts = options.facts ?? {};
    Object.defineProperty(this, 'detail', { value: options.detail, enumerable: false });
  }
}

/** Wrong use, settings or configuration: the command ends with exit code 2. */
export class UsageError extends SlotsyncError {
  /** One line per fault, all of them at once. */
  readonly faults: readonly string[];

  constructor(
    message: string,
    options: { faults?: readonly string[]; remedy?: string; cause?: unknown } = {},
  ) {
    super('usage', message, options);
    this.faults = options.faults ?? [];
  }
}

/** The message of anything thrown, for people. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message || error.name : String(error);
}

/** The message with the other system's own words: for the state and for whoever ran the command, not for logs. */
export function messageWithDetail(error: unknown): string {
  const words = error instanceof SlotsyncError ? error.detail : undefined;
  return words === undefined || words === '' ? messageOf(error) : `${messageOf(error)}: ${words}`;
}

/** The disposition of anything thrown; what nobody classified is sent again. */
export function dispositionOf(error: unknown): Disposition {
  return error instanceof SlotsyncError ? error.disposition : 'retry';
}

/** The code of anything thrown; system errors keep their own (`ECONNREFUSED`). */
export function codeOf(error: unknown): string {
  if (error instanceof SlotsyncError) return error.code;
  if (error instanceof Error && 'code' in error && typeof error.code === 'string') return error.code;
  return 'unexpected';
}
