// Extracts the text of a failure for messages and the state: the service's reason, or the beginning of the body.
// Removes keys and tokens, because a gateway may repeat a header and operators see these texts. For log lines, see
// process/logger.ts.
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

/** Number of latest secrets that are remembered, because an answer may repeat a token that has been renewed since. */
const MOST_SECRETS = 10;

/** Remembers secrets, and removes them from texts. */
export function createRedaction() {
  /** Encoded forms of each secret, ordered by the secret's last use. */
  const known = new Map<string, readonly Form[]>();

  return {
    add(secret: string): void {
      if (secret === '') return;
      const forms = known.get(secret) ?? formsOf(secret);
      known.delete(secret);
      known.set(secret, forms);
      const [oldest] = known.keys();
      if (known.size > MOST_SECRETS && oldest !== undefined) known.delete(oldest);
    },

    /** Replaces each secret in a text: plain, escaped (JSON, URL or HTML), in hexadecimal, or within base64. */
    redact: (text: string): string => replaceForms(text, [...known.values()].flat()),
  };
}

/** A text that encodes a secret. `before` and `after` count adjacent characters that hold some of its bits. */
interface Form {
  text: string;
  before: number;
  after: number;
}

/** Minimum length of an encoded form. Shorter forms occur in ordinary text by chance. */
const LEAST_ENCODED = 6;

function formsOf(secret: string): readonly Form[] {
  const bytes = Buffer.from(secret);
  const hex = bytes.toString('hex');
  const plain = [`Api-Key ${secret}`, `Bearer ${secret}`, secret];
  const encoded = [hex, hex.toUpperCase()].map(whole).concat([0, 1, 2].flatMap((at) => inBase64(bytes, at)));
  return [...plain.map(whole), ...encoded.filter(({ text }) => text.length >= LEAST_ENCODED)];
}

const whole = (text: string): Form => ({ text, before: 0, after: 0 });

/** Returns the base64 characters that do not depend on adjacent bytes, for a secret at offset `at` of three bytes. */
function inBase64(bytes: Buffer, at: number): Form[] {
  const bits = (at + bytes.length) * 8;
  const base64 = Buffer.concat([Buffer.alloc(at), bytes]).toString('base64');
  const text = base64.slice(Math.ceil((at * 8) / 6), Math.floor(bits / 6));
  const form = { text, before: at === 0 ? 0 : 1, after: bits % 6 === 0 ? 0 : 1 };
  return [form, { ...form, text: text.replaceAll('+', '-').replaceAll('/', '_') }];
}

function replaceForms(text: string, forms: readonly Form[]): string {
  const decoded = decodeEscapes(text);
  const spans = forms
    .flatMap((form) => [
      ...spansOf(form, text),
      ...spansOf(form, decoded.text).map(({ from, to }) => ({
        from: decoded.starts[from] ?? text.length,
        to: decoded.starts[to] ?? text.length,
      })),
    ])
    .toSorted((a, b) => a.from - b.from);
  let redacted = '';
  let end = 0;
  for (const { from, to } of spans) {
    if (from >= end) redacted += `${text.slice(end, from)}[secret]`;
    end = Math.max(end, to);
  }
  return redacted + text.slice(end);
}

function spansOf({ text: form, before, after }: Form, text: string): { from: number; to: number }[] {
  const spans = [];
  for (let at = text.indexOf(form); at >= 0; at = text.indexOf(form, at + 1))
    spans.push({ from: Math.max(0, at - before), to: at + form.length + after });
  return spans;
}

const ENTITIES: Record<string, string> = { amp: '&', lt: '<', gt: '>', quot: '"', apos: "'" };

/** Matches escapes of JSON, URLs and HTML, including escapes that are escaped again any number of times. */
const ESCAPES = new RegExp(
  [
    String.raw`\\+(?:u(?<json>[\da-f]{4})|(?<escaped>[^\\]))?`,
    String.raw`%(?:25)*(?<percent>[\da-f]{2})`,
    String.raw`&(?:amp;)*(?:#x(?<html>[\da-f]{1,6})|#(?<decimal>\d{1,7})|(?<entity>amp|lt|gt|quot|apos));`,
    String.raw`[^\\]`,
  ].join('|'),
  'gi',
);

/**
 * Decodes escapes, and returns the start of each character in the original text. A run of backslashes is matched once,
 * because a body of backslashes would otherwise take quadratic time.
 */
function decodeEscapes(text: string): { text: string; starts: readonly number[] } {
  const characters: string[] = [];
  const starts: number[] = [];
  for (const { 0: all, index, groups = {} } of text.matchAll(ESCAPES)) {
    const { json, percent, html, decimal, entity, escaped } = groups;
    const hex = json ?? percent ?? html;
    const code = hex === undefined ? Number(decimal) : Number.parseInt(hex, 16);
    const meant = escaped ?? (entity === undefined ? all : (ENTITIES[entity.toLowerCase()] ?? all));
    characters.push(Number.isNaN(code) ? meant : String.fromCharCode(code));
    starts.push(index);
  }
  return { text: characters.join(''), starts };
}
