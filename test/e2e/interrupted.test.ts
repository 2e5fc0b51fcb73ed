// Guarantee 3
// Nothing is lost when a sync is killed or interrupted, or when the queue loses everything: the state decides.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, existsSync, openSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { beforeAll, describe, expect, it, vi } from 'vitest';
import { Redis } from 'ioredis';
import { endWithTests } from '../support/child-processes.js';
import type { Running } from '../support/program.js';
import { CONFIGURATION, rehearseForTest, type Rehearsal } from '../support/rehearsal.js';
import { rehearseOnce } from '../support/rehearsals.js';
import { STORES } from '../support/services.js';
import { until } from '../support/wait.js';

const ROWS = 200;
const CLI = fileURLToPath(new URL('../../dist/cli.js', import.meta.url));

describe.each(STORES)('a sync that was killed, with the queue on $store', ({ url, skip }) => {
  describe.skipIf(skip)('and a lost queue', () => {
    const world = rehearseOnce({ redisUrl: url, rows: ROWS });

    it('is finished by the next sync, which creates each object once and as its row maps', async () => {
      world.holdWrites(5);
      const killed = world.start(['sync']);
      await world.untilHeld();
      killed.child.kill('SIGKILL');
      await killed.finished;
      world.sandbox.openGate();
      // As if it had not been heard of for longer than a process that lives.
      await world.sql`UPDATE slotsync.processes SET seen_at = now() - interval '1 minute'`;
      await world.ends(
        'status --full',
        0,
        /Not seen since .* UTC: sync on .*, process \d+\./,
        /\d+ records wait because a dead process had locked them, until .* UTC/,
        'Run 1 is unfinished, but no process works on it\n    → slotsync worker',
      );
      await loseQueue(world, url);
      await world.expireClaims();

      await world.ends(
        'sync',
        0,
        'Run 1 over the same streams is unfinished. Finishing it first.',
        'Run 1 ended: succeeded. Its results: slotsync runs 1',
      );
      // The results of the run that was taken over include what it did before the kill.
      expect((await world.read('runs 1')).replaceAll(/ +/g, ' ')).toMatch(/\nrooms 200 /);
      expect(await world.read('status --full')).not.toMatch(
        /Not seen since|wait for the claim|no process works/,
      );
      expect(world.sandbox.objects()).toHaveLength(2 * ROWS);
      const rows = await world.sql`
        SELECT count(*)::int AS count, count(DISTINCT external_id)::int AS distinct, bool_and(status = 'synced') AS synced,
          bool_or(in_doubt) AS doubted FROM slotsync.records`;
      expect(rows[0]).toEqual({ count: 2 * ROWS, distinct: 2 * ROWS, synced: true, doubted: false });
      expect(world.sandbox.mostInAnySecond()).toBeLessThanOrEqual(20);
      expect(world.sandbox.refused()).toBe(0);
    });
  });
});

it('two simultaneous syncs each print their own run, and name the run of the other sync', async () => {
  const world = await rehearseForTest({ rows: 3, sandbox: { gate: { method: 'PUT' } } });
  const first = world.start(['sync', 'rooms']);
  await world.untilHeld();
  const second = world.start(['sync', 'rooms']);
  await until(() => second.output().includes('Finishing it first'), { describe: () => second.output() });
  world.sandbox.openGate();
  const [one, other] = await Promise.all([first.finished, second.finished]);
  expect(one.stdout.match(/^Run \d+ \w+/gm)).toEqual(['Run 1 succeeded']);
  expect(other.stdout).toContain('Run 1 ended: succeeded. Its results: slotsync runs 1');
  expect(other.stdout.match(/^Run \d+ succeeded/gm)).toEqual(['Run 2 succeeded']);
});

describe('a sync that is interrupted by Ctrl-C', () => {
  it('finishes batches in flight, says how to continue, and leaves nothing claimed', async () => {
    const world = await rehearseForTest({ rows: ROWS, sandbox: { gate: { method: 'PUT', after: 3 } } });
    const sync = world.start(['sync', '--concurrency', '4']);
    await world.untilHeld();
    sync.child.kill('SIGINT');
    await world.untilStopping(sync);
    world.sandbox.openGate();
    const { code, stderr } = await sync.finished;
    expect(code).toBe(1);
    expect(stderr).toContain('To continue: slotsync sync');
    expect((await world.claims()).claimed).toBe(0);
    const arrived = world.sandbox.objects().length;
    expect(arrived).toBeGreaterThan(3 * 20);
    expect(arrived).toBeLessThan(2 * ROWS);
    expect(await world.run(['sync'])).toMatchObject({ code: 0 });
    expect(world.sandbox.objects()).toHaveLength(2 * ROWS);
  });
});

describe('a sync that is interrupted while its last batch is in flight', () => {
  it('reports the end of its run', async () => {
    const world = await rehearseForTest({ rows: 5, sandbox: { gate: { method: 'PUT', after: 1 } } });
    const sync = world.start(['sync']);
    await world.untilHeld();
    sync.child.kill('SIGTERM');
    await world.untilStopping(sync);
    world.sandbox.openGate();
    const { code, stdout, stderr } = await sync.finished;
    expect(stderr).not.toContain('To continue: slotsync sync');
    expect(stdout).toContain('Run 1 succeeded');
    expect(code).toBe(0);
  });
});

describe('a command behind the unfinished run of another command', () => {
  const world = rehearseOnce({ rows: 5 });
  beforeAll(async () => void (await world.read('sync rooms --detach')));

  it.each([['sync'], ['backfill', 'rooms', '--keys', 'R1', '--force']])(
    'fails when it is stopped before its own run begins: %s',
    async (...args) => {
      await world.sql`UPDATE rooms SET seats = seats + 1`;
      await world.run(['sync', 'rooms', '--detach']);
      world.holdWrites();
      const stopped = world.start(args);
      await world.untilHeld();
      stopped.child.kill('SIGTERM');
      await world.untilStopping(stopped);
      world.sandbox.openGate();
      const { code, stderr } = await stopped.finished;
      expect(await world.sql`SELECT FROM slotsync.runs WHERE finished_at IS NULL`).toEqual([]);
      expect(stderr).toContain('Stopped before this command started its run.');
      expect(stderr).not.toContain('To continue: slotsync sync');
      expect(code).toBe(1);
    },
  );

  it('fails with the resume command when that run is paused, also with --detach', async () => {
    await world.sql`UPDATE rooms SET seats = seats + 1`;
    world.holdWrites();
    const stopped = world.start(['sync', 'rooms']);
    await world.untilHeld();
    const [run] = await world.sql<{ id: string }[]>`SELECT id FROM slotsync.runs WHERE finished_at IS NULL`;
    await world.run(['pause', run?.id ?? '']);
    stopped.child.kill('SIGTERM');
    await world.untilStopping(stopped);
    stopped.child.kill('SIGTERM');
    const toContinue = `is paused. To continue: slotsync resume ${run?.id}`;
    expect(await stopped.finished).toMatchObject({ code: 1, stderr: expect.stringContaining(toContinue) });
    world.sandbox.openGate();
    await world.ends('sync rooms --detach', 1, toContinue);
    await world.run(['resume', run?.id ?? '']);
  });
});

it('a command whose output has no reader any more does its work, and ends with its exit code', async () => {
  const world = await rehearseForTest({ rows: 5 });
  const runUnread = async (command: string) => {
    const { child, finished } = world.start([command]);
    child.stdout?.destroy();
    if (command === 'sync') child.stderr?.destroy();
    return finished;
  };
  // The next one says before it sends that it continues this run.
  await world.run(['sync', '--detach']);
  expect(await runUnread('sync')).toMatchObject({ code: 0 });
  expect(world.sandbox.objects()).toHaveLength(10);
  world.sandbox.refuseObject('room_R1', { status: 400, message: 'no' });
  await world.sql`UPDATE rooms SET seats = 7`;
  expect(await runUnread('sync')).toMatchObject({ code: 1 });
  for (const command of ['status', 'plan'])
    expect(await runUnread(command), command).toEqual({ code: 0, stdout: '', stderr: '' });
});

describe.skipIf(!existsSync('/dev/full'))('a command whose output is on a full disk', () => {
  it('does its work, and fails for lost output unless its run is held', async () => {
    const world = await rehearseForTest({ rows: 5, sandbox: { rate: 0 } });
    const intoFull = (args: string, isLogLost: boolean) => {
      const [stdout, stderr] = [openSync('/dev/full', 'w'), openSync('/dev/full', 'w')];
      const child = spawn(process.execPath, [CLI, ...args.split(' ')], {
        cwd: world.folder,
        env: { PATH: process.env['PATH'], LOG_LEVEL: 'info', ...world.env },
        stdio: ['ignore', stdout, isLogLost ? stderr : 'pipe'],
      });
      [stdout, stderr].forEach(closeSync);
      endWithTests(child);
      let said = '';
      child.stderr?.on('data', (data: Buffer) => (said += data.toString()));
      return once(child, 'close').then(([code]) => ({ code: code as number, said }));
    };
    const lost =
      'slotsync: standard output could not be written (ENOSPC): the printed output is incomplete\n';
    expect(await intoFull('sync', true)).toEqual({ code: 1, said: '' });
    expect(world.sandbox.objects()).toHaveLength(10);
    const status = await intoFull('status', false);
    expect(status).toEqual({ code: 1, said: lost });
    await world.configure(
      CONFIGURATION.replace("retire: 'deactivate'", 'limits: { update: { count: 1, percent: 1 } }'),
    );
    await world.sql`UPDATE rooms SET seats = 7`;
    expect(await intoFull('sync', true)).toEqual({ code: 3, said: '' });
    expect((await intoFull('plan romms', false)).code).toBe(2);
  });
});

describe('a signal to a command with a statement at the mirror', () => {
  const world = rehearseOnce({ rows: 1 });
  beforeAll(async () => {
    await world.sql`ALTER TABLE rooms RENAME TO kept`;
    await world.sql`CREATE VIEW rooms AS SELECT kept.* FROM kept, pg_sleep(600)`;
  });
  const active = async () =>
    (
      await world.sql`
        SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'slotsync%'
          AND state = 'active' AND now() - query_start > interval '1 second'`
    ).length;

  it.each([
    ['plan', 'SIGTERM', 1],
    ['plan', 'SIGINT', 1],
    ['check', 'SIGTERM', 1],
    // It finishes what is in work after the first one.
    ['sync', 'SIGTERM', 2],
    // The server finds that its client is gone.
    ['plan', 'SIGKILL', 1],
  ] as const)('ends the statement: %s, %s', async (command, signal, times) => {
    const running = world.start([command]);
    await until(active, { describe: () => `a statement: ${running.output()}` });
    running.child.kill(signal);
    if (times === 2) {
      await world.untilStopping(running);
      running.child.kill(signal);
    }
    await running.finished;
    await until(async () => (await active()) === 0, { describe: 'no statement' });
  });
});

async function loseQueue({ sql, env }: Rehearsal, redis: string | undefined): Promise<void> {
  if (redis === undefined) {
    const tables = await sql<{ name: string }[]>`
      SELECT tablename AS name FROM pg_tables WHERE schemaname = 'slotsync_queue' AND tablename LIKE '%job%'`;
    expect(tables.length).toBeGreaterThan(0);
    await sql.unsafe(`TRUNCATE ${tables.map(({ name }) => `slotsync_queue.${name}`).join(', ')} CASCADE`);
    return;
  }
  const [bound] = await sql`SELECT state_id FROM slotsync.destination`;
  const client = new Redis(redis);
  const keys = await client.keys(`{slotsync:${bound?.['state_id']}}*`);
  await client.del(...keys, `slotsync:quota:${env['API_BASE_URL']} demo`);
  client.disconnect();
}

describe('a command that needs a lock of another session', () => {
  const world = rehearseOnce({ rows: 2 });

  /** Starts the command while a session has the lock. Calls `act` when the command says that it waits, then releases the lock. */
  const behind = <T>(lock: string, args: readonly string[], act: (running: Running) => Promise<T> | T) =>
    world.sql.begin(async (tx) => {
      await tx`SELECT slotsync.take_lock(${lock}, false)`;
      const running = world.start(args);
      await until(() => running.output().includes('Waiting: '), {
        describe: () => `it to say that it waits: ${running.output()}`,
      });
      return { running, acted: await act(running) };
    });
  const stopBy =
    (signal: NodeJS.Signals) =>
    ({ child, finished }: Running) => {
      child.kill(signal);
      return finished; // while the lock is held
    };

  it('waits as sync, names the session, and ends at SIGTERM without sending', async () => {
    const { acted } = await behind('run_start', ['sync'], stopBy('SIGTERM'));
    expect(acted).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('Stopped before this command started its run.'),
    });
    expect(acted.stderr).toMatch(/^Waiting: run_start \(table slotsync\.lock_run_start\) is locked by '/m);
    expect(world.puts()).toEqual([]);
  });

  it('waits as migrate, names the session, and ends at SIGINT', async () => {
    const { acted } = await behind('migrate', ['migrate'], stopBy('SIGINT'));
    expect(acted).toMatchObject({ code: null, stdout: '' });
    expect(acted.stderr).toMatch(/^Waiting: schema slotsync is in use by '/m);
  });

  it('waits as alerts check until it can evaluate the causes', async () => {
    const { running, acted } = await behind('alerts', ['alerts', 'check'], ({ output }) => output());
    expect(acted).not.toContain('No alert is open');
    expect(await running.finished).toMatchObject({
      code: 0,
      stdout: expect.stringContaining('No alert is open'),
    });
  });

  it('fails as alerts check after waiting for a minute', async () => {
    const now = performance.now.bind(performance);
    vi.spyOn(performance, 'now').mockImplementation(() => now() * 60); // a second is a minute
    try {
      const { code, stdout, stderr } = await world.sql.begin(async (tx) => {
        await tx`SELECT slotsync.take_lock('alerts', false)`;
        return world.run(['alerts', 'check']);
      });
      expect({ code, stdout }).toEqual({ code: 1, stdout: '' });
      expect(stderr).toMatch(
        /^slotsync: alerts \(table slotsync\.lock_alerts\) is locked by .*; gave up after /m,
      );
    } finally {
      vi.restoreAllMocks();
    }
  });
});
