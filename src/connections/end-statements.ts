// A statement ends with its client. When a connection closes, PostgreSQL goes on with the statement until it has something to
// send: a view may compute for hours. So a client that ends cancels at the server what is still under way. Each statement is
// also a span of the trace.
import { Readable } from 'node:stream';
import type postgres from 'postgres';
import { endsWithin } from '../process/lifecycle.js';
import { openDatabaseSpan } from '../process/tracing.js';

/** For the request to cancel, and the server's answer to it. */
const CANCEL_WITHIN_S = 1;

type Statements = Pick<postgres.Sql, 'unsafe'>;

/** `end` of the client cancels its statements that have not ended within the timeout. Returns the client. */
export function endStatementsWithClient<T extends postgres.Sql>(client: T): T {
  const underWay = new Set<{ cancel(): void }>();

  function watch<S extends Statements>(sql: S): S {
    const { unsafe } = sql;
    sql.unsafe = ((...statement: Parameters<typeof unsafe>) => {
      const span = openDatabaseSpan('postgresql', statement[0]);
      const query = unsafe(...statement);
      underWay.add(query);
      const forget = (error?: unknown) => {
        underWay.delete(query);
        span?.end(error);
      };
      const ended = (result: unknown) => {
        if (result instanceof Readable) result.once('close', () => forget());
        else forget();
      };
      // Its own `then` would send it.
      void Promise.prototype.then.call(query, ended, forget);
      return query;
    }) as typeof unsafe;
    return sql;
  }

  const { begin, end } = client;
  type Work = (sql: postgres.TransactionSql) => unknown;
  client.begin = ((...given: [string, Work] | [Work]) => {
    const work = given.pop() as Work;
    let ending: ReturnType<typeof openDatabaseSpan>;
    const end = (statement: string) => (ending = openDatabaseSpan('postgresql', statement));
    const done = begin(...(given as unknown as [string]), async (sql) => {
      try {
        const result = await work(watch(sql));
        end('COMMIT');
        return result;
      } catch (error) {
        end('ROLLBACK');
        throw error;
      }
    });
    return done.finally(() => ending?.end());
  }) as typeof begin;
  client.end = async ({ timeout }: { timeout?: number } = {}) => {
    if (timeout === undefined) return end();
    const ended = end({ timeout: timeout + CANCEL_WITHIN_S });
    if (!(await endsWithin(ended, timeout * 1000))) for (const query of underWay) query.cancel();
    return ended;
  };
  return watch(client);
}
