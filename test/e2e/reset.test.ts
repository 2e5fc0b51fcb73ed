// Reset, to start over or to uninstall: it removes everything or nothing, and says what is lost.
import { randomBytes } from 'node:crypto';
import { Redis } from 'ioredis';
import postgres from 'postgres';
import { afterEach, describe, expect, it } from 'vitest';
import { rehearse, type Rehearsal } from '../support/rehearsal.js';
import { MAKE_SCHEMA_EARLIER } from '../support/earlier-schema.js';
import { STORES } from '../support/services.js';

let world: Rehearsal;
afterEach(() => world.close());

const schemas = async () =>
  (await world.sql`SELECT nspname FROM pg_namespace WHERE nspname LIKE 'slotsync%' ORDER BY 1`).map(
    (row) => row['nspname'] as string,
  );
const triggers = async () => (await world.sql`SELECT FROM pg_trigger WHERE NOT tgisinternal`).length;

describe.each(STORES)('reset with the queue on $store', ({ url, skip }) => {
  it.skipIf(skip)(
    'removes triggers, state and queue while no process works, and the state starts anew',
    async () => {
      world = await rehearse({ redisUrl: url, rows: 3, sandbox: { rate: 0 } });
      expect((await world.run(['triggers', 'install'])).code).toBe(0);
      expect((await world.run(['sync'])).code).toBe(0);
      const worker = await world.startWorker();
      const refused = await world.run(['reset', '--yes']);
      expect(refused).toMatchObject({
        code: 2,
        stderr: expect.stringMatching(/- worker on .*, process \d+\n/),
      });
      worker.child.kill('SIGTERM');
      await worker.finished;
      await world.sql`UPDATE rooms SET name = 'Aula' WHERE code = 'R1'`;

      const unsure = await world.run(['reset']);
      expect(unsure.code).toBe(2);
      expect(unsure.stderr).toMatch(
        /organization demo at \S+: 6 records, 0 links, 1 run, 0 held records, 1 change in the inbox, 0 bookings, triggers of 2 streams/,
      );
      expect(unsure.stderr).toContain('→ If that is meant: slotsync reset --yes');
      expect(await triggers()).toBe(6);

      const [bound] = await world.sql<
        { id: string }[]
      >`SELECT state_id::text AS id FROM slotsync.destination`;
      const done = await world.run(['reset', '--yes']);
      expect(done).toMatchObject({
        code: 0,
        stderr: '',
        stdout: expect.stringContaining('Removed all data of slotsync'),
      });
      expect(await schemas()).toEqual([]);
      expect(await triggers()).toBe(0);
      expect(await keysOf(url, `{slotsync:${bound?.id}}`)).toEqual([]);

      expect((await world.run(['migrate'])).code).toBe(0);
      expect((await world.run(['status', '--full'])).stdout).toContain('Not bound to a service yet');
      expect((await world.run(['sync'])).code).toBe(0);
      expect(world.sandbox.objects()).toHaveLength(6);
      expect(await world.sql`SELECT min(id)::int AS first FROM slotsync.runs`).toEqual([{ first: 1 }]);
    },
  );
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

it('reset removes nothing if its role may not remove the triggers, and prints the SQL', async () => {
  world = await rehearse({ rows: 3, migrated: false, sandbox: { rate: 0 } });
  const role = `state_${randomBytes(4).toString('hex')}`;
  const address = new URL(world.url);
  [address.username, address.password] = [role, 'choose-one'];
  const asRole = { STATE_DATABASE_URL: address.href };
  await world.sql.unsafe(`
    CREATE ROLE ${role} LOGIN PASSWORD 'choose-one';
    GRANT CREATE ON DATABASE ${address.pathname.slice(1)} TO ${role};`);
  try {
    expect(await world.run(['migrate'], asRole)).toMatchObject({ code: 0, stderr: '' });
    expect((await world.run(['triggers', 'install', 'rooms'])).code).toBe(0);
    const { code, stderr } = await world.run(['reset', '--yes'], asRole);
    expect(code).toBe(2);
    expect(stderr).toContain('nothing was deleted: the role of STATE_DATABASE_URL lacks a right: ');
    expect(await triggers()).toBe(3);
    expect(await schemas()).toEqual(['slotsync', 'slotsync_queue']);
    expect((await world.run(['status', '--full'], asRole)).code).toBe(0);

    const [, statements = ''] = /run: (BEGIN; .*COMMIT;)/s.exec(stderr) ?? [];
    const owner = postgres(world.url, { max: 1, onnotice: () => undefined });
    await owner.unsafe(statements.replaceAll('\n', ' '));
    await owner.end();
    expect(await triggers()).toBe(0);
    expect(await schemas()).toEqual([]);
  } finally {
    await world.sql.unsafe(`DROP OWNED BY ${role} CASCADE; DROP ROLE ${role}`);
  }
});

it('reset removes the state of an unreleased version, whose objects are then adopted', async () => {
  world = await rehearse({ rows: 3, sandbox: { rate: 0 } });
  expect((await world.run(['sync'])).code).toBe(0);
  await world.sql.unsafe(MAKE_SCHEMA_EARLIER);
  for (const command of ['migrate', 'status', 'sync']) {
    const { code, stderr } = await world.run([command]);
    expect(code).toBe(2);
    expect(stderr).toContain('slotsync reset, then slotsync migrate, then slotsync verify --adopt');
  }

  const unsure = await world.run(['reset']);
  expect(unsure).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('6 records, 0 links, 1 run, 0 held'),
  });
  expect(await world.run(['reset', '--yes'])).toMatchObject({ code: 0, stderr: '' });
  expect(await schemas()).toEqual([]);
  expect((await world.run(['migrate'])).code).toBe(0);
  expect((await world.run(['verify', '--adopt'])).code).toBe(0);
  expect(await world.sql`SELECT count(*)::int AS records FROM slotsync.records`).toEqual([{ records: 6 }]);
});
