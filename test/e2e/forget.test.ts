// A person asks for the removal of personal data: state, queue and files must not name the person afterwards.
// test/integration/personal-data.test.ts has every place of the state.
import { readdir, readFile } from 'node:fs/promises';
import path from 'node:path';
import { createPostgresBackend, Queue } from 'bullmq';
import { Redis } from 'ioredis';
import { describe, expect, it } from 'vitest';
import { CONFIGURATION } from '../support/rehearsal.js';
import { rehearseEach, type Installation } from '../support/rehearsals.js';
import { STORES } from '../support/services.js';
import { until } from '../support/wait.js';

const PERSON = 'anna.andersson@example.org';

/** Returns the places that contain a text: tables of the state and of the queue, keys of Redis, and files. */
async function placesWith(world: Installation, text: string): Promise<string[]> {
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
  return [...found, ...(await redisKeysWith(world, text))];
}

async function redisKeysWith(world: Installation, text: string): Promise<string[]> {
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

describe('forget', () => {
  const world = rehearseEach({ rows: 3, sandbox: { rate: 0 } });

  it('leaves nothing that names the key, except the hash of its removal, and says what is left to do', async () => {
    await world.sql`INSERT INTO rooms VALUES (${PERSON}, ${'too long for the service '.repeat(3)}, 1)`;
    await world.sql`UPDATE courses SET room = ${PERSON} WHERE id = 2`;
    await world.ends('sync', 1);
    await world.run(['backfill', 'rooms', '--keys', `${PERSON},R1`]);
    await world.run(['backfill', 'rooms', '--where', `code = '${PERSON}'`]);
    await world.sql`UPDATE rooms SET name = 'short' WHERE code = ${PERSON}`;
    await world.run(['sync']);

    const forget = ['forget', 'rooms', PERSON];
    await world.refuses(forget, 'is in the mirror: the next run would add the record again');
    await world.sql`DELETE FROM rooms WHERE code = ${PERSON}`;
    await world.sql`UPDATE courses SET room = 'R1' WHERE id = 2`;
    await world.refuses(forget, '→ Deactivate it first: slotsync sync rooms.');
    await world.configure(CONFIGURATION.replace("retire: 'deactivate'", "retire: 'keep'"));
    await world.refuses(forget, "→ No run deactivates it, because rooms has retire: 'keep'.");
    await world.configure(CONFIGURATION);
    await world.run(['sync']);
    expect(world.sandbox.object(`room_${PERSON}`)?.active).toBe(false);
    const places = await placesWith(world, PERSON);
    expect(places).toEqual(expect.arrayContaining(['batches', 'records', 'runs']));

    await world.refuses([...forget, '--reason', `asked for by ${PERSON}`], '--reason contains the key');
    await world.ends(
      [...forget, '--reason', 'ticket 17'],
      0,
      `The service may still have room_${PERSON}. Delete it there: slotsync deletes no objects.`,
    );
    for (const text of [PERSON, 'too long for', 'short']) expect(await placesWith(world, text)).toEqual([]);
    expect(await world.run(forget)).toMatchObject({
      code: 1,
      stderr: expect.stringContaining(`the state has no data about rooms '${PERSON}'`),
    });
    await world.read('sync');
  });

  it('leaves an object active that nothing would deactivate, but only with --force', async () => {
    await world.read('sync');
    await world.sql`DELETE FROM courses WHERE id = 3`;
    await world.ends('forget courses 3', 2);
    expect(JSON.parse(await world.read('forget courses 3 --force --json'))).toMatchObject({
      externalIds: ['course_3'],
      deleted: { records: 1 },
    });
    expect(world.sandbox.object('course_3')?.active).toBe(true);
  });
});

describe.each(STORES)('forget with the queue on $store', ({ url, skip }) => {
  describe.skipIf(skip)('the command', () => {
    const world = rehearseEach({ redisUrl: url, rows: 3, sandbox: { rate: 0 } });

    it('removes jobs of other programs that name the key, and keeps jobs of other keys', async () => {
      await world.read('sync');
      const worker = await world.startWorker();
      const { inbox } = await world.json<{
        inbox: { queue: { name: string; prefix?: string; schema?: string } };
      }>('status --json');
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
        const ofAnother = { stream: 'rooms', key: `${PERSON}-2` };
        await queue.add('changed', { stream: 'rooms', keys: ['R2', PERSON, 'R3'] });
        await queue.add('changed', { stream: 'rooms', key: PERSON }, { delay: 3_600_000 });
        await queue.add('changed', ofAnother);

        expect(await world.json(['forget', 'rooms', PERSON, '--json'])).toMatchObject({
          deleted: { jobs: 5 },
        });
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
        expect(await placesWith(world, PERSON)).toEqual([]);
      } finally {
        await queue.close();
      }
    });
  });
});
