// A statement ends with its client. When a connection closes, PostgreSQL goes on with the statement until it has something to
// send: a view may compute for hours. So a client that ends cancels at the server what is still under way.
import type postgres from 'postgres';
import { endsWithin } from '../process/lifecycle.js';
import type { Statement } from './statements.js';

/** For the request to cancel, and the server's answer to it. */
const CANCEL_WITHIN_S = 1;

/** `end` of the client cancels its statements that have not ended within the timeout. */
export function endStatementsWithClient(client: postgres.Sql, underWay: ReadonlySet<Statement>): void {
  const { end } = client;
  client.end = async ({ timeout }: { timeout?: number } = {}) => {
    if (timeout === undefined) return end();
    const ended = end({ timeout: timeout + CANCEL_WITHIN_S });
    if (!(await endsWithin(ended, timeout * 1000))) for (const statement of underWay) statement.cancel();
    return ended;
  };
}
