// A connection can fall silent without being closed: a firewall has forgotten it, another server answers at its address, a
// pooler hangs. Its answer would be waited for without end, although a new connection works. A long statement is as silent,
// so the server is asked over a second connection whether it still works on the statement.
import type { Statement } from './statements.js';
import type { Sockets } from './postgres-socket.js';

/** All times in milliseconds. */
export const SILENCE = {
  /** How often connections are looked at. What the server has sent before it was asked arrives within this time. */
  lookMs: 5_000,
  /** Nothing has arrived for this time although an answer is due: the server is asked, and again after this time. */
  askMs: 20_000,
  /** An answer that is due for this time is given up, unless the server is seen to work on it. */
  giveUpMs: 31 * 60_000,
  /** The server has this time to close a connection that the driver has ended. Longer than opening one may take. */
  closeMs: 10_000,
};

/** `unknown`: the server could not be asked, or what it says proves nothing. */
export type AtWork = 'yes' | 'no' | 'unknown';

interface Watched {
  statements: ReadonlySet<Statement>;
  sockets: Sockets;
  /** Whether the server works on one of these statements. Never throws. */
  askServer(statements: readonly Statement[]): Promise<AtWork>;
  /** Ends their sessions at the server, which would keep their locks. Never throws. */
  endSessions(statements: readonly Statement[]): Promise<void>;
}

/**
 * Closes silent connections until the function that it returns is called. What is under way on them fails, as when a server
 * restarts.
 */
export function closeSilentConnections(
  { statements, sockets, askServer, endSessions }: Watched,
  { lookMs, askMs, giveUpMs, closeMs } = SILENCE,
): () => void {
  const awaitedSince = new WeakMap<Statement, number>();
  let askAfter = 0;
  let isLooking = false;

  /** The statements whose answers have been due for this time. */
  function findDue(ms: number): Statement[] {
    const now = performance.now();
    return [...statements].filter((statement) => {
      if (!statement.isAwaited()) awaitedSince.delete(statement);
      else if (!awaitedSince.has(statement)) awaitedSince.set(statement, now);
      return now - (awaitedSince.get(statement) ?? now) >= ms;
    });
  }

  /**
   * The driver ends an idle connection, and opens another one in its place when the server has closed it. Over a silent one
   * the server never hears of it. While no statement is under way, nothing else that was sent can be without an answer.
   */
  function closeEnded(): void {
    if ([...statements].some((statement) => statement.isSent())) return;
    for (const socket of sockets.unansweredFor(closeMs)) socket.destroy();
  }

  async function look(): Promise<void> {
    sockets.listen();
    closeEnded();
    const due = findDue(askMs);
    if (due.length === 0 || performance.now() < askAfter || sockets.silentFor(askMs).length === 0) return;
    const isAtWork = await askServer(due);
    askAfter = performance.now() + askMs;
    if (isAtWork === 'yes' || (isAtWork === 'unknown' && findDue(giveUpMs).length === 0)) return;
    await new Promise((resolve) => setTimeout(resolve, lookMs).unref());
    sockets.listen();
    const lost = findDue(askMs).filter((statement) => due.includes(statement));
    const silent = sockets.silentFor(askMs);
    if (lost.length === 0 || silent.length === 0) return;
    if (isAtWork === 'no') await endSessions(lost);
    for (const socket of silent) socket.destroy();
  }

  const timer = setInterval(() => {
    if (isLooking) return;
    isLooking = true;
    void look().finally(() => (isLooking = false));
  }, lookMs).unref();
  return () => clearInterval(timer);
}
