// Closes connections that fell silent without being closed, for example because a firewall forgot one or a proxy hangs.
// Waiting statements then fail, as after a restart of the server, and a new connection is opened. If new connections
// get no answer for minutes either, the process ends. Nothing is lost, and its supervisor starts it again.
import type { Socket } from 'node:net';

const SECOND = 1000;
const LOOK_MS = 5 * SECOND;
/** Time that the server has to close a connection that this process has ended. */
const CLOSE_WITHIN_MS = 10 * SECOND;
/** The process ends if new connections to a silent server get no answer for this time. */
const GIVE_UP_MS = 5 * 60 * SECOND;

/** Limits for watching a connection, in milliseconds. */
export interface Silence {
  /** The connection is closed if nothing arrives for this time. Longer than the server may work on a statement. */
  answerWithinMs: number;
  lookMs?: number;
  closeWithinMs?: number;
}

export type Watchdog = ReturnType<typeof createWatchdog>;

/** Creates a watchdog. `end` ends the process; its argument names the silent server, as in `PostgreSQL at db:5432`. */
export function createWatchdog(end: (server: string) => void, giveUpMs = GIVE_UP_MS) {
  /** Servers that fell silent, each with the time when a new connection to it first got no answer. */
  const suspects = new Map<string, { unansweredSince?: number }>();

  /** Notes that a connection to the server was closed because nothing arrived. */
  function silent(server: string): void {
    if (!suspects.has(server)) suspects.set(server, {});
  }

  /** Notes that a new connection to the server was closed before anything arrived. */
  function unanswered(server: string): void {
    const suspect = suspects.get(server);
    if (!suspect) return;
    suspect.unansweredSince ??= performance.now();
    if (performance.now() - suspect.unansweredSince >= giveUpMs) end(server);
  }

  /** Notes that the server has sent something, even if only a refusal. */
  const answers = (server: string): void => void suspects.delete(server);

  /** Closes the socket if nothing arrives for `answerWithinMs`. */
  function watch(
    socket: Socket,
    server: string,
    { answerWithinMs, lookMs = LOOK_MS, closeWithinMs = CLOSE_WITHIN_MS }: Silence,
  ): void {
    let arrived = 0;
    let at = performance.now();
    let endedAt: number | undefined;
    const look = () => {
      if (socket.destroyed) return clearInterval(timer);
      const now = performance.now();
      if (socket.writableEnded) {
        // This process has ended the connection. The server has nothing to answer and only needs to close it.
        endedAt ??= now;
        if (now - endedAt >= closeWithinMs) socket.destroy();
        return;
      }
      if (socket.bytesRead !== arrived) answers(server);
      // The socket is paused if its reader is slow. Then silence is not the server's fault.
      if (socket.bytesRead !== arrived || socket.isPaused()) at = now;
      arrived = socket.bytesRead;
      if (now - at < answerWithinMs) return;
      silent(server);
      socket.destroy();
    };
    const timer = setInterval(look, lookMs).unref();
  }

  return { silent, unanswered, answers, watch };
}

let sayGivenUp: (server: string) => void = () => undefined;

export const watchdog = createWatchdog((server) => {
  sayGivenUp(server);
  process.exit(1);
});

/** Registers `say`, which is called with the silent server's name before the watchdog ends the process. */
export const beforeGivingUp = (say: (server: string) => void): void => void (sayGivenUp = say);
