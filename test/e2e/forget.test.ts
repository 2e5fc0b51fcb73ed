// A person asks for the removal of personal data: the state must not name the person afterwards.
import { readdir, readFile } from 'node:fs/promises';
import path from 'node:path';
import { createPostgresBackend, Queue } from 'bullmq';
import { Redis } from 'ioredis';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { CONFIGURATION, rehearse, type Rehearsal } from '../support/rehearsal.js';
import { STORES } from '../support/services.js';
import { until } from '../support/wait.js';

const PERSON = 'anna.andersson@example.org';

let world: Rehearsal;
beforeEach(async () => {
  world = await rehearse({ rows: 3, sandbox: { rate: 0 } });
});
afterEach(() => world.close());

/** Returns the places that contain a text: tables of the state and of the queue, keys of Redis, and files. */
async function placesWith(text: string): Promise<string[]> {
  const tables = await world.sql<{ schema: string; name: string }[]>`
    SELECT schemaname AS schema, tablename AS name FROM pg_tables WHERE schemaname LIKE 'slotsync%' ORDER BY 2`;
  const found: string[] = [];
  for (const { schema, name } of tables) {
    const [row] = await world.sql<{ count: number }[]>`
      SELECT count(*)::int AS count FROM ${world.sql(`${schema}.${name}`)} AS t WHERE position(${text} IN t::text) > 0`;
    if (row && row.count > 0) found.push(name);
  }
  for (const file of await readdir(world.folder))
    if ((await readFile(path.join(world.folder, file), 'utf8')).includes(text)) found.push(file);
  return [...found, ...(await redisKeysWith(text))];
}

async function redisKeysWith(text: string): Promise<string[]> {
  const url = world.env['REDIS_URL'];
  if (url === undefined) return [];
  const redis = new Redis(url);
  try {
    const [bound] = await world.sql<{ id: string }[]>`SELECT state_id AS id FROM slotsync.destination`;
    const keys = await redis.keys(`*${bound?.id}*`);
    const found: string[] = [];
    for (const key of keys) {
      const value = JSON.stringify(await readKey(redis, key));
      if (`${key} ${value}`.includes(text)) found.push(key);
    }
    expect(keys).not.toEqual([]);
    return found;
  } finally {
    redis.disconnect();
  }
}

async function readKey(redis: Redis, key: string): Promise<unknown> {
  switch (await redis.type(key)) {
    case 'hash':
      return redis.hgetall(key);
    case 'list':
      return redis.lrange(key, 0, -1);
    case 'set':
      return redis.smembers(key);
    case 'zset':
      return redis.zrange(key, 0, '-1');
    case 'stream':
      return redis.xrange(key, '-', '+');
    default:
      return redis.get(key);
  }
}

it('forget leaves nothing in the state that names the key, except the hash of its removal', async () => {
  await world.sql`INSERT INTO rooms VALUES (${PERSON}, ${'too long for the service '.repeat(3)}, 1)`;
  await world.sql`UPDATE courses SET room = ${PERSON} WHERE id = 2`;
  expect((await world.run(['sync'])).code).toBe(1);
  await world.run(['backfill', 'rooms', '--keys', `${PERSON},R1`]);
  await world.run(['backfill', 'rooms', '--where', `code = '${PERSON}'`]);
  await world.sql`UPDATE rooms SET name = 'short' WHERE code = ${PERSON}`;
  await world.run(['sync']);
  await world.sql`
    INSERT INTO slotsync.links (stream, local_key, external_id, linked_by)
    VALUES ('rooms', ${PERSON}, ${`room_${PERSON}`}, 'match')`;

  const refused = await world.run(['forget', 'rooms', PERSON]);
  expect(refused.code).toBe(2);
  expect(refused.stderr).toContain('is in the mirror: the next run would add the record again');

  await world.sql`DELETE FROM rooms WHERE code = ${PERSON}`;
  await world.sql`UPDATE courses SET room = 'R1' WHERE id = 2`;
  const early = await world.run(['forget', 'rooms', PERSON]);
  expect(early.code).toBe(2);
  expect(early.stderr).toContain('→ Deactivate it first: slotsync sync rooms.');
  await world.configure(CONFIGURATION.replace("retire: 'deactivate'", "retire: 'keep'"));
  const kept = await world.run(['forget', 'rooms', PERSON]);
  expect(kept.stderr).toContain("→ No run deactivates it, because rooms has retire: 'keep'.");
  await world.configure(CONFIGURATION);
  await world.run(['sync']);
  expect(world.sandbox.object(`room_${PERSON}`)?.active).toBe(false);
  const drift = { stream: 'rooms', local_key: PERSON, external_id: `room_${PERSON}`, kind: 'missing' };
  await world.sql`INSERT INTO slotsync.drift ${world.sql({ ...drift, seen_at: new Date() })}`;
  await world.sql`
    INSERT INTO slotsync.drift_events (stream, local_key, to_kind) VALUES ('rooms', ${PERSON}, 'missing')`;
  await nameElsewhere();
  expect(await placesWith(PERSON)).toEqual(
    expect.arrayContaining([
      'actions',
      'batches',
      'drift',
      'freezes',
      'gates',
      'held',
      'links',
      'processes',
      'records',
      'runs',
      'streams',
    ]),
  );

  const quoting = await world.run(['forget', 'rooms', PERSON, '--reason', `asked for by ${PERSON}`]);
  expect(quoting.code).toBe(2);
  expect(quoting.stderr).toContain('--reason contains the key');

  const { code, stdout } = await world.run(['forget', 'rooms', PERSON, '--reason', 'ticket 17']);
  expect(code).toBe(0);
  expect(stdout).toContain(
    `The service may still have room_${PERSON}. Delete it there: slotsync deletes no objects.`,
  );
  for (const text of [PERSON, 'too long for', 'short']) expect(await placesWith(text)).toEqual([]);
  const removals = await world.sql`SELECT stream, deleted FROM slotsync.removals`;
  expect(removals).toMatchObject([
    { stream: 'rooms', deleted: { records: 2, links: 1, held: 1, drift: 2, drift_events: 1 } },
  ]);
  // The gate and the run keep what they say of other keys.
  expect(await world.sql`SELECT count, samples FROM slotsync.gates`).toMatchObject([
    { count: 1, samples: [{ key: 'R2' }] },
  ]);
  const [first] =
    await world.sql`SELECT holds #> '{rooms,overwrite,samples}' AS samples FROM slotsync.runs WHERE id = 1`;
  expect(first).toMatchObject({ samples: [{ key: 'R2' }] });

  const again = await world.run(['forget', 'rooms', PERSON]);
  expect(again.code).toBe(1);
  expect(again.stderr).toContain(`the state has no data about rooms '${PERSON}'`);
  expect((await world.run(['sync'])).code).toBe(0);
});

/** Names the person without quotes in messages, also in JSON and addresses, and in fields of other records. */
async function nameElsewhere(): Promise<void> {
  const message = `no seat is left for ${PERSON}, see /objects/${encodeURIComponent(`room_${PERSON}`)}`;
  await world.sql`UPDATE slotsync.records SET error_message = ${message} WHERE local_key = 'R1'`;
  await world.sql`UPDATE slotsync.batches SET error_message = ${message} WHERE NOT keys @> ARRAY[${PERSON}]`;
  await world.sql`UPDATE slotsync.runs SET error_message = ${message}`;
  await world.sql`
    INSERT INTO slotsync.processes (id, command, host, pid, error_code, error_message)
    VALUES ('a', 'worker', 'north', 1, 'service_failed', ${message})`;
  const fields = { 'course.host': { here: [PERSON], there: [] } };
  const of = { stream: 'courses', local_key: '1', external_id: 'course_1', kind: 'changed' };
  await world.sql`
    INSERT INTO slotsync.drift ${world.sql({ ...of, fields: world.sql.json(fields), seen_at: new Date() })}`;
  const samples = world.sql.json([
    { key: 'R1', externalId: 'room_R1', changes: [{ field: 'x', old: [PERSON], new: [] }] },
    { key: 'R2', externalId: 'room_R2', changes: [{ field: 'x', old: ['red'], new: ['blue'] }] },
  ]);
  const facts = world.sql.json({
    accepted: 1,
    message,
    refused: { records: 1, sent: 1, code: 'x', message },
  });
  const gate = { stream: 'rooms', operation: 'overwrite', reason: 'limit', run_id: 1, count: 2, digest: '' };
  await world.sql`INSERT INTO slotsync.gates ${world.sql({ ...gate, facts, samples, answer_reason: message })}`;
  for (const local_key of [PERSON, 'R1']) {
    const held = { stream: 'rooms', local_key, operation: 'overwrite', gate: 'overwrite', reason: 'limit' };
    await world.sql`INSERT INTO slotsync.held ${world.sql(held)}`;
  }
  await world.sql`
    UPDATE slotsync.runs SET holds = jsonb_build_object('rooms', jsonb_build_object('overwrite',
      jsonb_build_object('operation', 'overwrite', 'reason', 'limit', 'count', 2,
        'facts', ${facts}::jsonb, 'samples', ${samples}::jsonb)))
    WHERE id = 1`;
  await world.sql`
    UPDATE slotsync.streams SET cursor = '2026', cursor_key = ${PERSON}, refused_message = ${message},
      problem = ${world.sql.json({ status: 'failed', code: 'x', message })}
    WHERE stream = 'rooms'`;
  await world.sql`
    INSERT INTO slotsync.freezes (streams, begins_at, ends_at, reason)
    VALUES ('{courses}', now() - interval '2 days', now() - interval '1 day', ${message})`;
  await world.sql`
    INSERT INTO slotsync.actions (by, via, action, subject, reason)
    VALUES ('ada', 'command', 'retry', ${message}, ${message})`;
  await world.sql`
    INSERT INTO slotsync.reservation_events (key, to_verdict, differs)
    VALUES ('77', 'agrees', ${world.sql.json({ objects: { here: [`room_${PERSON}`], there: [] } })})`;
}

it('forget keeps a message that names a longer key which contains the forgotten key', async () => {
  await world.run(['sync']);
  await world.sql`DELETE FROM rooms WHERE code = 'R1'`;
  await world.sql`UPDATE slotsync.records SET error_message = 'R11 is full' WHERE local_key = 'R2'`;
  await world.sql`UPDATE slotsync.records SET error_message = 'as is R1' WHERE local_key = 'R3'`;
  expect((await world.run(['forget', 'rooms', 'R1', '--force'])).code).toBe(0);
  const messages = await world.sql`
    SELECT local_key, error_message FROM slotsync.records WHERE stream = 'rooms' ORDER BY local_key`;
  expect(messages).toEqual([
    { local_key: 'R2', error_message: 'R11 is full' },
    { local_key: 'R3', error_message: 'removed: this text named a deleted key' },
  ]);
});

describe.each(STORES)('forget with the queue on $store', ({ url, skip }) => {
  it.skipIf(skip)(
    'removes jobs of other programs that name the key, and keeps jobs of other keys',
    async () => {
      await world.close();
      world = await rehearse({ redisUrl: url, rows: 3, sandbox: { rate: 0 } });
      await world.run(['sync']);
      const worker = await world.startWorker();
      const { inbox } = JSON.parse((await world.run(['status', '--json'])).stdout) as {
        inbox: { queue: { name: string; prefix?: string; schema?: string } };
      };
      const { name, prefix = '', schema = '' } = inbox.queue;
      const queue = url
        ? new Queue(name, { prefix, connection: { url } })
        : new Queue(name, { connection: { connectionString: world.url, schema } }, createPostgresBackend);
      try {
        for (const [data, jobId] of [
          [{ stream: 'rooms', key: [PERSON, 'x'] }],
          [{ room: PERSON }],
          [{ text: `changed: ${PERSON}.` }, `of-${PERSON}`],
          [{ stream: 'courses', key: [PERSON, 'x'] }],
          [{ stream: 'rooms', key: ['R1', 'x'] }],
        ] as const)
          await queue.add('changed', data, jobId === undefined ? {} : { jobId });
        await until(async () => (await queue.getJobCounts('failed'))['failed'] === 5, {
          describe: () => `five jobs to fail: ${worker.output()}`,
        });
        worker.child.kill('SIGTERM');
        await worker.finished;
        await queue.add('changed', { stream: 'rooms', keys: ['R2', PERSON, 'R3'] });
        await queue.add('changed', { stream: 'rooms', key: PERSON }, { delay: 3_600_000 });
        const ofAnother = { stream: 'rooms', key: `${PERSON}-2` };
        await queue.add('changed', ofAnother);

        const forgotten = await world.run(['forget', 'rooms', PERSON, '--json']);
        expect(JSON.parse(forgotten.stdout)).toMatchObject({ deleted: { jobs: 5 } });
        const left = await queue.getJobs(['waiting', 'delayed', 'failed']);
        expect(left.map(({ data }) => data as unknown)).toEqual(
          expect.arrayContaining([
            { stream: 'rooms', keys: ['R2', 'R3'] },
            { stream: 'courses', key: [PERSON, 'x'] },
            { stream: 'rooms', key: ['R1', 'x'] },
            ofAnother,
          ]),
        );
        expect(left).toHaveLength(4);
        for (const job of left) if (JSON.stringify(job.data).includes(PERSON)) await job.remove();
        expect(await placesWith(PERSON)).toEqual([]);
      } finally {
        await queue.close();
      }
    },
  );
});

it('forget leaves an object active that nothing would deactivate, but only with --force', async () => {
  await world.run(['sync']);
  await world.sql`DELETE FROM courses WHERE id = 3`;
  expect((await world.run(['forget', 'courses', '3'])).code).toBe(2);
  const { code, stdout } = await world.run(['forget', 'courses', '3', '--force', '--json']);
  expect(code).toBe(0);
  expect(JSON.parse(stdout)).toMatchObject({ externalIds: ['course_3'], deleted: { records: 1 } });
  expect(world.sandbox.object('course_3')?.active).toBe(true);
});
