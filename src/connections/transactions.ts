// When the connection of a transaction closes, postgres.js 3.4.9 still sends its ROLLBACK, or its next statement, over a socket
// that is not there. Nobody can catch what comes of that, and the process ends (porsager/postgres#1154). So every statement
// of a transaction that has lost its connection is refused here.
import type postgres from 'postgres';
import { codeOf } from '../errors/errors.js';
import { connectionClosed } from './postgres-socket.js';

interface Transaction {
  isLost: boolean;
}

/** A statement of the driver, before it is sent. */
interface Unsent {
  /** Sends it: the same function for all statements of a transaction, or of a savepoint. */
  handler: (statement: Unsent) => unknown;
  reject(reason: unknown): void;
}

type Work<T> = (tx: postgres.TransactionSql) => T;
type Begin = (...given: [...options: string[], work: Work<unknown>]) => Promise<unknown>;

const byHandler = new WeakMap<object, Transaction>();

/** From now on the client's transactions, and their savepoints, are known. */
export function watchTransactions(client: { begin: unknown }): void {
  const begin = client.begin as Begin;
  client.begin = async (...given: Parameters<Begin>): Promise<unknown> => {
    const transaction = { isLost: false };
    try {
      return await passOn(begin, given, transaction);
    } finally {
      transaction.isLost = true; // over in any case
    }
  };
}

function passOn(start: Begin, given: Parameters<Begin>, transaction: Transaction): Promise<unknown> {
  const work = given.pop() as Work<unknown>;
  return start(...(given as string[]), (tx) => {
    byHandler.set((tx.unsafe('') as unknown as Unsent).handler, transaction);
    const savepoint = tx.savepoint.bind(tx) as Begin;
    const within = { savepoint: (...inner: Parameters<Begin>) => passOn(savepoint, inner, transaction) };
    return work(Object.assign(tx, within) as postgres.TransactionSql);
  });
}

/** Refuses the statement when it is sent, where the connection of its transaction is lost. Returns what notes its failure. */
export function watchConnection(statement: Unsent): (error: unknown) => void {
  const { handler } = statement;
  const transaction = byHandler.get(handler);
  if (!transaction) return () => undefined;
  statement.handler = (sent) => (transaction.isLost ? sent.reject(connectionClosed()) : handler(sent));
  return (error) => {
    if (codeOf(error).startsWith('CONNECTION_')) transaction.isLost = true;
  };
}
