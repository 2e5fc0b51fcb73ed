// Guarantee 10
// Of a thousand records one makes the service fail and one makes it hang. The run sends all others, says which two, and the
// next run does not begin anew.
import { describe, expect, it } from 'vitest';
import { rehearse } from '../support/rehearsal.js';

const ROWS = 1000;
const CONFIGURATION = `
import { defineConfig } from 'slotsync';
export default defineConfig({
  service: { requestTimeoutMs: 1500 },
  streams: {
    rooms: { from: 'rooms', key: 'code', type: 'room', externalId: 'room_{code}', owns: 'object', fields: { 'room.name': 'name' } },
  },
});
`;

describe.concurrent('failing objects', () => {
  it('two of a thousand: the others are accepted in the same run, and the next one sends the two alone', async () => {
    const world = await rehearse({ rows: ROWS, sandbox: { rate: 0 } });
    const records = () =>
      world.sql`SELECT local_key, status, error_code, updated_at FROM slotsync.records ORDER BY local_key`;
    try {
      await world.configure(CONFIGURATION);
      expect(await world.run(['sync'])).toMatchObject({ code: 0 });
      await world.sql`UPDATE rooms SET name = 'Hall ' || code`;
      for (const [extId, fault] of [
        ['room_R300', 'status'],
        ['room_R700', 'hang'],
      ] as const)
        world.sandbox.failNext({ method: 'PUT', extId, fault, times: 'always' });
      world.sandbox.clearArrivals();
      const first = await world.run(['sync', '--json']);
      expect(first.code).toBe(1);
      expect(JSON.parse(first.stdout)).toMatchObject({
        run: { status: 'partial', counts: { rooms: { synced: ROWS - 2, failed: 2 } } },
      });
      expect(first.stderr).not.toContain('circuit breaker open');
      expect(world.puts().length).toBeLessThan(80);
      const named = world.sandbox.objects().filter(({ fields }) => fields[0]?.values[0]?.startsWith('Hall'));
      expect(named).toHaveLength(ROWS - 2);
      const before = await records();
      expect(before.filter(({ status }) => status !== 'synced')).toMatchObject([
        { local_key: 'R300', status: 'failed', error_code: 'service_fails_on_object' },
        { local_key: 'R700', status: 'failed', error_code: 'service_fails_on_object' },
      ]);
      const textOf = async (...args: string[]) =>
        (await world.run(['failures', ...args])).stdout.replaceAll(/\s+/g, ' ');
      const failures = await textOf();
      expect(failures).toMatch(
        /2 records of rooms failed \(service_fails_on_object\).*rooms 'R300', rooms 'R700'/,
      );
      expect(failures).toContain('Every run tries again, and sends these objects alone: slotsync sync.');
      const each = await textOf('--all');
      expect(each).toMatch(/R300.*answered 500: requested fault; it failed each time this object was sent/);
      expect(each).toMatch(/R700.*no answer arrived \(timeout\)/);

      world.sandbox.clearArrivals();
      expect((await world.run(['sync'])).code).toBe(1);
      expect(world.puts()).toHaveLength(2);
      expect(world.sandbox.arrivals().length).toBeLessThanOrEqual(8);
      const changed = (await records()).filter(
        ({ updated_at }, at) => String(updated_at) !== String(before[at]?.['updated_at']),
      );
      expect(changed.map((record) => record['local_key'])).toEqual(['R300', 'R700']);

      world.sandbox.clearFailures();
      expect((await world.run(['sync'])).code).toBe(0);
    } finally {
      await world.close();
    }
  });
});
