// The sockets of postgres.js. If a server closes a connection before it is ready, as a web server does at a PostgreSQL
// address, the driver reconnects for ever without an error. Here the second attempt fails with a reason.
import { connect, isIP, Socket } from 'node:net';
import { connect as connectTls, type ConnectionOptions } from 'node:tls';
import { codeOf } from '../errors/errors.js';
import type { PostgresAddress } from './addresses.js';
import { watchdog, type Silence } from './watchdog.js';

/** `code` of the error: what answers is not PostgreSQL, or it closes the connection. */
export const NOT_POSTGRESQL = 'NOT_POSTGRESQL';

/** First bytes of a server's answer: authentication, error, notice, another version; of TLS, yes and no. */
const FIRST_BYTES = new Set(Buffer.from('RENvS'));

/** The message that asks a server for TLS. */
const TLS_REQUEST = Buffer.from([0, 0, 0, 8, 4, 210, 22, 47]);

/** Options of the driver that name the server. */
interface Server extends Pick<PostgresAddress, 'host' | 'port'> {
  ssl: PostgresAddress['tls'];
}

/**
 * The sockets of one client: none after the first is lost, unless it reconnects. TLS is started here: of a socket that the
 * driver encrypts nobody else sees when it is paused or ended.
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

  /** Starts TLS, in the time that a connection may take. Throws the reason why the socket was closed instead. */
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
      // Before the certificate is verified nothing may be written.
      const servername = isIP(host) ? undefined : host;
      const socket = connectTls({ socket: plain, servername, ...options });
      socket.on('error', () => undefined); // `errored` holds it
      await unlessClosed(socket, 'secureConnect');
      return socket;
    } finally {
      clearTimeout(timer);
    }
  }

  return {
    open,
    /** Closes what is still open. PostgreSQL notices it when it has something to send, or looks whether its client is there. */
    destroy: (): void => opened.forEach((socket) => socket.destroy()),
  };
}

/**
 * A socket that fails as soon as the driver listens to it and has written. The driver would write nothing over its next
 * connection if this one closed before (postgres.js 3.4.9).
 */
function failed(reason: Error): Socket {
  const socket = new Socket();
  socket.cork(); // what is written goes nowhere
  setImmediate(() => setImmediate(() => socket.destroy(reason)));
  return socket;
}

/** The error of the driver. */
export function connectionClosed(): Error {
  return Object.assign(new Error('the connection was closed'), { code: 'CONNECTION_CLOSED' });
}

function connectTimedOut(): Error {
  return Object.assign(new Error('the server did not answer'), { code: 'CONNECT_TIMEOUT' });
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
