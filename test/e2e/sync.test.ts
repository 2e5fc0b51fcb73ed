// Guarantee 5
// The main job as a user runs it, on both queue stores.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createRequire } from 'node:module';
import { rehearse, type Rehearsal } from '../support/rehearsal.js';
import { STORES } from '../support/services.js';

describe.each(STORES)('slotsync with queue and quota on $store', ({ url, skip }) => {
  describe.skipIf(skip)('a sync', () => {
    let world: Rehearsal;
    /** Runs the test with one store only: the output comes from the state. */
    const itOnce = it.runIf(url === undefined);
    beforeAll(async () => {
      world = await rehearse({ redisUrl: url, migrated: false });
    });
    afterAll(() => world.close());

    it('asks for the migration first, and names the command', async () => {
      const { code, stderr } = await world.run(['sync']);
      expect(code).toBe(2);
      expect(stderr).toContain('Run `slotsync migrate`');
    });

    it('can start after migrate and check', async () => {
      expect(await world.run(['migrate'])).toMatchObject({
        code: 0,
        stdout: expect.stringContaining('Applied'),
      });
      const check = await world.run(['check', '--json']);
      expect(JSON.parse(check.stdout)).toMatchObject({ ok: true });
      expect(check.code).toBe(0);
    });

    itOnce('is previewed by plan, which writes nothing anywhere', async () => {
      const before = await stateRows(world);
      const plan = await world.run(['plan']);
      expect(plan.stdout).toContain(
        `create rooms, 3 of 60\n  'R1' → room_R1  room.name "Sal 1", room.seats "1"\n`,
      );
      expect(plan.stdout).toMatch(
        /At most 1\d requests: .* at 20 requests a second .* done at .* \d\d:\d\d UTC/,
      );
      const json = JSON.parse((await world.run(['plan', '--json'])).stdout) as Record<string, unknown>;
      expect(json).toMatchObject({
        requests: 15,
        streams: [
          { stream: 'rooms', requests: 5, counts: { create: 60, update: 0, retire: 0, unchanged: 0 } },
          { stream: 'courses', requests: 7, counts: { create: 60 } },
        ],
      });
      expect((json['streams'] as { samples: unknown[] }[])[0]?.samples).toHaveLength(5);
      expect(world.puts()).toHaveLength(0);
      expect(await stateRows(world)).toEqual(before);
    });

    it('sends every object exactly as its row maps, within the quota', async () => {
      const { code, stdout } = await world.start(['sync']).finished; // as a process of its own
      expect(stdout).toMatch(/Run 1 succeeded/);
      expect(code).toBe(0);
      expect(world.sandbox.objects()).toHaveLength(120);
      expect(world.sandbox.object('room_R7')).toMatchObject({
        typeId: 'room',
        active: true,
        fields: [
          { fieldId: 'room.name', values: ['Sal 7'] },
          { fieldId: 'room.seats', values: ['7'] },
        ],
      });
      expect(world.sandbox.object('course_7')?.fields).toContainEqual({
        fieldId: 'course.room',
        values: ['room_R7'],
      });
      expect(world.sandbox.refused()).toBe(0);
      expect(world.sandbox.mostInAnySecond()).toBeLessThanOrEqual(20);
      // Also those of `check` and `plan` are in the state, by the second in which they were sent.
      const [noted] = await world.sql`
        SELECT sum(requests)::int AS requests, (SELECT answer FROM slotsync.destination) AS answer,
          (SELECT count(*)::int FROM slotsync.processes) AS processes
        FROM slotsync.request_seconds`;
      expect(noted).toEqual({ requests: world.sandbox.arrivals().length, answer: '200', processes: 0 });
    });

    it('sends nothing the second time', async () => {
      world.sandbox.clearArrivals();
      const { code, stdout } = await world.run(['sync', '--json']);
      expect(code).toBe(0);
      expect(JSON.parse(stdout)).toMatchObject({
        run: { status: 'succeeded', plan: { rooms: { unchanged: 60 } } },
      });
      expect(world.sandbox.arrivals()).toHaveLength(0);
    });

    itOnce('leaves a reason for each unsent record, which failures reads from the state alone', async () => {
      await world.sql`UPDATE rooms SET name = repeat('x', 41) WHERE code = 'R2'`;
      await world.sql`UPDATE rooms SET seats = 3000 WHERE code = 'R3'`; // accepted beside it
      await world.sql`INSERT INTO courses VALUES (900, 'Waits', 'R900')`;
      const sync = await world.run(['sync']);
      expect(sync.code).toBe(1);
      const failures = await world.run(['failures'], {
        MIRROR_DATABASE_URL: undefined,
        STATE_DATABASE_URL: world.url,
      });
      expect(failures.stdout).toMatch(/rooms 'R2': given up \(.*longer than 40/s);
      expect(failures.stdout).toMatch(/→ Correct the row.* slotsync retry rooms R2/);
      expect(failures.stdout).toContain("rooms 'R900' has no record → 1 record of courses waits for it");
      const absent = await world.run(['explain', 'rooms', 'R900']);
      expect(absent.stdout).toMatch(
        /^Next: add the row to rooms, by its key code, or correct the rows that refer to it; then: slotsync sync$/m,
      );
      expect(absent.stdout).toMatch(/Waited for by courses: 1 record, since .*, such as courses '900'/);
      expect(absent.code).toBe(0);
      const status = await world.run(['status', '--json'], { API_KEY: undefined });
      expect(JSON.parse(status.stdout)).toMatchObject({
        unsettled: 2,
        quota: { rate: 20, throttled: 0, granted: expect.any(Number) },
      });
      const told = await world.run(['status', '--full'], { API_KEY: undefined });
      expect(told.stdout).toMatch(
        /Quota: \d+ of 20 in use\nRequests under way by lane: none, and none waiting/,
      );
    });

    itOnce('is listed by runs', async () => {
      const runs = await world.run(['runs']);
      expect(runs.stdout).toMatch(/sync .* succeeded/);
      expect(runs.stdout).toMatch(/sync .* partial/);
      expect((await world.run(['runs', '1'])).stdout).toContain('Run 1 succeeded');
    });

    it('can be queued for workers', async () => {
      await world.sql`UPDATE rooms SET name = 'Sal 2' WHERE code = 'R2'`;
      await world.sql`UPDATE rooms SET seats = 2000 WHERE code = 'R5'`;
      const worker = await world.startWorker();
      const detached = await world.run(['sync', '--detach', '--json']);
      const { run } = JSON.parse(detached.stdout) as { run: { id: number } };
      await expect
        .poll(
          async () => JSON.parse((await world.run(['runs', String(run.id), '--json'])).stdout) as unknown,
          { interval: 250 },
        )
        .toMatchObject({ run: { status: 'succeeded', finishedAt: expect.any(String) } });
      expect(world.sandbox.object('room_R5')?.fields).toContainEqual({
        fieldId: 'room.seats',
        values: ['2000'],
      });
      worker.child.kill('SIGTERM');
      expect((await worker.finished).code).toBe(0);
    });
  });
});

async function stateRows({ sql }: Rehearsal): Promise<unknown> {
  return sql`SELECT (SELECT count(*)::int FROM slotsync.runs) AS runs, (SELECT count(*)::int FROM slotsync.batches) AS batches,
    (SELECT count(*)::int FROM slotsync.records) AS records, (SELECT count(*)::int FROM slotsync.destination) AS bound`;
}

describe('the program', () => {
  it('has help for every command', async () => {
    const world = await rehearse();
    try {
      const help = await world.start(['--help']).finished;
      const commands = [...help.stdout.matchAll(/^ {2}(\w+)/gm)].map(([, name]) => name ?? '');
      expect(commands).toEqual(
        expect.arrayContaining(['demo', 'migrate', 'check', 'plan', 'sync', 'worker', 'status']),
      );
      expect(commands).toEqual(
        expect.arrayContaining(['runs', 'failures', 'retry', 'approve', 'reject', 'sandbox']),
      );
      const { version } = createRequire(import.meta.url)('../../package.json') as { version: string };
      expect((await world.run(['--version'])).stdout.trim()).toBe(version);
    } finally {
      await world.close();
    }
  });

  it('reads times of a state database with another DateStyle and time zone', async () => {
    const world = await rehearse({ rows: 1 });
    try {
      await world.sql`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET DateStyle = ''SQL, DMY''', current_database());
        EXECUTE format('ALTER DATABASE %I SET TimeZone = ''Asia/Kolkata''', current_database()); END $$`;
      expect(await world.run(['sync'])).toMatchObject({ code: 0 });
      const { stdout } = await world.run(['runs', '--json']);
      const [{ startedAt }] = (JSON.parse(stdout) as { runs: [{ startedAt: string }] }).runs;
      expect(Math.abs(Date.now() - Date.parse(startedAt))).toBeLessThan(3_600_000);
      for (const command of ['status', 'report', 'failures'])
        expect(await world.run([command]), command).toMatchObject({ code: 0 });
    } finally {
      await world.close();
    }
  });
});
