// Questions to the server about a statement whose answer does not arrive, over a connection of their own.
import type postgres from 'postgres';
import { arrayLiteral } from '../text/sql-text.js';
import { withDeadline } from '../time/deadline.js';
import type { AtWork } from './silent-connections.js';
import type { Statement } from './statements.js';

/** To connect, and for the answer. */
const ANSWER_WITHIN_MS = 15_000;

/** A statement whose result tells running servers apart, also behind a pooler. */
export const SERVER_ID = `SELECT pg_catalog.pg_postmaster_start_time()::pg_catalog.text AS "serverId"`;

const IS = 'OPERATOR(pg_catalog.=)';
const IS_NOT = 'OPERATOR(pg_catalog.<>)';

/**
 * Everything is named with its schema: this is no read-only transaction, and the role's search path may find another function or
 * operator first. By its text, because a pooler announces process numbers of its own. A session that waits for its client is not at work.
 */
const AT_WORK = `${SERVER_ID},
  EXISTS (SELECT FROM pg_catalog.pg_stat_activity AS a
    WHERE a.pid ${IS_NOT} pg_catalog.pg_backend_pid() AND a.state ${IS} 'active'
      AND coalesce(a.wait_event_type, '') ${IS_NOT} 'Client' AND a.query ${IS_NOT} '' AND EXISTS (
        SELECT FROM pg_catalog.unnest($1::pg_catalog.text::pg_catalog.text[]) AS t(text)
        WHERE pg_catalog.starts_with(t.text, a.query))
  ) AS "isAtWork",
  (SELECT a.state ${IS} 'active' FROM pg_catalog.pg_stat_activity AS a
    WHERE a.pid ${IS} pg_catalog.pg_backend_pid()) AS "isShown"`;

/** Ends sessions of this program alone, and none whose process number belongs to a busy session by now. */
const END_SESSIONS = `SELECT pg_catalog.pg_terminate_backend(a.pid) FROM pg_catalog.pg_stat_activity AS a
  WHERE a.pid ${IS} ANY ($1::pg_catalog.text::int[]) AND a.usename ${IS} current_user AND a.application_name ${IS} $2
    AND (a.state ${IS_NOT} 'active' OR a.wait_event_type ${IS} 'Client')`;

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
