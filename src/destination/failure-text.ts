// The text of a failure, as it is shown and kept: the service's reason, or the beginning of the body, without secrets.
import { messageOf } from '../errors/errors.js';
import { findExcess } from './read-body.js';

/** `any`: the body of every error is the service's. `json`: only an object or a list is; the rest is a gateway's. */
export type ErrorBodies = 'json' | 'any';

export interface FailureReading {
  errorBodies: ErrorBodies;
  /** The reason in the JSON of an error. */
  readReason: (body: unknown) => string | undefined;
  /** Removes secrets from a text. */
  redact: (text: string) => string;
}

/**
 * The service's text of a failure: the reason in a JSON body, or the beginning of the body. Undefined: the body is not
 * the service's. Assumed: its errors are JSON.
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

/** A dialect that cannot read an error must not hide its status. */
function reasonOf(read: () => string | undefined): string | undefined {
  try {
    return read();
  } catch (error) {
    return messageOf(error);
  }
}

const isMarkup = (body: string) => /^\s*<[a-z!?]/i.test(body);

/** The text of a page of HTML. */
function withoutTags(body: string): string {
  const parts = body.slice(0, REDACTED).split(/<\/(?:script|style)[^<>]*>?/i);
  return parts
    .map((part) => part.replace(/<(?:script|style)[\s\S]*$/i, '').replace(/<[^<>]*>/g, ' '))
    .join(' ');
}

/** Characters in which secrets are looked for: far more than are kept, so that none is cut in two among those. */
const REDACTED = 100_000;

/** A message of the service as one line of at most 500 characters. Secrets are removed before it is shortened. */
export function toDetail(text: string, redact: FailureReading['redact']): string {
  return redact(text.slice(0, REDACTED)).slice(0, 1000).replace(/\s+/g, ' ').trim().slice(0, 500);
}

/** Whether a body that should be JSON is something else, rather than JSON that was cut off or nothing. */
export const isForeignText = (body: string) => /^\s*[^\s{[]/.test(body);

function parseJson(text: string): unknown {
  try {
    return findExcess(text) === undefined ? JSON.parse(text) : undefined;
  } catch {
    return undefined;
  }
}
