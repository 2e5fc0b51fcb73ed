// BullMQ's tables in PostgreSQL. Its migrations are changed in two ways, because they need rights that a role need not have, and locks
// that any role can take: statements are left out, and its functions lock rows. test/integration/locks.test.ts and roles.test.ts fail
// when a version of BullMQ migrates otherwise.
import { runMigrations } from 'bullmq';
import pg from 'pg';
import { pgConfig, waitWhileFull } from '../connections/postgres-connection.js';
import type { SettingText } from '../config/setting-text.js';
import { QUEUE_SCHEMA, type QueueStore } from './jobs.js';

/** Brings the queue's own tables up to date, where it has any. The caller has the lock of migrations. */
export async function migrateQueue(store: QueueStore): Promise<void> {
  if (!('postgresUrl' in store)) return;
  await withQueueClient(store, async (client) => {
    const { rows } = await client.query<{ exists: boolean }>(
      'SELECT to_regnamespace($1) IS NOT NULL AS exists',
      [QUEUE_SCHEMA],
    );
    // Statements of BullMQ's that are left out: one needs the right to create schemas also where the schema exists, and any role
    // that may connect can take the lock of the other.
    const isSkipped = (text: string) =>
      (rows[0]?.exists && text.startsWith('CREATE SCHEMA IF NOT EXISTS')) ||
      text.startsWith('SELECT pg_advisory_xact_lock');
    const ask = async (text: string, values?: unknown[]) =>
      isSkipped(text) ? { rows: [] } : client.query(text, values);
    await runMigrations({ query: ask } as never, QUEUE_SCHEMA);
    await client.query(OWN_LOCKS);
  });
}

/**
 * A single key is the hash of a text, which may name a job or what another program deduplicates by: a row for each would grow
 * without end. So 65536 keys that follow each other share a row. Their order stays, by which BullMQ takes several.
 */
const GROUP_OF_KEY = 'key >> 16';

/**
 * Lets BullMQ's functions lock rows of a table in the queue's own schema. They lock by advisory locks, which any role that may
 * connect can take: it could hold up every job. Those that only try a lock keep it: nothing waits for them. It may be run again,
 * after BullMQ's own migrations.
 */
const OWN_LOCKS = `
  CREATE TABLE IF NOT EXISTS ${QUEUE_SCHEMA}.lock_key (key bigint PRIMARY KEY);
  ${lockFunction('lock_key', 'key bigint', GROUP_OF_KEY, 'UPDATE')}
  ${lockFunction('lock_key_shared', 'key bigint', GROUP_OF_KEY, 'KEY SHARE')}
  ${lockFunction('lock_key_shared', 'high int, low int', '(high::bigint << 32) | (low::bigint & 4294967295)', 'KEY SHARE')}
  ${lockFunction('lock_key', 'high int, low int', '(high::bigint << 32) | (low::bigint & 4294967295)', 'UPDATE')}
  DO $do$
  DECLARE
    locking regprocedure;
  BEGIN
    FOR locking IN SELECT p.oid FROM pg_proc AS p
      WHERE p.pronamespace = '${QUEUE_SCHEMA}'::regnamespace AND p.prosrc ~ 'pg_advisory_xact_lock'
    LOOP
      EXECUTE regexp_replace(pg_get_functiondef(locking), 'pg_advisory_xact_lock(_shared)?\\(', '${QUEUE_SCHEMA}.lock_key\\1(', 'g');
    END LOOP;
  END $do$;`;

/** Until the end of the transaction, as BullMQ's are. Who uses a key for the first time has it alone, whichever lock it is. */
function lockFunction(
  name: string,
  parameters: string,
  key: string,
  strength: 'UPDATE' | 'KEY SHARE',
): string {
  return `CREATE OR REPLACE FUNCTION ${QUEUE_SCHEMA}.${name}(${parameters}) RETURNS void LANGUAGE plpgsql AS $lock$
  DECLARE
    wanted CONSTANT bigint := ${key};
  BEGIN
    INSERT INTO ${QUEUE_SCHEMA}.lock_key AS l (key) VALUES (wanted) ON CONFLICT DO NOTHING;
    PERFORM FROM ${QUEUE_SCHEMA}.lock_key AS l WHERE l.key = wanted FOR ${strength};
  END $lock$;`;
}

/** An answer of PostgreSQL may take this long: an index of a large queue is built. */
const ANSWER_MS = 10 * 60_000;

/** Runs `work` with a connection of its own to the queue's tables. */
export async function withQueueClient(
  { postgresUrl }: { postgresUrl: SettingText },
  work: (client: pg.Client) => Promise<unknown>,
): Promise<void> {
  const client = await waitWhileFull(async () => {
    const opened = new pg.Client({ ...pgConfig(postgresUrl, 'queue'), query_timeout: ANSWER_MS });
    await opened.connect();
    return opened;
  });
  try {
    await work(client);
  } finally {
    await client.end();
  }
}
