// Questions to the server about a statement whose answer does not arrive, over a connection of their own.
import type postgres from 'postgres';
import { arrayLiteral } from '../text/sql-text.js';
import { withDeadline } from '../time/deadline.js';
import type { AtWork } from './silent-connections.js';
import type { Statement } from './statements.js';

/** To connect, and for the answer. */
const ANSWER_WITHIN_MS = 15_000;

/** A statement whose result tells running servers apart, also behind a pooler. */
export const SERVER_ID = `SELECT pg_catalog.pg_postmaster_start_time()::text AS "serverId"`;

/**
 * Functions are named with their schema: this is no read-only transaction, and `unnest` of another role for texts alone would be
 * preferred. By its text, because a pooler announces process numbers of its own. A session that waits for its client is not at work.
 */
const AT_WORK = `${SERVER_ID},
  EXISTS (SELECT FROM pg_catalog.pg_stat_activity AS a
    WHERE a.pid <> pg_backend_pid() AND a.state = 'active' AND a.wait_event_type IS DISTINCT FROM 'Client'
      AND a.query <> '' AND EXISTS (
        SELECT FROM pg_catalog.unnest($1::text::text[]) AS t(text) WHERE pg_catalog.starts_with(t.text, a.query))
  ) AS "isAtWork",
  (SELECT a.state = 'active' FROM pg_catalog.pg_stat_activity AS a WHERE a.pid = pg_backend_pid()) AS "isShown"`;

/** Ends sessions of this program alone, and none whose process number belongs to a busy session by now. */
const END_SESSIONS = `SELECT pg_catalog.pg_terminate_backend(a.pid) FROM pg_catalog.pg_stat_activity AS a
  WHERE a.pid = ANY ($1::text::int[]) AND a.usename = current_user AND a.application_name = $2
    AND (a.state <> 'active' OR a.wait_event_type = 'Client')`;

/**
 * `serverId` returns the server that has the statements, where the address may lead to several: another one can say nothing
 * of them.
 */
export function createQuestions(
  connect: () => Pick<postgres.Sql, 'unsafe' | 'end'>,
  applicationName: string,
  serverId: () => string | undefined = () => undefined,
) {
  async function ask<T extends object>(statement: string, values: string[]): Promise<T | undefined> {
    try {
      const client = connect();
      const asked = withDeadline({ ms: ANSWER_WITHIN_MS }, () => client.unsafe<T[]>(statement, values));
      const [row] = await asked.finally(() => void client.end({ timeout: 0 }));
      return row;
    } catch {
      return undefined; // nothing is known, which has a name for the caller
    }
  }

  return {
    async askServer(statements: readonly Statement[]): Promise<AtWork> {
      const asked = serverId();
      const texts = arrayLiteral(statements.map((statement) => statement.text()));
      const answer = await ask<{ serverId: string; isAtWork: boolean; isShown: boolean }>(AT_WORK, [texts]);
      if (answer?.isAtWork) return 'yes';
      const isOther = asked !== undefined && asked !== answer?.serverId;
      return answer?.isShown && !isOther ? 'no' : 'unknown';
    },

    async endSessions(statements: readonly Statement[]): Promise<void> {
      const pids = statements.flatMap((statement) => statement.pid() ?? []);
      await ask(END_SESSIONS, [arrayLiteral(pids.map(String)), applicationName]);
    },
  };
}
