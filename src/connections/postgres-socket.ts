// The sockets of postgres.js. If a server closes a connection before it is ready, as a web server does at a PostgreSQL
// address, the driver reconnects for ever without an error. Here the second attempt fails with a reason.
import { connect, Socket } from 'node:net';
import { codeOf } from '../errors/errors.js';
import type { PostgresAddress } from './addresses.js';
import { watchdog, type Silence } from './watchdog.js';

/** `code` of the error: what answers is not PostgreSQL, or it closes the connection. */
export const NOT_POSTGRESQL = 'NOT_POSTGRESQL';

/** First bytes of a server's answer: authentication, error, notice, another version; of TLS, yes and no. */
const FIRST_BYTES = new Set(Buffer.from('RENvS'));

/** The sockets of one client: none after the first is lost, unless it reconnects. */
export function createSockets(
  { host, port }: Pick<PostgresAddress, 'host' | 'port'>,
  { reconnects, ...silence }: Silence & { reconnects: boolean },
) {
  const server = `PostgreSQL at ${host}:${port}`;
  const opened = new Set<Socket>();
  let hungUp: Error | undefined;
  let first: Socket | undefined;

  function open(): Socket {
    // Not by a listener, which the driver removes when it encrypts.
    if (first?.destroyed && !reconnects) hungUp ??= connectionClosed();
    if (hungUp !== undefined) {
      const reason = hungUp;
      hungUp = undefined;
      const failed = new Socket();
      setImmediate(() => failed.destroy(reason));
      return failed;
    }
    const socket = connectPlain();
    first ??= socket;
    socket.once('data', () => {
      if (!socket.destroyed) endWithoutError(socket);
    });
    watchdog.watch(socket, server, silence);
    for (const former of opened) if (former.destroyed) opened.delete(former);
    opened.add(socket);
    // The driver asks for this name when it starts TLS.
    return Object.assign(socket, { host });
  }

  function connectPlain(): Socket {
    const socket = host.startsWith('/') ? connect(`${host}/.s.PGSQL.${port}`) : connect(port, host);
    let isAnswered = false;
    const answers = () => {
      isAnswered = true;
      watchdog.answers(server);
    };
    socket.once('error', (error) => codeOf(error) !== 'ETIMEDOUT' && answers());
    // Emitted if the other side closes the connection, not if we do.
    socket.once('end', () => {
      if (!isAnswered) hungUp = notPostgresql('it closed the connection without an answer');
      answers();
    });
    socket.once('data', (bytes: Buffer) => {
      answers();
      if (!FIRST_BYTES.has(bytes[0] ?? 0)) socket.destroy(notPostgresql('what answers is not PostgreSQL'));
    });
    socket.once('close', () => !isAnswered && watchdog.unanswered(server));
    return socket;
  }

  return {
    open,
    /** Closes what is still open. PostgreSQL notices it when it has something to send, or looks whether its client is there. */
    destroy: (): void => opened.forEach((socket) => socket.destroy()),
  };
}

/** The error of the driver. */
export function connectionClosed(): Error {
  return Object.assign(new Error('the connection was closed'), { code: 'CONNECTION_CLOSED' });
}

/**
 * A lost connection closes, without an error before it. Between the two the driver would take another statement, such as that
 * of whoever hears of the first one's failure, and never answer it (postgres.js 3.4.9).
 */
function endWithoutError(socket: Socket): void {
  const emit = socket.emit.bind(socket) as (event: string | symbol, ...values: unknown[]) => boolean;
  socket.emit = (event: string | symbol, ...values: unknown[]) =>
    event === 'error' || emit(event, ...(event === 'close' ? [false] : values));
}

function notPostgresql(message: string): Error {
  return Object.assign(new Error(message), { code: NOT_POSTGRESQL });
}
