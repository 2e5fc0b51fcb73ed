// postgres.js 3.4.9 sends the ROLLBACK or the next statement of a transaction even after its connection has closed.
// Nobody can catch the resulting error, and the process ends (porsager/postgres#1154). Therefore nothing more is sent,
// and the driver never learns that the work has ended. The driver has already failed the transaction by then.
import type postgres from 'postgres';
import { codeOf } from '../errors/errors.js';
import { connectionClosed } from './postgres-socket.js';

/** An open transaction, or a savepoint within a transaction. */
export interface Transaction {
  /** Sends a statement. Throws CONNECTION_CLOSED if the connection is lost. */
  send<Result>(statement: (sql: postgres.TransactionSql) => PromiseLike<Result>): Promise<Result>;
  savepoint<Result>(work: (inner: Transaction) => Promise<Result>): Promise<Result>;
}

/** Runs `work` in a transaction. Throws the errors of `work`, and CONNECTION_CLOSED if the connection is lost. */
export async function inTransaction<T>(
  client: Pick<postgres.Sql, 'begin'>,
  work: (tx: Transaction) => Promise<T>,
): Promise<T> {
  let isLost = false;
  let fail: (reason: Error) => void = () => undefined;
  const lost = new Promise<never>((_, reject) => (fail = reject));
  lost.catch(() => undefined); // the race in `savepoint` throws the error
  const lose = () => {
    isLost = true;
    fail(connectionClosed());
  };

  /** Runs the work that is handed to the driver. The promise never settles if the connection is lost. */
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
    lose(); // nothing may be sent after the transaction
  }
}
