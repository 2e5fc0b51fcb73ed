// Reads the output of COPY as lines. Lines are decoded as latin1, so that the order of texts is the order of their
// bytes, as in PostgreSQL's COLLATE "C". Only keys that are used are decoded as UTF-8.
import type { Readable } from 'node:stream';
import type postgres from 'postgres';
import { codeOf } from '../errors/errors.js';
import { waitWhileFull } from './postgres-connection.js';

/**
 * Options that send a text as an unnamed prepared statement. The server then refuses a second statement in the text. By
 * default, the driver runs all statements of a text without parameters.
 */
export const ONE_STATEMENT: postgres.UnsafeQueryOptions & { simple: false } = {
  prepare: false,
  simple: false,
};

/** Runs COPY statements, each on a client of its own. After a complete read, the client is kept for the next COPY. */
export function openCopies(connect: () => postgres.Sql) {
  const idle: postgres.Sql[] = [];
  let isClosed = false;
  const end = (client: postgres.Sql) => client.end({ timeout: 0 });
  return {
    /** Connects in advance, before the next COPY. If this fails, the next COPY connects again. */
    prepare(): void {
      if (idle.length > 0 || isClosed) return;
      const client = connect();
      idle.push(client);
      client.unsafe('SELECT').catch(() => undefined);
    },

    async *read(statement: string): AsyncGenerator<string[]> {
      const client = idle.pop() ?? connect();
      let isComplete = false;
      try {
        yield* copyOut(client, statement);
        isComplete = true;
      } finally {
        if (isComplete && !isClosed) idle.push(client);
        else await end(client);
      }
    },
    /** Closes the idle clients. Each COPY in flight closes its own client. */
    async close(): Promise<void> {
      isClosed = true;
      await Promise.all(idle.splice(0).map(end));
    },
  };
}

/**
 * Runs `COPY … TO STDOUT` and yields the lines in blocks. Throws errors of PostgreSQL or of the connection. If the
 * consumer stops early, end the client with timeout 0: the server ends the statement when its connection is closed.
 */
export async function* copyOut(client: postgres.Sql, statement: string): AsyncGenerator<string[]> {
  const readable = await waitWhileFull(() => handOver(client.unsafe(statement, [], ONE_STATEMENT)));
  yield* readLines(readable);
  // The driver may have paused its socket at the last block. Reading on lets it receive the end of the statement.
  readable._read(0);
}

/**
 * Adds an error listener before the driver hands the stream over. If the first row fails, the driver destroys the
 * stream in the same turn. A listener added after the promise has resolved is too late, and the uncaught error ends the
 * process.
 */
async function handOver(query: PromiseLike<unknown>): Promise<Readable> {
  const handed = query as unknown as { resolve: (stream: Readable) => void } & PromiseLike<Readable>;
  const resolve = handed.resolve;
  handed.resolve = (stream) => {
    handed.resolve = resolve; // the driver calls it again with the result when the query has ended
    stream.on('error', () => undefined); // `stream.errored` keeps the error
    // After all data has arrived, an idle client may close its connection. The driver then has no socket to resume.
    const readMore = stream._read.bind(stream);
    stream._read = (size) => {
      try {
        readMore(size);
      } catch (error) {
        if (!(error instanceof TypeError)) throw error;
      }
    };
    resolve(stream);
  };
  return handed;
}

/** Yields the lines of a COPY in blocks. Uses constant memory. */
export async function* readLines(readable: Readable): AsyncGenerator<string[]> {
  let rest = '';
  try {
    for await (const chunk of readable.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
      const lines = (rest + chunk.toString('latin1')).split('\n');
      rest = lines.pop() ?? '';
      if (lines.length > 0) yield lines;
    }
  } catch (error) {
    if (codeOf(error) !== 'ERR_STREAM_PREMATURE_CLOSE') throw error;
    const message = 'the connection was closed while reading';
    throw Object.assign(new Error(message, { cause: error }), { code: 'CONNECTION_CLOSED' });
  }
}

const ESCAPES: Record<string, string> = { b: '\b', f: '\f', n: '\n', r: '\r', t: '\t', v: '\v' };

/** Reverses COPY's escapes in one column. The result is still latin1. */
export function unescapeColumn(text: string): string {
  return text.includes('\\') ? text.replace(/\\(.)/gs, (_, char: string) => ESCAPES[char] ?? char) : text;
}

/** Escapes a latin1 column as COPY does. */
export function escapeColumn(text: string): string {
  return text.replace(/[\\\b\f\n\r\t\v]/g, (char) => {
    const name = Object.keys(ESCAPES).find((key) => ESCAPES[key] === char);
    return `\\${name ?? char}`;
  });
}

/** Returns the UTF-8 bytes of a text as latin1. `decodeColumn` is the inverse. */
export function encodeColumn(text: string): string {
  return Buffer.from(text, 'utf8').toString('latin1');
}

/** Returns the UTF-8 text of a column that was decoded as latin1. */
export function decodeColumn(latin1: string): string {
  return Buffer.from(latin1, 'latin1').toString('utf8');
}
