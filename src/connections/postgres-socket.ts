// The sockets of postgres.js. If a server closes a connection before it is ready, as a web server does at a PostgreSQL
// address, the driver reconnects for ever without an error. Here the second attempt fails with a reason. Of each it is known
// since when nothing has arrived, and whether anything was sent since then.
import { connect, Socket } from 'node:net';
import type { PostgresAddress } from './postgres-address.js';

/** `code` of the error: what answers is not PostgreSQL, or it closes the connection. */
export const NOT_POSTGRESQL = 'NOT_POSTGRESQL';

/** First bytes of a server's answer: authentication, error, notice, another version; of TLS, yes and no. */
const FIRST_BYTES = new Set(Buffer.from('RENvS'));

export type Sockets = ReturnType<typeof createSockets>;

/** The sockets of one client: none after the first is lost, unless it reconnects. */
export function createSockets({ host, port }: Pick<PostgresAddress, 'host' | 'port'>, reconnects: boolean) {
  let hungUp: Error | undefined;
  let first: Socket | undefined;
  /** Open ones, with the bytes that had arrived and been sent, and the times when that was first seen. */
  const heard = new Map<Socket, { arrived: number; at: number; sent: number; sentAt: number }>();

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
    const isFolder = host.startsWith('/');
    const socket = isFolder ? connect(`${host}/.s.PGSQL.${port}`) : connect(port, host);
    // The driver asks to cancel a statement over a connection of its own, which is never answered.
    const isBeside = [...heard.keys()].some((other) => !other.destroyed && other.bytesRead > 0);
    const onClose = (hadError: boolean) => {
      if (!hadError && !isBeside) hungUp = notPostgresql('it closed the connection without an answer');
    };
    socket.once('close', onClose);
    first ??= socket;
    socket.once('data', (bytes: Buffer) => {
      socket.off('close', onClose);
      if (!FIRST_BYTES.has(bytes[0] ?? 0)) socket.destroy(notPostgresql('what answers is not PostgreSQL'));
      else endWithoutError(socket);
    });
    const now = performance.now();
    heard.set(socket, { arrived: 0, at: now, sent: 0, sentAt: now });
    // The driver asks for this name when it starts TLS.
    return Object.assign(socket, { host });
  }

  return {
    open,

    /**
     * Notes what has arrived and was sent. The driver replaces the listeners of a socket that it encrypts, so its bytes are
     * counted.
     */
    listen(): void {
      const now = performance.now();
      for (const [socket, known] of heard) {
        if (socket.destroyed) heard.delete(socket);
        if (socket.bytesRead !== known.arrived) Object.assign(known, { arrived: socket.bytesRead, at: now });
        if (socket.bytesWritten !== known.sent)
          Object.assign(known, { sent: socket.bytesWritten, sentAt: now });
      }
    },

    /** Open sockets from which nothing has arrived for this time. */
    silentFor: (ms: number): Socket[] =>
      [...heard].flatMap(([socket, { at }]) => (performance.now() - at >= ms ? [socket] : [])),

    /** Open sockets from which nothing has arrived since something was sent, this time ago. */
    unansweredFor: (ms: number): Socket[] =>
      [...heard].flatMap(([socket, { at, sentAt }]) =>
        sentAt > at && performance.now() - sentAt >= ms ? [socket] : [],
      ),
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
