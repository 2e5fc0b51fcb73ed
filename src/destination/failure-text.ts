// Extracts the text of a failure for messages and the state: the service's reason, or the beginning of the body.
import { messageOf } from '../errors/errors.js';
import { findExcess } from './read-body.js';

/** Error bodies of the service itself: `any`, or `json` if a body that is no object or list comes from a gateway. */
export type ErrorBodies = 'json' | 'any';

export interface FailureReading {
  errorBodies: ErrorBodies;
  /** Returns the reason that the JSON of an error states, if any. */
  readReason: (body: unknown) => string | undefined;
  redact: (text: string) => string;
}

/**
 * Returns the reason in a JSON body, or the beginning of the body. Returns undefined if the body does not come from the
 * service. Assumed: the service's errors are JSON.
 */
export function readFailure(
  body: string,
  { errorBodies, readReason, redact }: FailureReading,
): string | undefined {
  const given = parseJson(body);
  if (errorBodies === 'json' && (typeof given !== 'object' || given === null)) return undefined;
  const reason = given === undefined ? undefined : reasonOf(() => readReason(given));
  return toDetail(reason ?? (isMarkup(body) ? withoutTags(body) : body), redact);
}

/** Reads the reason. Catches errors of the dialect, which must not hide the status of the answer. */
function reasonOf(read: () => string | undefined): string | undefined {
  try {
    return read();
  } catch (error) {
    return messageOf(error);
  }
}

const isMarkup = (body: string) => /^\s*<[a-z!?]/i.test(body);

function withoutTags(body: string): string {
  const parts = body.slice(0, REDACTED).split(/<\/(?:script|style)[^<>]*>?/i);
  return parts
    .map((part) => part.replace(/<(?:script|style)[\s\S]*$/i, '').replace(/<[^<>]*>/g, ' '))
    .join(' ');
}

/** Number of characters in which secrets are searched for. Far fewer are kept, so that no kept secret is cut. */
const REDACTED = 100_000;

/** Shortens a text of the service to one line of at most 500 characters. Removes secrets before it cuts. */
export function toDetail(text: string, redact: FailureReading['redact']): string {
  return redact(text.slice(0, REDACTED)).slice(0, 1000).replace(/\s+/g, ' ').trim().slice(0, 500);
}

/** Returns true if a body that should be JSON is other text. Empty bodies and truncated JSON do not count. */
export const isForeignText = (body: string) => /^\s*[^\s{[]/.test(body);

function parseJson(text: string): unknown {
  try {
    return findExcess(text) === undefined ? JSON.parse(text) : undefined;
  } catch {
    return undefined;
  }
}
