// Takes keys and tokens out of error texts of the service. These are shown to operators and stored in the state, and a gateway may
// repeat the header that it refused. Only such texts are redacted: an object that was read is written back, so it must not be
// changed. Fields of log lines: process/logger.ts.

/** Secrets that are remembered: an answer may repeat a token that has been renewed since. */
const MOST_SECRETS = 10;

export type Redaction = ReturnType<typeof createRedaction>;

export function createRedaction() {
  /** By secret, in the order of last use: the texts that mean it. */
  const known = new Map<string, readonly Form[]>();

  return {
    /** From now on this key or token is redacted. */
    add(secret: string): void {
      if (secret === '') return;
      const forms = known.get(secret) ?? formsOf(secret);
      known.delete(secret);
      known.set(secret, forms);
      const [oldest] = known.keys();
      if (known.size > MOST_SECRETS && oldest !== undefined) known.delete(oldest);
    },

    /**
     * The text with each secret replaced: plain, with escapes of JSON, of an address or of HTML in it, in hexadecimal, or as
     * a part of base64.
     */
    redact: (text: string): string => replaceForms(text, [...known.values()].flat()),
  };
}

/** A text that means a secret. `before`, `after`: characters beside it that hold a part of its first and last byte. */
interface Form {
  text: string;
  before: number;
  after: number;
}

/** Shorter ones mean nothing, and stand in any text. */
const LEAST_ENCODED = 6;

function formsOf(secret: string): readonly Form[] {
  const bytes = Buffer.from(secret);
  const hex = bytes.toString('hex');
  const plain = [`Api-Key ${secret}`, `Bearer ${secret}`, secret];
  const encoded = [hex, hex.toUpperCase()].map(whole).concat([0, 1, 2].flatMap((at) => inBase64(bytes, at)));
  return [...plain.map(whole), ...encoded.filter(({ text }) => text.length >= LEAST_ENCODED)];
}

const whole = (text: string): Form => ({ text, before: 0, after: 0 });

/** The characters that are the same whatever precedes and follows the bytes: so many bytes after a multiple of three. */
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

/** The escapes of JSON, of an address and of HTML, each escaped again any number of times. */
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
 * Escapes as the characters they mean, and where each one starts. A run of backslashes is matched once: a body of nothing
 * else must not take time by its square.
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
