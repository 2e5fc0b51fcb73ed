// Closes connections that have fallen silent without being closed: a firewall has forgotten one, a proxy hangs, another server
// answers at its address. What waits for an answer there fails, as when a server restarts, and a new connection is opened. Where
// that gets no answer for minutes either, the process ends: nothing is lost, and its supervisor starts it again.
import type { Socket } from 'node:net';

const SECOND = 1000;
const LOOK_MS = 5 * SECOND;
/** The other side has this time to close a connection that we have ended. Longer than opening one may take. */
const CLOSE_WITHIN_MS = 10 * SECOND;
/** A server is taken for silent when new connections have had no answer for this time either. */
const GIVE_UP_MS = 5 * 60 * SECOND;

/** All times in milliseconds. */
export interface Silence {
  /** Nothing arrives for this time: the connection is closed. Longer than the server may work on a statement. */
  answerWithinMs: number;
  lookMs?: number;
  closeWithinMs?: number;
}

/** A server of which a connection was closed because it was silent. */
interface Suspect {
  since: number;
  /** A new connection was tried. */
  isTried: boolean;
}

export type Watchdog = ReturnType<typeof createWatchdog>;

/** `end` ends the process with this sentence. `server` names a server in it, such as `PostgreSQL at db:5432`. */
export function createWatchdog(end: (sentence: string) => void, giveUpMs = GIVE_UP_MS) {
  const suspects = new Map<string, Suspect>();

  /** A connection to the server was given up because nothing arrived. */
  function silent(server: string): void {
    const suspect = suspects.get(server) ?? { since: performance.now(), isTried: false };
    suspects.set(server, suspect);
    if (suspect.isTried && performance.now() - suspect.since >= giveUpMs)
      end(
        `${server} has not answered for ${Math.round(giveUpMs / 60 / SECOND)} minutes, nor do new connections: the process ends, and nothing is lost.`,
      );
  }

  /** A connection to the server begins. */
  function tries(server: string): void {
    const suspect = suspects.get(server);
    if (!suspect) return;
    suspect.isTried = true;
    silent(server); // still
  }

  /** The server has answered, be it with a refusal. */
  const answers = (server: string): void => void suspects.delete(server);

  /** Closes the connection when nothing arrives. Bytes are counted, because the driver removes the listeners of a socket that it encrypts. */
  function watch(
    socket: Socket,
    server: string,
    { answerWithinMs, lookMs = LOOK_MS, closeWithinMs = CLOSE_WITHIN_MS }: Silence,
  ): void {
    let arrived = 0;
    let at = performance.now();
    const look = () => {
      if (socket.destroyed) return clearInterval(timer);
      // A reader that takes its time has paused the socket.
      if (socket.bytesRead !== arrived || socket.isPaused()) at = performance.now();
      arrived = socket.bytesRead;
      if (performance.now() - at < (socket.writableEnded ? closeWithinMs : answerWithinMs)) return;
      silent(server);
      socket.destroy();
    };
    const timer = setInterval(look, lookMs).unref();
  }

  return { silent, tries, answers, watch };
}

/** The watchdog of this process. */
export const watchdog = createWatchdog((sentence) => {
  process.stderr.write(`${sentence}\n`);
  process.exit(1);
});
