// Guarantee 3
// Nothing is lost by a kill at any point, or by the queue losing everything: the rows are the truth.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Redis } from 'ioredis';
import { rehearse, type Rehearsal } from '../support/rehearsal.js';
import { redisUrl } from '../support/services.js';
import { until } from '../support/wait.js';

const ROWS = 400;
const stores = [
  { store: 'PostgreSQL', url: () => undefined, skip: false },
  { store: 'Redis', url: redisUrl, skip: redisUrl() === undefined },
];

describe.each(stores)('a sync killed in the middle, with the queue on $store', ({ url, skip }) => {
  describe.skipIf(skip)('and the queue lost', () => {
    let world: Rehearsal;
    beforeAll(async () => {
      world = await rehearse({ redisUrl: url(), rows: ROWS, sandbox: { rate: 20, latencyMs: 100 } });
    });
    afterAll(() => world.close());

    it('is finished by the next one, with every object as its row maps and none twice', async () => {
      const killed = world.start(['sync']);
      await until(() => world.puts().length >= 5, {
        timeoutMs: 20_000,
        describe: 'some batches to be written',
      });
      killed.child.kill('SIGKILL');
      await killed.finished;
      await loseQueue(world, url());
      // The claims of the dead end by themselves after a minute; the test does not wait for that.
      await world.sql`UPDATE slotsync.records SET claimed_until = now() WHERE claimed_until IS NOT NULL`;

      const { code, stdout } = await world.run(['sync']);
      expect(stdout).toContain('Run 1 over the same streams is unfinished; finishing it first.');
      expect(code).toBe(0);
      expect(world.sandbox.objects()).toHaveLength(2 * ROWS);
      const rows = await world.sql`
        SELECT count(*)::int AS count, count(DISTINCT external_id)::int AS distinct, bool_and(status = 'synced') AS synced,
          bool_or(in_doubt) AS doubted FROM slotsync.records`;
      expect(rows[0]).toEqual({ count: 2 * ROWS, distinct: 2 * ROWS, synced: true, doubted: false });
      expect(world.sandbox.mostInAnySecond()).toBeLessThanOrEqual(20);
      expect(world.sandbox.refused()).toBe(0);
    }, 90_000);
  });
});

describe('a sync interrupted by Ctrl-C', () => {
  it('finishes what is in work, says how to go on, and leaves nothing claimed', async () => {
    const world = await rehearse({ rows: ROWS, sandbox: { rate: 20, latencyMs: 100 } });
    try {
      const sync = world.start(['sync']);
      await until(() => world.puts().length >= 3, {
        timeoutMs: 20_000,
        describe: 'some batches to be written',
      });
      sync.child.kill('SIGINT');
      const { code, stderr } = await sync.finished;
      expect(code).toBe(1);
      expect(stderr).toContain('slotsync sync goes on from there');
      const [left] =
        await world.sql`SELECT count(*)::int AS claimed FROM slotsync.records WHERE claimed_by IS NOT NULL`;
      expect(left?.['claimed']).toBe(0);
      const there = world.sandbox.objects().length;
      expect(there).toBeLessThan(2 * ROWS);
      expect((await world.run(['sync'])).code).toBe(0);
      expect(world.sandbox.objects()).toHaveLength(2 * ROWS);
    } finally {
      await world.close();
    }
  }, 90_000);
});

async function loseQueue({ sql, env }: Rehearsal, redis: string | undefined): Promise<void> {
  if (redis === undefined) {
    const tables = await sql<{ name: string }[]>`
      SELECT tablename AS name FROM pg_tables WHERE schemaname = 'slotsync_queue' AND tablename LIKE '%job%'`;
    expect(tables.length).toBeGreaterThan(0);
    await sql.unsafe(`TRUNCATE ${tables.map(({ name }) => `slotsync_queue.${name}`).join(', ')} CASCADE`);
    return;
  }
  const [bound] = await sql`SELECT state_id FROM slotsync.destination`;
  const client = new Redis(redis);
  const keys = await client.keys(`{slotsync:${bound?.['state_id']}}*`);
  await client.del(...keys, `slotsync:quota:${env['API_BASE_URL']} demo`);
  client.disconnect();
}
