// Guarantee 5
// The main job as a user runs it, on both queue stores.
import { describe, expect, it } from 'vitest';
import { commandsOf, rehearseOnce } from '../support/rehearsals.js';
import { STORES } from '../support/services.js';

describe.each(STORES)('slotsync with queue and quota on $store', ({ url, skip }) => {
  describe.skipIf(skip)('a sync', () => {
    const world = rehearseOnce({ redisUrl: url, migrated: false });
    /** Runs the test with one store only: the output comes from the state. */
    const itOnce = it.runIf(url === undefined);

    it('asks for the migration first, names the command, and can start after migrate and check', async () => {
      await world.refuses('sync', 'Run `slotsync migrate`');
      await world.ends('migrate', 0, 'Applied');
      expect(JSON.parse(await world.read('check --json'))).toMatchObject({ ok: true });
    });

    itOnce('is previewed by plan, which writes nothing anywhere', async () => {
      const stateRows = () => world.sql`
        SELECT (SELECT count(*)::int FROM slotsync.runs) AS runs, (SELECT count(*)::int FROM slotsync.batches) AS batches,
          (SELECT count(*)::int FROM slotsync.records) AS records, (SELECT count(*)::int FROM slotsync.destination) AS bound`;
      const before = await stateRows();
      await world.ends(
        'plan',
        0,
        `create rooms, 3 of 60\n  'R1' → room_R1  room.name "Sal 1", room.seats "1"\n`,
        /At most 1\d requests: .* at 20 requests a second .* done at .* \d\d:\d\d UTC/,
      );
      const plan = await world.json<{ streams: { samples: unknown[] }[] }>('plan --json');
      expect(plan).toMatchObject({
        requests: 15,
        streams: [
          { stream: 'rooms', requests: 5, counts: { create: 60, update: 0, retire: 0, unchanged: 0 } },
          { stream: 'courses', requests: 7, counts: { create: 60 } },
        ],
      });
      expect(plan.streams[0]?.samples).toHaveLength(5);
      expect(world.puts()).toHaveLength(0);
      expect(await stateRows()).toEqual(before);
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
      expect(JSON.parse(await world.read('sync --json'))).toMatchObject({
        run: { status: 'succeeded', plan: { rooms: { unchanged: 60 } } },
      });
      expect(world.sandbox.arrivals()).toHaveLength(0);
    });

    itOnce('leaves a reason for each unsent record, which failures reads from the state alone', async () => {
      await world.sql`UPDATE rooms SET name = repeat('x', 41) WHERE code = 'R2'`;
      await world.sql`UPDATE rooms SET seats = 3000 WHERE code = 'R3'`; // accepted beside it
      await world.sql`INSERT INTO courses VALUES (900, 'Waits', 'R900')`;
      await world.ends('sync', 1);
      const fromState = commandsOf(world, { MIRROR_DATABASE_URL: undefined, STATE_DATABASE_URL: world.url });
      await fromState.ends(
        'failures',
        0,
        /rooms 'R2': given up \(.*longer than 40/s,
        /→ Correct the row.* slotsync retry rooms R2/,
        "rooms 'R900' has no record → 1 record of courses waits for it",
      );
      await world.ends(
        'explain rooms R900',
        0,
        /^Next: add the row to rooms, by its key code, or correct the rows that refer to it; then: slotsync sync$/m,
        /Waited for by courses: 1 record, since .*, such as courses '900'/,
      );
      const withoutKey = commandsOf(world, { API_KEY: undefined });
      expect(await withoutKey.json('status --json')).toMatchObject({
        unsettled: 2,
        quota: { rate: 20, throttled: 0, granted: expect.any(Number) },
      });
      const quota = /Quota: \d+ of 20 in use\nRequests under way by lane: none, and none waiting/;
      await withoutKey.ends('status --full', 0, quota);
      await world.ends('runs', 0, /sync .* succeeded/, /sync .* partial/);
      await world.ends('runs 1', 0, 'Run 1 succeeded');
    });

    it('can be queued for workers', async () => {
      await world.sql`UPDATE rooms SET name = 'Sal 2' WHERE code = 'R2'`;
      await world.sql`UPDATE rooms SET seats = 2000 WHERE code = 'R5'`;
      const worker = await world.startWorker();
      const { run } = await world.json<{ run: { id: number } }>('sync --detach --json');
      await expect
        .poll(() => world.json(`runs ${run.id} --json`), { interval: 250 })
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

describe('a state database with another DateStyle and time zone', () => {
  const world = rehearseOnce({ rows: 1 });

  it('is read with the right times by every command', async () => {
    await world.sql`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET DateStyle = ''SQL, DMY''', current_database());
      EXECUTE format('ALTER DATABASE %I SET TimeZone = ''Asia/Kolkata''', current_database()); END $$`;
    await world.read('sync');
    const { runs } = await world.json<{ runs: { startedAt: string }[] }>('runs --json');
    expect(Math.abs(Date.now() - Date.parse(runs[0]?.startedAt ?? ''))).toBeLessThan(3_600_000);
    for (const command of ['status', 'report', 'failures']) await world.read(command);
  });
});
