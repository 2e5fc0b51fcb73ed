// COPY output as lines. Decoded as latin1, so that the order of the texts is the order of their bytes,
// which is PostgreSQL's COLLATE "C". Only keys that are used are decoded for good.
import type { Readable } from 'node:stream';

/** Yields the lines of a COPY in blocks, constant in memory. */
export async function* readLines(readable: Readable): AsyncGenerator<string[]> {
  let ended = false;
  readable.once('end', () => (ended = true));
  readable.on('error', () => undefined); // `errored` holds it, from the moment the stream is destroyed
  let rest = '';
  while (true) {
    const chunk = readable.read() as Buffer | null;
    if (readable.errored) throw readable.errored;
    if (chunk !== null) {
      const lines = (rest + chunk.toString('latin1')).split('\n');
      rest = lines.pop() ?? '';
      if (lines.length > 0) yield lines;
    } else if (ended || readable.destroyed) {
      break;
    } else {
      await nextEvent(readable);
    }
  }
  if (!ended) throw new Error('the connection was closed while reading');
}

function nextEvent(readable: Readable): Promise<void> {
  const events = ['readable', 'end', 'error', 'close'];
  return new Promise((resolve) => {
    const done = () => {
      for (const event of events) readable.off(event, done);
      resolve();
    };
    for (const event of events) readable.on(event, done);
  });
}

const ESCAPES: Record<string, string> = { b: '\b', f: '\f', n: '\n', r: '\r', t: '\t', v: '\v' };

/** Undoes COPY's escapes in one column; still latin1. */
export function unescapeColumn(text: string): string {
  return text.includes('\\') ? text.replace(/\\(.)/gs, (_, char: string) => ESCAPES[char] ?? char) : text;
}

/** The real text of a column that was decoded as latin1. */
export function decodeColumn(latin1: string): string {
  return Buffer.from(latin1, 'latin1').toString('utf8');
}
