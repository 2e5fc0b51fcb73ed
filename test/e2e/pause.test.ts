// Runs that are paused, resumed and cancelled from another terminal in mid-run. The gate of the sandbox holds a run there.
import { beforeAll, describe, expect, it } from 'vitest';
import { commandsOf, rehearseOnce } from '../support/rehearsals.js';
import { STORES } from '../support/services.js';
import { until } from '../support/wait.js';

const ROWS = 600;

describe.each(STORES)('with the queue on $store', ({ url, skip }) => {
  describe.skipIf(skip)('a run', () => {
    const world = rehearseOnce({ redisUrl: url, rows: ROWS });
    const withoutKey = () => commandsOf(world, { API_KEY: undefined });

    const statuses = async () =>
      (await world.sql`SELECT status FROM slotsync.runs ORDER BY id`).map(({ status }) => status as string);
    const nameOf = (extId: string) => world.sandbox.object(extId)?.fields[0]?.values[0];
    /** Waits until no batch is in flight. */
    const quiet = () =>
      until(async () => (await world.claims()).claimed === 0, { describe: 'what is in work to end' });

    it('sends nothing after a pause in mid-run, is shown as paused, and continues on resume', async () => {
      world.holdWrites(3);
      const sync = world.start(['sync', '--concurrency', '4']);
      await world.untilHeld();
      expect(await withoutKey().read('pause')).toBe(
        'Run 1 is paused: requests in progress are answered. To continue: slotsync resume 1\n',
      );
      world.sandbox.openGate();
      await quiet();
      const arrived = world.sandbox.arrivals().length;
      const written = world.sandbox.objects().length;
      expect(written).toBeLessThan(ROWS);
      await until(() => sync.output().includes('paused; to continue: slotsync resume 1'), {
        describe: 'the sync to say that it stands',
      });

      // Neither the waiting sync, nor another, nor a backfill sends any of it.
      for (const command of ['sync', 'backfill'])
        expect(await world.ends(`${command} rooms`, 1)).toBe(
          'Run 1 over these streams is paused. To continue: slotsync resume 1\n',
        );
      expect(await world.read('pause 1')).toBe('Run 1 is already paused.\n');
      const paused = /Run 1 \(sync\) has been paused since .*\n[^]*→ slotsync resume 1\n/;
      // Its outcomes so far are counted, although it has not ended.
      const counted = /^ *1 +sync .* paused +(\d+)$/m;
      for (const shown of [await world.ends('status --full', 0, paused), await world.read('runs')])
        expect(Number(counted.exec(shown)?.[1])).toBe(written);
      await world.ends('runs 1', 0, /rooms +\d+ +[1-9]\d*/);
      expect(world.sandbox.arrivals()).toHaveLength(arrived);

      await world.ends('resume 1', 0, 'Run 1 is resumed');
      const { code, stdout } = await sync.finished;
      expect(stdout).toMatch(/Run 1 succeeded/);
      expect(code).toBe(0);
      expect(world.sandbox.objects()).toHaveLength(2 * ROWS);
    });

    it('is not planned when it was paused before, and is cancelled with what was accepted', async () => {
      await world.sql`UPDATE rooms SET name = 'Ny ' || code`;
      await world.read('sync rooms --detach');
      await world.read('pause 2');
      world.sandbox.clearArrivals();
      await world.read('backfill courses --keys 1'); // works the queue meanwhile
      expect(await statuses()).toEqual(['succeeded', 'planning', 'succeeded']);
      expect(world.puts()).toHaveLength(0);

      await world.ends('sync rooms --concurrency 1', 1, 'Run 2 over these streams is paused');
      await world.ends('backfill --resume', 0, 'No backfill is unfinished');
      const cancelled = 'Run 2 is cancelled: requests in progress are answered, and what was accepted stays';
      await withoutKey().ends('cancel 2', 0, cancelled);
      await world.read('sync rooms');
      expect(await statuses()).toEqual(['succeeded', 'cancelled', 'succeeded', 'succeeded']);
      expect(nameOf('room_R7')).toBe('Ny R7');
    });

    it.runIf(url === undefined)(
      'resumes in the command that started it when it is small and has no jobs',
      async () => {
        await world.read('sync');
        await world.sql`UPDATE rooms SET name = 'Ett ' || code WHERE code = 'R1'`;
        await world.sql`UPDATE courses SET name = 'Ett' WHERE id = 1`;
        world.holdWrites(0);
        const sync = world.start(['sync']);
        await world.untilHeld();
        await world.read('pause');
        world.sandbox.openGate();
        await quiet();
        await until(() => sync.output().includes('paused; to continue'), { describe: 'the sync to say it' });
        expect(nameOf('course_1')).not.toBe('Ett');
        await world.read('resume');
        expect(await sync.finished).toMatchObject({ code: 0 });
        expect([nameOf('room_R1'), nameOf('course_1')]).toEqual(['Ett R1', 'Ett']);
      },
    );

    it('ends where it is cancelled, and the next run sends the rest', async () => {
      await world.sql`UPDATE rooms SET name = 'Om ' || code`;
      world.holdWrites(2);
      const sync = world.start(['sync', 'rooms', '--concurrency', '2']);
      await world.untilHeld();
      const [run] = await world.sql<{ id: string }[]>`SELECT max(id)::text AS id FROM slotsync.runs`;
      await world.read(`cancel ${run?.id}`);
      world.sandbox.openGate();
      const { code, stdout } = await sync.finished;
      expect(stdout).toContain(`Run ${run?.id} cancelled`);
      expect(code).toBe(1);
      expect(nameOf(`room_R${ROWS}`)).not.toBe(`Om R${ROWS}`);
      await world.read('sync rooms');
      for (const at of [1, ROWS / 2, ROWS]) expect(nameOf(`room_R${at}`)).toBe(`Om R${at}`);
    });
  });
});

describe('the commands pause, resume, cancel, freeze and runs', () => {
  const world = rehearseOnce({ rows: 3, sandbox: { rate: 0 } });
  beforeAll(async () => void (await world.read('sync')));

  it('refuse runs that have ended or do not exist, and say that there is nothing to do', async () => {
    await world.refuses('pause 7', 'slotsync: there is no run 7');
    for (const command of ['pause', 'resume', 'cancel'])
      await world.refuses(`${command} 1`, 'slotsync: run 1 has ended (succeeded); nothing was done');
    expect(await world.read('pause')).toBe('No run is under way.\n');
    expect(await world.read('resume')).toBe('No run is paused.\n');
  });

  it('ignore incremental runs unless they are asked for', async () => {
    await world.sql`
      INSERT INTO slotsync.runs (kind, lane, started_by, streams, status)
      VALUES ('incremental', 'incremental', 'change', '{rooms}', 'running')`;
    expect(await world.read('pause')).toBe('No run is under way.\n');
    for (const [command, expected] of [
      ['runs', ['sync']],
      ['status', ['sync']],
      ['runs --all', ['incremental', 'sync']],
      ['status --all', ['incremental', 'sync']],
      ['runs --kind incremental', ['incremental']],
    ] as const) {
      const { runs } = await world.json<{ runs: { kind: string }[] }>(`${command} --json`);
      expect(
        runs.map(({ kind }) => kind),
        command,
      ).toEqual(expected);
    }
    await world.ends('pause 2', 0, 'Run 2 is paused');
  });

  it('hold what a sync would send from freeze to unfreeze, and note both actions', async () => {
    const frozen = await world.read(['freeze', 'rooms', '--until', '2h', '--reason', 'exam weeks']);
    const [, end = ''] = /^Frozen until (.+): rooms\. /.exec(frozen) ?? [];
    await world.sql`UPDATE rooms SET name = 'Aula' WHERE code = 'R1'`;
    world.sandbox.clearArrivals();
    await world.read('sync rooms');
    expect(world.puts()).toEqual([]);
    const says = [`rooms: frozen until ${end}`, 'Waiting: 1 record held.', 'Reason: exam weeks'];
    await world.ends('status --full', 0, ...says);

    await world.ends(['unfreeze', 'rooms', '--reason', 'they are over'], 0, 'No longer frozen: rooms.');
    await world.read('sync rooms');
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
