// Migrates BullMQ's tables in PostgreSQL. Two things differ from BullMQ's own migrations. Statements that need further
// rights are left out, and functions lock rows instead of advisory locks, which any role can take.
// test/integration/locks.test.ts and roles.test.ts fail if a version of BullMQ migrates otherwise.
import { runMigrations } from 'bullmq';
import pg from 'pg';
import { pgConfig, waitWhileFull } from '../connections/postgres-connection.js';
import type { SettingText } from '../config/setting-text.js';
import { QUEUE_SCHEMA, type QueueStore } from './jobs.js';

/** Migrates the queue's tables if the queue is in PostgreSQL. The caller holds the lock of migrations. */
export async function migrateQueue(store: QueueStore): Promise<void> {
  if (!('postgresUrl' in store)) return;
  await withQueueClient(store, async (client) => {
    const { rows } = await client.query<{ exists: boolean }>(
      'SELECT to_regnamespace($1) IS NOT NULL AS exists',
      [QUEUE_SCHEMA],
    );
    // Skips two statements of BullMQ. One needs the right to create schemas even if the schema exists. The other takes
    // an advisory lock, which any role that may connect could hold.
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
 * Row of a lock, shared by 65536 consecutive keys. A key is the hash of a text, for example of a job's id, so that a
 * row for each key would grow without end. The order of keys is preserved, because BullMQ locks several keys in order.
 */
const GROUP_OF_KEY = 'key >> 16';

/**
 * Makes BullMQ's functions lock rows of a table in the queue's own schema. BullMQ uses advisory locks, with which any
 * role that may connect could block every job. Functions that only try a lock keep it, because nothing waits for them.
 * The SQL is idempotent and runs after BullMQ's migrations.
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

/** Returns SQL for a lock that lasts until the transaction ends. The first lock of a new key is always exclusive. */
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

/** Answer timeout of a migration, which may build an index of a large queue. */
const ANSWER_MS = 10 * 60_000;

/** Runs `work` with a separate connection to the queue's tables. */
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
