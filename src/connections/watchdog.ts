// Closes connections that have fallen silent without being closed: a firewall has forgotten one, a proxy hangs, another server
// answers at its address. What waits for an answer there fails, as when a server restarts, and a new connection is opened. Where
// new connections get no answer for minutes either, the process ends: nothing is lost, and its supervisor starts it again.
import type { Socket } from 'node:net';

const SECOND = 1000;
const LOOK_MS = 5 * SECOND;
/** The other side has this time to close a connection that we have ended. */
const CLOSE_WITHIN_MS = 10 * SECOND;
/** The process ends when new connections to a silent server have had no answer for this time either. */
const GIVE_UP_MS = 5 * 60 * SECOND;

/** All times in milliseconds. */
export interface Silence {
  /** Nothing arrives for this time: the connection is closed. Longer than the server may work on a statement. */
  answerWithinMs: number;
  lookMs?: number;
  closeWithinMs?: number;
}

export type Watchdog = ReturnType<typeof createWatchdog>;

/** `end` ends the process. It gets the name of the silent server, such as `PostgreSQL at db:5432`. */
export function createWatchdog(end: (server: string) => void, giveUpMs = GIVE_UP_MS) {
  /** Servers that fell silent, each with the time when the first new connection to it was given up. */
  const suspects = new Map<string, { unansweredSince?: number }>();

  /** A connection to the server was closed because nothing arrived. */
  function silent(server: string): void {
    if (!suspects.has(server)) suspects.set(server, {});
  }

  /** A new connection to the server was given up before anything arrived. */
  function unanswered(server: string): void {
    const suspect = suspects.get(server);
    if (!suspect) return;
    suspect.unansweredSince ??= performance.now();
    if (performance.now() - suspect.unansweredSince >= giveUpMs) end(server);
  }

  /** Something has arrived from the server, be it a refusal. */
  const answers = (server: string): void => void suspects.delete(server);

  /** Closes the connection when nothing arrives. */
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
        // We have ended it: the other side has nothing to answer, only to close.
        endedAt ??= now;
        if (now - endedAt >= closeWithinMs) socket.destroy();
        return;
      }
      if (socket.bytesRead !== arrived) answers(server);
      // A reader that takes its time has paused the socket.
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

/** Says why the process ends. */
let sayGivenUp: (server: string) => void = () => undefined;

/** The watchdog of this process. */
export const watchdog = createWatchdog((server) => {
  sayGivenUp(server);
  process.exit(1);
});

/** `say` is called before the watchdog ends the process. */
export const beforeGivingUp = (say: (server: string) => void): void => void (sayGivenUp = say);
