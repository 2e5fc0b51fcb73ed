// Reset, to start over or to uninstall: it removes everything or nothing, and says what is lost.
import { randomBytes } from 'node:crypto';
import { Redis } from 'ioredis';
import postgres from 'postgres';
import { describe, expect, it } from 'vitest';
import { commandsOf, rehearseEach, type Installation } from '../support/rehearsals.js';
import { MAKE_SCHEMA_EARLIER } from '../support/earlier-schema.js';
import { STORES } from '../support/services.js';

const schemas = async ({ sql }: Installation) =>
  (await sql`SELECT nspname FROM pg_namespace WHERE nspname LIKE 'slotsync%' ORDER BY 1`).map(
    (row) => row['nspname'] as string,
  );
const triggers = async ({ sql }: Installation) =>
  (await sql`SELECT FROM pg_trigger WHERE NOT tgisinternal`).length;

describe.each(STORES)('reset with the queue on $store', ({ url, skip }) => {
  describe.skipIf(skip)('the command', () => {
    const world = rehearseEach({ redisUrl: url, rows: 3, sandbox: { rate: 0 } });

    it('removes triggers, state and queue while no process works, and the state starts anew', async () => {
      await world.read('triggers install');
      await world.read('sync');
      const worker = await world.startWorker();
      await world.refuses('reset --yes', /- worker on .*, process \d+\n/);
      worker.child.kill('SIGTERM');
      await worker.finished;
      await world.sql`UPDATE rooms SET name = 'Aula' WHERE code = 'R1'`;

      await world.refuses(
        'reset',
        /organization demo at \S+: 6 records, 0 links, 1 run, 0 held records, 1 change in the inbox, 0 bookings, triggers of 2 streams/,
        '→ If that is meant: slotsync reset --yes',
      );
      expect(await triggers(world)).toBe(6);

      const [bound] = await world.sql`SELECT state_id::text AS id FROM slotsync.destination`;
      expect(await world.run(['reset', '--yes'])).toMatchObject({
        code: 0,
        stderr: '',
        stdout: expect.stringContaining('Removed all data of slotsync'),
      });
      expect(await schemas(world)).toEqual([]);
      expect(await triggers(world)).toBe(0);
      expect(await keysOf(url, `{slotsync:${bound?.['id']}}`)).toEqual([]);

      await world.read('migrate');
      await world.ends('status --full', 0, 'Not bound to a service yet');
      await world.read('sync');
      expect(world.sandbox.objects()).toHaveLength(6);
      expect(await world.sql`SELECT min(id)::int AS first FROM slotsync.runs`).toEqual([{ first: 1 }]);
    });
  });
});

async function keysOf(url: string | undefined, prefix: string): Promise<string[]> {
  if (url === undefined) return [];
  const redis = new Redis(url);
  try {
    return await redis.keys(`${prefix}*`);
  } finally {
    redis.disconnect();
  }
}

describe('reset by a role without the tables of the mirror', () => {
  const world = rehearseEach({ rows: 3, migrated: false, sandbox: { rate: 0 } });

  it('removes nothing if it may not remove the triggers, and prints the SQL', async () => {
    const role = `state_${randomBytes(4).toString('hex')}`;
    const address = new URL(world.url);
    [address.username, address.password] = [role, 'choose-one'];
    const asRole = { STATE_DATABASE_URL: address.href };
    await world.sql.unsafe(`
      CREATE ROLE ${role} LOGIN PASSWORD 'choose-one';
      GRANT CREATE ON DATABASE ${address.pathname.slice(1)} TO ${role};`);
    try {
      expect(await world.run(['migrate'], asRole)).toMatchObject({ code: 0, stderr: '' });
      await world.read('triggers install rooms');
      const { code, stderr } = await world.run(['reset', '--yes'], asRole);
      expect(code).toBe(2);
      expect(stderr).toContain('nothing was deleted: the role of STATE_DATABASE_URL lacks a right: ');
      expect(await triggers(world)).toBe(3);
      expect(await schemas(world)).toEqual(['slotsync', 'slotsync_queue']);
      await commandsOf(world, asRole).read('status --full');

      const [, statements = ''] = /run: (BEGIN; .*COMMIT;)/s.exec(stderr) ?? [];
      const owner = postgres(world.url, { max: 1, onnotice: () => undefined });
      await owner.unsafe(statements.replaceAll('\n', ' '));
      await owner.end();
      expect(await triggers(world)).toBe(0);
      expect(await schemas(world)).toEqual([]);
    } finally {
      await world.sql.unsafe(`DROP OWNED BY ${role} CASCADE; DROP ROLE ${role}`);
    }
  });
});

describe('reset of the state of an unreleased version', () => {
  const world = rehearseEach({ rows: 3, sandbox: { rate: 0 } });

  it('removes the state, whose objects are then adopted', async () => {
    await world.read('sync');
    await world.sql.unsafe(MAKE_SCHEMA_EARLIER);
    for (const command of ['migrate', 'status', 'sync'])
      await world.refuses(command, 'slotsync reset, then slotsync migrate, then slotsync verify --adopt');
    await world.refuses('reset', '6 records, 0 links, 1 run, 0 held');
    expect(await world.run(['reset', '--yes'])).toMatchObject({ code: 0, stderr: '' });
    expect(await schemas(world)).toEqual([]);
    await world.read('migrate');
    await world.read('verify --adopt');
    expect(await world.sql`SELECT count(*)::int AS records FROM slotsync.records`).toEqual([{ records: 6 }]);
  });
});
