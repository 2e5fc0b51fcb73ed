// Connections of one worker to the servers, at work and when idle.
import { describe, expect, it, type TestContext } from 'vitest';
import { watchConnections } from '../support/connections.js';
import { startHop } from '../support/hop.js';
import { rehearseIn, rehearseOnce } from '../support/rehearsals.js';
import { STORES } from '../support/services.js';
import { until } from '../support/wait.js';

/** Runs the stores concurrently, because the tests mostly wait, some of them for minutes. */
const describeStores = describe.concurrent.each(STORES);

describeStores('connections to PostgreSQL, with queue and quota on $store', ({ store, url, skip }) => {
  describe.skipIf(skip)('a worker', () => {
    const world = rehearseOnce({ redisUrl: url, rows: 60, sandbox: { rate: 0 } });

    it('takes few connections, names all of them, and closes idle connections', async () => {
      await world.read('sync --detach');
      const connections = watchConnections(world.url);
      const worker = await world.startWorker();
      await world.sql`UPDATE rooms SET name = 'Aula' WHERE code = 'R7'`;
      await world.sql`INSERT INTO slotsync.changes (stream, local_key) VALUES ('rooms', 'R7')`;
      const isSent = () =>
        world.sandbox.objects().length === 120 && JSON.stringify(world.sandbox.objects()).includes('Aula');
      await until(isSent, { describe: () => `everything to be sent: ${worker.output()}` });

      expect(connections.most().length, connections.most().join()).toBeLessThanOrEqual(
        store === 'Redis' ? 6 : 10,
      );
      for (const name of connections.names()) expect(name).toMatch(/^slotsync [a-z]+$/);
      await until(async () => !(await connections.now()).includes('slotsync mirror'), {
        describe: 'the connections to the mirror to be closed',
      });
      await connections.stop();
    });
  });
});

describeStores(
  'connections to PostgreSQL that fall silent, with queue and quota on $store',
  ({ url, skip }) => {
    const itHere = it.skipIf(skip);

    /** An installation whose service holds the second write, and the settings for connections that a hop forgets. */
    async function openOverHop(test: TestContext) {
      const world = await rehearseIn(test, { redisUrl: url, rows: 60 });
      const hop = await startHop(world.url);
      test.onTestFinished(() => hop.close());
      world.holdWrites(1);
      const settings = {
        MIRROR_DATABASE_URL: hop.through(world.url),
        MIRROR_STATEMENT_SECONDS: '60',
        STATE_STATEMENT_SECONDS: '60',
      };
      return { world, hop, settings };
    }

    itHere('are replaced by a worker, which sends everything', async (test) => {
      const { world, hop, settings } = await openOverHop(test);
      const worker = await world.startWorker([], settings);
      await world.run(['sync', '--detach']);
      await world.untilHeld();
      hop.forget();
      world.sandbox.openGate();
      const finished = async () =>
        (await world.sql`SELECT FROM slotsync.runs WHERE status = 'succeeded'`).length > 0;
      await until(finished, { timeoutMs: 300_000, describe: () => `the run to end: ${worker.output()}` });
      expect(world.sandbox.objects()).toHaveLength(120);
      expect(world.sandbox.mostInAnySecond()).toBeLessThanOrEqual(20);
    });

    itHere('end a sync with the reason, and the next sync finishes its run', async (test) => {
      const { world, hop, settings } = await openOverHop(test);
      const sync = world.start(['sync'], settings);
      await world.untilHeld();
      hop.forget();
      const { code, stderr } = await sync.finished;
      expect(stderr).toContain('the state database cannot be reached (CONNECTION_CLOSED');
      expect(code).toBe(1);
      world.sandbox.openGate();
      await world.read('sync');
      expect(world.sandbox.objects()).toHaveLength(120);
    });
  },
);
