// The body of an answer, within limits: the service decides how much it sends, and all of it is kept in memory.
import type { Readable } from 'node:stream';

const MB = 1024 * 1024;
/** Limit of an answer that is parsed. */
const MOST_BYTES = 64 * MB;
/** Limit of the answers whose results are in memory together: to the parts of a page, and to the pages of a find. Characters. */
export const MOST_KEPT = 4 * MOST_BYTES;
/** Limit of an error's body, of which only a message is kept. */
const MOST_FAILURE_BYTES = MB;
/** Answers of the service have about six levels. */
const MOST_LEVELS = 100;
/** A thousand objects with several hundred fields each have a million. */
const MOST_VALUES = 4_000_000;

/**
 * The text of a body, up to its limit; the rest is not received. Undefined: a 2xx answer is larger than
 * 64 MB. An error's body is cut off after 1 MB. Throws what the connection throws.
 */
export async function readBody(body: Readable, status: number): Promise<string | undefined> {
  const isFailure = status < 200 || status >= 300;
  const most = isFailure ? MOST_FAILURE_BYTES : MOST_BYTES;
  const chunks: Buffer[] = [];
  let bytes = 0;
  // Leaving the loop early destroys the body, and with it the connection.
  for await (const chunk of body as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    chunks.push(chunk);
    if (bytes <= most) continue;
    if (!isFailure) return undefined;
    break;
  }
  return new TextDecoder().decode(Buffer.concat(chunks).subarray(0, most));
}

/** The excess of a JSON text over what is parsed, in words. `isLarge`: an answer about less would have less of it. */
interface Excess {
  what: string;
  isLarge: boolean;
}

/**
 * The excess of a JSON text over any answer, before it is parsed: millions of levels or of empty values would take minutes and
 * gigabytes. Undefined: nothing.
 */
export function findExcess(json: string): Excess | undefined {
  let level = 0;
  let values = 0;
  for (let at = 0; at < json.length; at++) {
    switch (json.charCodeAt(at)) {
      case QUOTE:
        at = endOfString(json, at);
        break;
      case BRACKET:
      case BRACE:
        if (++level > MOST_LEVELS)
          return { what: `nested more than ${MOST_LEVELS} levels deep`, isLarge: false };
        values++;
        break;
      case COMMA:
        values++;
        break;
      case CLOSING_BRACKET:
      case CLOSING_BRACE:
        level--;
    }
    if (values > MOST_VALUES) return { what: 'of more than 4 million values', isLarge: true };
  }
  return undefined;
}

const [QUOTE, BACKSLASH, BRACKET, BRACE, CLOSING_BRACKET, CLOSING_BRACE, COMMA] = Array.from(
  '"\\[{]},',
  (character) => character.charCodeAt(0),
);

function endOfString(json: string, start: number): number {
  for (let at = start + 1; at < json.length; at++) {
    const code = json.charCodeAt(at);
    if (code === BACKSLASH) at++;
    else if (code === QUOTE) return at;
  }
  return json.length;
}
