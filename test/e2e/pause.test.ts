// Runs that are paused, resumed and cancelled from another terminal in mid-run. The gate of the sandbox holds a run there.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { rehearse, type Rehearsal } from '../support/rehearsal.js';
import { STORES } from '../support/services.js';
import { until } from '../support/wait.js';

const ROWS = 600;

describe.each(STORES)('with the queue on $store', ({ url, skip }) => {
  describe.skipIf(skip)('a run', () => {
    let world: Rehearsal;
    beforeAll(async () => {
      world = await rehearse({ redisUrl: url, rows: ROWS });
    });
    afterAll(() => world.close());

    const statuses = async () =>
      (await world.sql<{ status: string }[]>`SELECT status FROM slotsync.runs ORDER BY id`).map(
        ({ status }) => status,
      );
    /** Waits until no batch is in flight. */
    const quiet = () =>
      until(async () => (await world.claims()).claimed === 0, { describe: 'what is in work to end' });

    it('sends nothing after a pause in mid-run, is shown as paused, and continues on resume', async () => {
      world.holdWrites(3);
      const sync = world.start(['sync', '--concurrency', '4']);
      await world.untilHeld();
      const pause = await world.run(['pause'], { API_KEY: undefined });
      expect(pause.stdout).toBe(
        'Run 1 is paused: requests in progress are answered. To continue: slotsync resume 1\n',
      );
      expect(pause.code).toBe(0);
      world.sandbox.openGate();
      await quiet();
      const arrived = world.sandbox.arrivals().length;
      const written = world.sandbox.objects().length;
      expect(written).toBeLessThan(ROWS);
      await until(() => sync.output().includes('paused; to continue: slotsync resume 1'), {
        describe: 'the sync to say that it stands',
      });

      // Neither the waiting sync, nor another, nor a backfill sends any of it.
      for (const command of ['sync', 'backfill']) {
        const other = await world.run([command, 'rooms']);
        expect(other.stdout).toBe('Run 1 over these streams is paused. To continue: slotsync resume 1\n');
        expect(other.code).toBe(1);
      }
      expect((await world.run(['pause', '1'])).stdout).toBe('Run 1 is already paused.\n');
      const status = await world.run(['status', '--full']);
      expect(status.stdout).toMatch(/Run 1 \(sync\) has been paused since .*\n[^]*→ slotsync resume 1\n/);
      // Its outcomes so far are counted, although it has not ended.
      const counted = /^ *1 +sync .* paused +(\d+)$/m;
      expect(Number(counted.exec(status.stdout)?.[1])).toBe(written);
      expect(Number(counted.exec((await world.run(['runs'])).stdout)?.[1])).toBe(written);
      expect((await world.run(['runs', '1'])).stdout).toMatch(/rooms +\d+ +[1-9]\d*/);
      expect(world.sandbox.arrivals()).toHaveLength(arrived);
      expect(world.sandbox.objects()).toHaveLength(written);

      const resume = await world.run(['resume', '1']);
      expect(resume.stdout).toContain('Run 1 is resumed');
      const { code, stdout } = await sync.finished;
      expect(stdout).toMatch(/Run 1 succeeded/);
      expect(code).toBe(0);
      expect(world.sandbox.objects()).toHaveLength(2 * ROWS);
    });

    it('is not planned when it was paused before, and is cancelled with what was accepted', async () => {
      await world.sql`UPDATE rooms SET name = 'Ny ' || code`;
      await world.run(['sync', 'rooms', '--detach']);
      await world.run(['pause', '2']);
      world.sandbox.clearArrivals();
      await world.run(['backfill', 'courses', '--keys', '1']); // works the queue meanwhile
      expect(await statuses()).toEqual(['succeeded', 'planning', 'succeeded']);
      expect(world.puts()).toHaveLength(0);

      const sync = await world.run(['sync', 'rooms', '--concurrency', '1']);
      expect(sync.stdout).toContain('Run 2 over these streams is paused');
      const other = await world.run(['backfill', '--resume']);
      expect(other.stdout).toContain('No backfill is unfinished');

      const cancel = await world.run(['cancel', '2'], { API_KEY: undefined });
      expect(cancel.stdout).toContain(
        'Run 2 is cancelled: requests in progress are answered, and what was accepted stays',
      );
      expect(cancel.code).toBe(0);
      expect((await world.run(['sync', 'rooms'])).code).toBe(0);
      expect(await statuses()).toEqual(['succeeded', 'cancelled', 'succeeded', 'succeeded']);
      expect(world.sandbox.object('room_R7')?.fields[0]?.values).toEqual(['Ny R7']);
    });

    it.runIf(url === undefined)(
      'resumes in the command that started it when it is small and has no jobs',
      async () => {
        await world.run(['sync']);
        await world.sql`UPDATE rooms SET name = 'Ett ' || code WHERE code = 'R1'`;
        await world.sql`UPDATE courses SET name = 'Ett' WHERE id = 1`;
        world.holdWrites(0);
        const sync = world.start(['sync']);
        await world.untilHeld();
        expect((await world.run(['pause'])).code).toBe(0);
        world.sandbox.openGate();
        await quiet();
        await until(() => sync.output().includes('paused; to continue'), { describe: 'the sync to say it' });
        expect(world.sandbox.object('course_1')?.fields[0]?.values).not.toEqual(['Ett']);
        expect((await world.run(['resume'])).code).toBe(0);
        expect(await sync.finished).toMatchObject({ code: 0 });
        expect(world.sandbox.object('room_R1')?.fields[0]?.values).toEqual(['Ett R1']);
        expect(world.sandbox.object('course_1')?.fields[0]?.values).toEqual(['Ett']);
      },
    );

    it('ends where it is cancelled, and the next run sends the rest', async () => {
      await world.sql`UPDATE rooms SET name = 'Om ' || code`;
      world.holdWrites(2);
      const sync = world.start(['sync', 'rooms', '--concurrency', '2']);
      await world.untilHeld();
      const [run] = await world.sql<{ id: string }[]>`SELECT max(id)::text AS id FROM slotsync.runs`;
      expect((await world.run(['cancel', run?.id ?? ''])).code).toBe(0);
      world.sandbox.openGate();
      const { code, stdout } = await sync.finished;
      expect(stdout).toContain(`Run ${run?.id} cancelled`);
      expect(code).toBe(1);
      expect(world.sandbox.object(`room_R${ROWS}`)?.fields[0]?.values).not.toEqual([`Om R${ROWS}`]);
      expect((await world.run(['sync', 'rooms'])).code).toBe(0);
      for (const at of [1, ROWS / 2, ROWS])
        expect(world.sandbox.object(`room_R${at}`)?.fields[0]?.values).toEqual([`Om R${at}`]);
    });
  });
});

describe('the commands pause, resume, cancel, freeze and runs', () => {
  let world: Rehearsal;
  beforeAll(async () => {
    world = await rehearse({ rows: 3, sandbox: { rate: 0 } });
    await world.run(['sync']);
  });
  afterAll(() => world.close());

  it.each([
    [['pause', '7'], 'there is no run 7'],
    [['pause', '1'], 'run 1 has ended (succeeded); nothing was done'],
    [['resume', '1'], 'run 1 has ended (succeeded); nothing was done'],
    [['cancel', '1'], 'run 1 has ended (succeeded); nothing was done'],
  ])('end with exit code 2 and one line: %j', async (args, message) => {
    const { code, stderr } = await world.run(args);
    expect(stderr).toContain(`slotsync: ${message}`);
    expect(code).toBe(2);
  });

  it.each([
    [['pause'], 'No run is under way.\n'],
    [['resume'], 'No run is paused.\n'],
  ])('say that there is nothing to do: %j', async (args, message) => {
    expect(await world.run(args)).toMatchObject({ code: 0, stdout: message });
  });

  it('ignore incremental runs unless they are asked for', async () => {
    await world.sql`
      INSERT INTO slotsync.runs (kind, lane, started_by, streams, status)
      VALUES ('incremental', 'incremental', 'change', '{rooms}', 'running')`;
    expect((await world.run(['pause'])).stdout).toBe('No run is under way.\n');
    const kinds = async (...args: string[]) =>
      (JSON.parse((await world.run([...args, '--json'])).stdout) as { runs: { kind: string }[] }).runs.map(
        ({ kind }) => kind,
      );
    expect(await kinds('runs')).toEqual(['sync']);
    expect(await kinds('status')).toEqual(['sync']);
    expect(await kinds('runs', '--all')).toEqual(['incremental', 'sync']);
    expect(await kinds('status', '--all')).toEqual(['incremental', 'sync']);
    expect(await kinds('runs', '--kind', 'incremental')).toEqual(['incremental']);
    expect((await world.run(['pause', '2'])).stdout).toContain('Run 2 is paused');
  });

  it('hold what a sync would send from freeze to unfreeze, and note both actions', async () => {
    const freeze = await world.run(['freeze', 'rooms', '--until', '2h', '--reason', 'exam weeks']);
    const [, end = ''] = /^Frozen until (.+): rooms\. /.exec(freeze.stdout) ?? [];
    expect(freeze).toMatchObject({ code: 0 });
    await world.sql`UPDATE rooms SET name = 'Aula' WHERE code = 'R1'`;
    world.sandbox.clearArrivals();
    expect(await world.run(['sync', 'rooms'])).toMatchObject({ code: 0 });
    expect(world.puts()).toEqual([]);
    const status = await world.run(['status', '--full']);
    expect(status.stdout).toContain(`rooms: frozen until ${end}`);
    expect(status.stdout).toContain('Waiting: 1 record held.');
    expect(status.stdout).toContain('Reason: exam weeks');

    const unfreeze = await world.run(['unfreeze', 'rooms', '--reason', 'they are over']);
    expect(unfreeze).toMatchObject({ code: 0 });
    expect(unfreeze.stdout).toContain('No longer frozen: rooms.');
    expect(await world.run(['sync', 'rooms'])).toMatchObject({ code: 0 });
    expect(world.sandbox.object('room_R1')?.fields[0]?.values).toEqual(['Aula']);
    await world.run(['unfreeze', 'rooms']);
    expect(
      await world.sql`SELECT action, subject, reason FROM slotsync.actions WHERE action LIKE '%freeze' ORDER BY id`,
    ).toEqual([
      { action: 'freeze', subject: `rooms until ${end}`, reason: 'exam weeks' },
      { action: 'unfreeze', subject: 'rooms', reason: 'they are over' },
    ]);
  });
});
