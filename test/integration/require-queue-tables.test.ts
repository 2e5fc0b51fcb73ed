// The check of the queue tables before anything is queued: BullMQ would wait for missing tables without a limit.
import { BULLMQ_MAJOR_VERSION } from 'bullmq';
import postgres from 'postgres';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { UsageError } from '../../src/errors/errors.js';
import { migrateQueue } from '../../src/queue/migrate-queue.js';
import { BULLMQ_MAJOR, requireQueueTables } from '../../src/queue/require-queue-tables.js';
import { openState, type State } from '../../src/state/database.js';
import { createDatabase, type TestDatabase } from '../support/services.js';

let database: TestDatabase;
let state: State;
let sql: postgres.Sql;
beforeAll(async () => {
  database = await createDatabase();
  state = openState({ url: database.url });
  sql = postgres(database.url, { max: 1, onnotice: () => undefined });
  await sql`DROP SCHEMA IF EXISTS slotsync_queue CASCADE`;
});
afterAll(async () => {
  await state.close();
  await sql.end({ timeout: 1 });
  await database.drop();
});

const asked = async () => {
  const [error] = await Promise.allSettled([requireQueueTables(state)]);
  return error.status === 'rejected' ? (error.reason as UsageError) : undefined;
};

it('missing queue tables are reported with the command that makes them', async () => {
  const error = await asked();
  expect(error).toBeInstanceOf(UsageError);
  expect(error).toMatchObject({
    message: 'the state database has no queue tables yet',
    remedy: 'Run `slotsync migrate`.',
  });
});

it('existing queue tables are not reported, and no other connection is opened', async () => {
  await migrateQueue({ postgresUrl: database.url });
  expect(await asked()).toBeUndefined();
  const probes = await sql`SELECT FROM pg_stat_activity
    WHERE application_name = 'slotsync probe' AND datname = current_database()`;
  expect(probes).toHaveLength(0);
});

it('queue tables that need a newer BullMQ are refused', async () => {
  await sql`ALTER TABLE slotsync_queue.migration ADD COLUMN IF NOT EXISTS min_client_version int`;
  await sql`UPDATE slotsync_queue.migration SET min_client_version = ${BULLMQ_MAJOR}`;
  expect(await asked()).toBeUndefined();
  await sql`UPDATE slotsync_queue.migration SET min_client_version = ${BULLMQ_MAJOR + 1} WHERE version = 1`;
  expect(await asked()).toMatchObject({ message: 'the queue tables are newer than this program' });
});

it('the expected version of the queue tables is the major version of BullMQ', () => {
  expect(BULLMQ_MAJOR).toBe(BULLMQ_MAJOR_VERSION);
});
