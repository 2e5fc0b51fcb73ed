// When the connection of a transaction closes, postgres.js 3.4.9 still sends its ROLLBACK, or its next statement, over a socket
// that is not there. Nobody can catch what comes of that, and the process ends (porsager/postgres#1154). So nothing of such a
// transaction is sent, and the driver is not told that its work has ended: it has failed the transaction itself by then.
import type postgres from 'postgres';
import { codeOf } from '../errors/errors.js';
import { connectionClosed } from './postgres-socket.js';

/** An open transaction, or a savepoint in one. */
export interface Transaction {
  /** Sends the statement. Throws CONNECTION_CLOSED when the connection is lost. */
  send<Result>(statement: (sql: postgres.TransactionSql) => PromiseLike<Result>): Promise<Result>;
  savepoint<Result>(work: (inner: Transaction) => Promise<Result>): Promise<Result>;
}

/** Does the work in a transaction. Throws what the work throws, and CONNECTION_CLOSED when the connection is lost. */
export async function inTransaction<T>(
  client: Pick<postgres.Sql, 'begin'>,
  work: (tx: Transaction) => Promise<T>,
): Promise<T> {
  let isLost = false;
  let fail: (reason: Error) => void = () => undefined;
  const lost = new Promise<never>((_, reject) => (fail = reject));
  lost.catch(() => undefined); // whoever works in a savepoint hears of it
  const lose = () => {
    isLost = true;
    fail(connectionClosed());
  };

  /** The work as the driver sees it: without an end once the connection is lost. */
  async function endless<R>(run: () => Promise<R>): Promise<R> {
    try {
      const result = await run();
      if (!isLost) return result;
    } catch (error) {
      if (!isLost) throw error;
    }
    return new Promise<never>(() => undefined);
  }

  const guard = (sql: postgres.TransactionSql): Transaction => ({
    async send(statement) {
      if (isLost) throw connectionClosed();
      try {
        return await statement(sql);
      } catch (error) {
        if (codeOf(error).startsWith('CONNECTION_')) lose();
        throw error;
      }
    },
    savepoint: <R>(inner: (nested: Transaction) => Promise<R>) =>
      Promise.race([
        lost,
        sql.savepoint((nested: postgres.TransactionSql) => endless(() => inner(guard(nested)))) as Promise<R>,
      ]),
  });

  try {
    return (await client.begin((sql) => endless(() => work(guard(sql))))) as T;
  } finally {
    lose(); // it is over in any case
  }
}
