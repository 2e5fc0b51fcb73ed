// Mirror and state behind a real PgBouncer. In session mode everything works. In transaction mode everything works that
// needs no session, and the rest is refused with a sentence.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { isPgbouncerInstalled, startPgbouncer } from '../support/pgbouncer.js';
import type { Env } from '../support/program.js';
import { rehearse, type Rehearsal } from '../support/rehearsal.js';
import { redisUrl } from '../support/services.js';
import { until } from '../support/wait.js';

const ROWS = 30;

describe.skipIf(!(await isPgbouncerInstalled())).each([
  { poolMode: 'session', redis: undefined, skip: false },
  { poolMode: 'transaction', redis: redisUrl(), skip: redisUrl() === undefined },
] as const)('slotsync behind PgBouncer in $poolMode mode', ({ poolMode, redis, skip }) => {
  describe.skipIf(skip)('the program', () => {
    let world: Rehearsal;
    let pooler: Awaited<ReturnType<typeof startPgbouncer>>;
    let pooled: Env;
    beforeAll(async () => {
      world = await rehearse({ rows: ROWS, migrated: false, redisUrl: redis });
      pooler = await startPgbouncer({ serverUrl: world.url, poolMode });
      pooled = { MIRROR_DATABASE_URL: pooler.through(world.url) };
    });
    afterAll(async () => {
      await world.close();
      await pooler.stop();
    });

    it('migrates the state', async () => {
      expect(await world.run(['migrate'], pooled)).toMatchObject({ code: 0, stderr: '' });
    });

    it('checks, plans, syncs, explains and shows its status', async () => {
      for (const args of [['check'], ['plan'], ['sync'], ['explain', 'rooms', 'R1'], ['status']]) {
        const { code, stdout, stderr } = await world.run(args, pooled);
        expect({ args, code, stderr }, stdout).toEqual({ args, code: 0, stderr: '' });
      }
      expect(world.sandbox.objects()).toHaveLength(2 * ROWS);
    });

    it('sends a change with a worker', async () => {
      const worker = await world.startWorker([], pooled);
      await world.sql`UPDATE rooms SET name = 'Aula' WHERE code = 'R7'`;
      expect(await world.run(['push', 'rooms', 'R7'], pooled)).toMatchObject({ code: 0 });
      const isSent = () => JSON.stringify(world.sandbox.objects()).includes('Aula');
      await until(isSent, { describe: () => `the change to be sent: ${worker.output()}` });
      worker.child.kill('SIGTERM');
      expect((await worker.finished).code).toBe(0);
    });

    it.runIf(poolMode === 'transaction')('refuses a queue on PostgreSQL', async () => {
      const { code, stderr } = await world.run(['sync'], { ...pooled, REDIS_URL: undefined });
      expect(code).toBe(2);
      expect(stderr).toContain('STATE_DATABASE_URL goes through a pooler in transaction mode');
      expect(stderr).toContain('or set REDIS_URL');
    });
  });
});
