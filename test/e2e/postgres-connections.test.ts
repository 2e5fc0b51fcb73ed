// Connections that one worker takes of the servers while it works, and those it keeps when it has nothing to do.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { watchConnections } from '../support/connections.js';
import { rehearse, type Rehearsal } from '../support/rehearsal.js';
import { STORES } from '../support/services.js';
import { until } from '../support/wait.js';

describe.each(STORES)('connections to PostgreSQL, queue and quota on $store', ({ store, url, skip }) => {
  describe.skipIf(skip)('a worker', () => {
    let world: Rehearsal;
    beforeAll(async () => {
      world = await rehearse({ redisUrl: url, rows: 60, sandbox: { rate: 0 } });
    });
    afterAll(() => world.close());

    it('takes few, names all of them, and closes what is idle', async () => {
      expect(await world.run(['sync', '--detach'])).toMatchObject({ code: 0 });
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
