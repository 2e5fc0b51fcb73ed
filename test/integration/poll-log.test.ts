// The log of polling: values that are never polled, and a new beginning, each with the column and without a key.
import { expect, it } from 'vitest';
import { checkConfiguration } from '../../src/config/config-file.js';
import { createInboxWorker } from '../../src/queue/inbox-worker.js';
import { openBullmq } from '../../src/queue/bullmq.js';
import { migrateQueue } from '../../src/queue/migrate-queue.js';
import { createProducer } from '../../src/queue/producer.js';
import { noteProblems } from '../../src/state/streams.js';
import { ROOMS } from '../support/campus.js';
import { until } from '../support/wait.js';
import { openWorld } from '../support/world.js';

it('the log of polling names the column, why polling begins anew, and how many rows it skips', async () => {
  const declared = { streams: { rooms: { ...ROOMS, cursor: 'changed' } }, polling: { everySeconds: 1 } };
  const world = await openWorld(declared);
  await world.sql`CREATE TABLE rooms (code text PRIMARY KEY, name text, changed timestamptz)`;
  await world.sql`INSERT INTO rooms VALUES ('secret1', 'x', 'infinity'), ('secret2', 'x', '2026-01-15'), ('secret3', 'x', '48113-01-01')`;
  await world.sync();
  await world.sql`
    UPDATE slotsync.streams SET cursor = '7', cursor_key = 'secret2', cursor_column = 'number', cursor_type = 'integer'`;
  await migrateQueue({ postgresUrl: world.url });
  const bullmq = openBullmq({ postgresUrl: world.url }, 'workers', world.log);
  const producer = createProducer({ bullmq: async () => bullmq, state: world.state });
  const inbox = createInboxWorker({
    ...world.deps(),
    bullmq,
    producer,
    polling: checkConfiguration(declared).polling,
    workers: { hasRoom: () => false, newPlanner: () => '', startFew: () => undefined },
  });
  const logged = () => world.lines.map((line) => JSON.parse(line) as Record<string, unknown>);
  await inbox.start();
  const isNamed = () => logged().some(({ rows }) => rows === 2);
  await until(isNamed, { describe: 'the values to be named' });
  // Begins anew only once.
  const polled = async () => {
    const [row] = await world.sql`SELECT cursor FROM slotsync.streams WHERE problem IS NULL`;
    return row?.['cursor'] === '2026-01-15 00:00:00+00';
  };
  await until(polled, { describe: 'the watermark to move' });
  const FAILED = { status: 'failed', code: 'x', message: 'x', runId: null, runKind: null } as const;
  await noteProblems(world.state.db, ['rooms'], { ...FAILED, isWhole: false, failed: 0, dead: 0 });
  await until(polled, { describe: 'the next poll' });
  await inbox.stop();
  await producer.close();

  const told = logged().filter(({ level, stream }) => stream === 'rooms' && level === 40);
  expect(told).toMatchObject([
    { column: 'changed', why: 'other_column', msg: 'polling restarts at the first row of the stream' },
    { column: 'changed', rows: 2, msg: expect.stringContaining('rows not polled') },
  ]);
  expect(JSON.stringify(told)).not.toContain('secret');
  await world.close();
});
