// Mirror and state behind a real PgBouncer. In session mode everything works. In transaction mode everything works that
// needs no session, and the rest is refused with a sentence.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { isPgbouncerInstalled, startPgbouncer } from '../support/pgbouncer.js';
import type { Env } from '../support/program.js';
import { commandsOf, rehearseOnce } from '../support/rehearsals.js';
import { redisUrl } from '../support/services.js';
import { until } from '../support/wait.js';

const ROWS = 30;

describe.skipIf(!(await isPgbouncerInstalled())).each([
  { poolMode: 'session', redis: undefined, skip: false },
  { poolMode: 'transaction', redis: redisUrl(), skip: redisUrl() === undefined },
] as const)('slotsync behind PgBouncer in $poolMode mode', ({ poolMode, redis, skip }) => {
  describe.skipIf(skip)('the program', () => {
    const world = rehearseOnce({ rows: ROWS, migrated: false, redisUrl: redis });
    let pooler: Awaited<ReturnType<typeof startPgbouncer>>;
    let pooled: Env;
    beforeAll(async () => {
      pooler = await startPgbouncer({ serverUrl: world.url, poolMode });
      pooled = { MIRROR_DATABASE_URL: pooler.through(world.url) };
    });
    afterAll(() => pooler.stop());

    it('migrates the state, checks, plans, syncs, explains and shows its status', async () => {
      for (const command of ['migrate', 'check', 'plan', 'sync', 'explain rooms R1', 'status'])
        expect(await world.run(command.split(' '), pooled), command).toMatchObject({ code: 0, stderr: '' });
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

    it.runIf(poolMode === 'transaction')('refuses a queue on PostgreSQL', () =>
      commandsOf(world, { ...pooled, REDIS_URL: undefined }).refuses(
        'sync',
        'STATE_DATABASE_URL goes through a pooler in transaction mode',
        'or set REDIS_URL',
      ),
    );
  });
});
