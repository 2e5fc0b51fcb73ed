// Error texts of the service are shown to operators and stored in the state, and a gateway may repeat the header that it
// refused. Only such texts are redacted. An object that was read is written back, so it must not be changed.

/** Secrets that are remembered: an answer may repeat a token that has been renewed since. */
const MOST_SECRETS = 10;

export type Redaction = ReturnType<typeof createRedaction>;

export function createRedaction() {
  /** By secret, in the order of last use: the texts that mean it. */
  const known = new Map<string, readonly string[]>();

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

    /** The text with each secret replaced: plain, in base64, or with escapes of JSON or of an address in it. */
    redact: (text: string): string => replaceForms(text, [...known.values()].flat()),
  };
}

function formsOf(secret: string): readonly string[] {
  const encoded = ['', 'Api-Key ', 'Bearer ']
    .map((scheme) => Buffer.from(scheme + secret))
    .flatMap((bytes) => [bytes.toString('base64').replace(/=+$/, ''), bytes.toString('base64url')]);
  return [...new Set([`Api-Key ${secret}`, `Bearer ${secret}`, secret, ...encoded])];
}

function replaceForms(text: string, forms: readonly string[]): string {
  const decoded = decodeEscapes(text);
  const spans = forms
    .flatMap((form) => [
      ...placesOf(form, text).map((at) => ({ from: at, to: at + form.length })),
      ...placesOf(form, decoded.text).map((at) => ({
        from: decoded.starts[at] ?? text.length,
        to: decoded.starts[at + form.length] ?? text.length,
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

function placesOf(form: string, text: string): number[] {
  const places: number[] = [];
  for (let at = text.indexOf(form); at >= 0; at = text.indexOf(form, at + 1)) places.push(at);
  return places;
}

/**
 * Escapes as the characters they mean, however often a text was put into JSON; and where each one starts. A run of
 * backslashes is matched once: a body of nothing else must not take time by its square.
 */
function decodeEscapes(text: string): { text: string; starts: readonly number[] } {
  const characters: string[] = [];
  const starts: number[] = [];
  for (const { 0: all, 1: unicode, 2: escaped, 3: percent, index } of text.matchAll(
    /\\+(?:u([\da-f]{4})|([^\\]))?|%([\da-f]{2})|[^\\]/gi,
  )) {
    const code = unicode ?? percent;
    characters.push(code === undefined ? (escaped ?? all) : String.fromCharCode(Number.parseInt(code, 16)));
    starts.push(index);
  }
  return { text: characters.join(''), starts };
}
