// The nightly schedule: workers start the sync when it is due.
import { beforeAll, describe, expect, it } from 'vitest';
import { CONFIGURATION } from '../support/rehearsal.js';
import { commandsOf, rehearseOnce } from '../support/rehearsals.js';
import type { Running } from '../support/program.js';
import { until } from '../support/wait.js';

const scheduled = (schedule: string) =>
  CONFIGURATION.replace('  streams: {', `  schedule: ${schedule},\n  streams: {`);

describe('workers with a schedule', () => {
  const world = rehearseOnce({ rows: 20, sandbox: { rate: 0 } });
  beforeAll(async () => {
    await world.configure(scheduled(`{ nightly: '30 3 * * *', timezone: 'Europe/Stockholm' }`));
    await world.read('sync'); // new streams are synced without a schedule
  });

  async function withWorkers(count: number, act: (workers: Running[]) => Promise<unknown>): Promise<void> {
    const start = () => world.startWorker(['--grace', '1']);
    const workers = await Promise.all(Array.from({ length: count }, start));
    await act(workers);
    for (const { child } of workers) child.kill('SIGTERM');
    for (const { finished } of workers) expect((await finished).code).toBe(0);
  }
  const runs = async () => [
    ...(await world.sql`SELECT kind, status FROM slotsync.runs WHERE id > 1 ORDER BY id`),
  ];

  it('start no sync for a time before they knew the schedule, and tell the next due time', async () => {
    const next = String.raw`Next nightly sync: \d{4}-\d\d-\d\d 03:30 CES?T`;
    await withWorkers(1, async () => {
      expect(await runs()).toEqual([]);
      await world.ends('status --full', 0, new RegExp(`${next}; none was due yet\\.`));
    });
    await world.ends(
      'status --full',
      0,
      /No worker is running to start the nightly sync, due next \d{4}-\d\d-\d\d 03:30 CES?T\n {4}→ slotsync worker\n/,
    );
    await commandsOf(world, { TIMEZONE: 'America/New_York' }).ends(
      'status --full',
      0,
      /Next nightly sync: \d{4}-\d\d-\d\d 2[12]:30 GMT-[45];/,
    );
    await world.ends(
      'check',
      0,
      /✓ schedule: the next nightly sync is due \d{4}-\d\d-\d\d 03:30 CES?T \(pattern in Europe\/Stockholm\), if a worker is running/,
    );
  });

  it('skip a missed sync with `catchUp: false`, and drop a schedule that was removed', async () => {
    await world.configure(
      scheduled(`{ nightly: '30 3 * * *', timezone: 'Europe/Stockholm', catchUp: false }`),
    );
    await world.sql`
      UPDATE slotsync.schedules SET registered_at = now() - interval '9 days', last_due = now() - interval '9 days'`;
    await withWorkers(1, async ([worker]) => {
      await until(() => worker?.output().includes('missed scheduled sync skipped'), {
        describe: () => `the missed occurrence to be skipped: ${worker?.output()}`,
      });
    });
    expect(await runs()).toEqual([]);
    await world.configure(CONFIGURATION);
    await withWorkers(1, async () => undefined);
    expect(await world.sql`SELECT * FROM slotsync.schedules`).toEqual([]);
    expect(await world.read('status --full')).not.toContain('Next nightly');
  });
});
