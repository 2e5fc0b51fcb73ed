// Opens the sockets of postgres.js. If a server closes a connection before it is ready, as a web server at a PostgreSQL
// address does, the driver reconnects for ever without an error. With these sockets the second attempt fails with a
// reason.
import { connect, isIP, Socket } from 'node:net';
import { connect as connectTls, type ConnectionOptions } from 'node:tls';
import { codeOf } from '../errors/errors.js';
import type { PostgresAddress } from './addresses.js';
import { watchdog, type Silence } from './watchdog.js';

/** Error code: the server is not PostgreSQL, or it closes the connection without an answer. */
export const NOT_POSTGRESQL = 'NOT_POSTGRESQL';

/** First bytes of PostgreSQL's answers: authentication, error, notice, another version; yes and no to TLS. */
const FIRST_BYTES = new Set(Buffer.from('RENvS'));

/** PostgreSQL's SSLRequest message, which asks the server for TLS. */
const TLS_REQUEST = Buffer.from([0, 0, 0, 8, 4, 210, 22, 47]);

interface Server extends Pick<PostgresAddress, 'host' | 'port'> {
  ssl: PostgresAddress['tls'];
}

/**
 * Creates the sockets of one client. Unless it `reconnects`, no socket is opened after the first is lost. TLS is
 * started here, because nobody else can see when a socket that the driver encrypts is paused or ended.
 */
export function createSockets(
  { host, port, ssl }: Server,
  { reconnects, connectWithinMs, ...silence }: Silence & { reconnects: boolean; connectWithinMs: number },
) {
  const server = `PostgreSQL at ${host}:${port}`;
  const opened = new Set<Socket>();
  let hungUp: Error | undefined;
  let first: Socket | undefined;

  async function open(): Promise<Socket> {
    if (first?.destroyed && !reconnects) hungUp ??= connectionClosed();
    const reason = takeHungUp();
    if (reason) return failed(reason);
    const plain = connectPlain();
    first ??= plain;
    for (const former of opened) if (former.destroyed) opened.delete(former);
    opened.add(plain);
    try {
      const socket = ssl === false ? plain : await encrypt(plain, ssl);
      socket.once('data', () => {
        if (!socket.destroyed) endWithoutError(socket);
      });
      watchdog.watch(socket, server, silence);
      return socket;
    } catch (error) {
      return failed(error as Error);
    }
  }

  function takeHungUp(): Error | undefined {
    const reason = hungUp;
    hungUp = undefined;
    return reason;
  }

  function connectPlain(): Socket {
    const socket = host.startsWith('/') ? connect(`${host}/.s.PGSQL.${port}`) : connect(port, host);
    let isAnswered = false;
    const answers = () => {
      isAnswered = true;
      watchdog.answers(server);
    };
    socket.once('error', (error) => codeOf(error) !== 'ETIMEDOUT' && answers());
    // Emitted if the server closes the connection, not if this process does.
    socket.once('end', () => {
      if (!isAnswered) hungUp = notPostgresql('it closed the connection without an answer');
      answers();
    });
    socket.once('data', (bytes: Buffer) => {
      answers();
      if (!FIRST_BYTES.has(bytes[0] ?? 0)) socket.destroy(notPostgresql('the server is not PostgreSQL'));
    });
    socket.once('close', () => !isAnswered && watchdog.unanswered(server));
    return socket;
  }

  /** Starts TLS within the connect timeout. Throws the reason if the socket is closed instead. */
  async function encrypt(plain: Socket, options: ConnectionOptions): Promise<Socket> {
    const timer = setTimeout(() => plain.destroy(), connectWithinMs);
    const unlessClosed = async (socket: Socket, event: 'data' | 'secureConnect') => {
      const isClosed = await new Promise<boolean>((resolve) => {
        socket.once(event, () => resolve(socket.destroyed));
        socket.once('close', () => resolve(true));
      });
      if (isClosed) throw socket.errored ?? takeHungUp() ?? connectTimedOut();
    };
    try {
      plain.write(TLS_REQUEST);
      await unlessClosed(plain, 'data');
      // Nothing may be written before the certificate is verified.
      const servername = isIP(host) ? undefined : host;
      const socket = connectTls({ socket: plain, servername, ...options });
      socket.on('error', () => undefined); // `socket.errored` keeps the error
      await unlessClosed(socket, 'secureConnect');
      return socket;
    } finally {
      clearTimeout(timer);
    }
  }

  return {
    open,
    /** Closes the open sockets. PostgreSQL notices this when it sends data or checks for its client. */
    destroy: (): void => opened.forEach((socket) => socket.destroy()),
  };
}

/**
 * Returns a socket that fails after the driver has listened and written. If the socket failed earlier, postgres.js
 * 3.4.9 would write nothing over its next connection.
 */
function failed(reason: Error): Socket {
  const socket = new Socket();
  socket.cork(); // keeps what the driver writes, which is never sent
  setImmediate(() => setImmediate(() => socket.destroy(reason)));
  return socket;
}

/** Returns an error with the code that the driver uses for a lost connection. */
export function connectionClosed(): Error {
  return Object.assign(new Error('the connection was closed'), { code: 'CONNECTION_CLOSED' });
}

function connectTimedOut(): Error {
  return Object.assign(new Error('the server did not answer'), { code: 'CONNECT_TIMEOUT' });
}

/**
 * Makes a lost connection close without an error event. Between `error` and `close`, postgres.js 3.4.9 would accept
 * another statement, for example a retry, and never answer it.
 */
function endWithoutError(socket: Socket): void {
  const emit = socket.emit.bind(socket) as (event: string | symbol, ...values: unknown[]) => boolean;
  socket.emit = (event: string | symbol, ...values: unknown[]) =>
    event === 'error' || emit(event, ...(event === 'close' ? [false] : values));
}

function notPostgresql(message: string): Error {
  return Object.assign(new Error(message), { code: NOT_POSTGRESQL });
}
