// Reads the body of an answer, up to a limit, because the service decides how much it sends and memory is finite.
import type { Readable } from 'node:stream';

const MB = 1024 * 1024;
/** Maximum bytes of an answer that is parsed. */
const MOST_BYTES = 64 * MB;
/** Maximum characters of the answers that are in memory together: the parts of a page, or the pages of a find. */
export const MOST_KEPT = 4 * MOST_BYTES;
/** Maximum bytes that are read of an error's body, which only becomes a message. */
const MOST_FAILURE_BYTES = MB;
/** Maximum nesting of an answer. Answers of the service have about six levels. */
const MOST_LEVELS = 100;
/** Maximum values in an answer. A thousand objects with several hundred fields each have a million. */
const MOST_VALUES = 4_000_000;

/**
 * Returns the text of a body, or undefined if a 2xx answer is larger than 64 MB. The body of an error is cut off after
 * 1 MB. Throws the connection's errors.
 */
export async function readBody(body: Readable, status: number): Promise<string | undefined> {
  const isFailure = status < 200 || status >= 300;
  const most = isFailure ? MOST_FAILURE_BYTES : MOST_BYTES;
  const chunks: Buffer[] = [];
  let bytes = 0;
  // Leaving the loop early destroys the body and its connection.
  for await (const chunk of body as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    chunks.push(chunk);
    if (bytes <= most) continue;
    if (!isFailure) return undefined;
    break;
  }
  return new TextDecoder().decode(Buffer.concat(chunks).subarray(0, most));
}

/**
 * Returns the limit that a JSON text exceeds, or undefined. If `isLarge`, a request for fewer results may succeed.
 * Called before parsing, because millions of levels or empty values would take minutes and gigabytes.
 */
export function findExcess(json: string): { what: string; isLarge: boolean } | undefined {
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
