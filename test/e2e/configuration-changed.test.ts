// Guarantee 11
// Two configurations at once: a worker that has loaded the former configuration, beside commands and workers with the
// present one.
import { beforeEach, describe, expect, it } from 'vitest';
import type { Running } from '../support/program.js';
import { CONFIGURATION } from '../support/rehearsal.js';
import { rehearseEach } from '../support/rehearsals.js';
import { until } from '../support/wait.js';

const ROWS = 45;
/** Names rooms differently, and has a stream that the former configuration does not have. */
const PRESENT = CONFIGURATION.replace(
  "'room.name': 'name'",
  "'room.name': (row) => `New ${row.name}`",
).replace(
  '\n  },\n});',
  `
    halls: {
      from: 'halls', key: 'code', type: 'room', externalId: 'hall_{code}', fields: { 'room.name': 'name' },
    },
  },
});`,
);

interface RunRow {
  id: number;
  status: string;
  errorCode: string | null;
  configuration: string;
}

describe('a configuration that changed under a worker with the former one', () => {
  const world = rehearseEach({ rows: ROWS });
  beforeEach(async () => {
    await world.sql.unsafe(
      "CREATE TABLE halls (code text PRIMARY KEY, name text); INSERT INTO halls VALUES ('H', 'Hall')",
    );
    await world.read('sync');
  });

  const nameOf = (extId: string) =>
    world.sandbox.object(extId)?.fields.find(({ fieldId }) => fieldId === 'room.name')?.values[0];
  const names = () => Array.from({ length: ROWS }, (_, at) => nameOf(`room_R${at + 1}`));
  const areAll = (prefix: string) =>
    expect(names()).toEqual(Array.from({ length: ROWS }, (_, at) => `${prefix}Sal ${at + 1}`));
  /** All runs except those of `halls` only, which a worker begins because the stream is new. */
  const runs = () =>
    world.sql<RunRow[]>`SELECT id::int, status, error_code AS "errorCode", configuration
        FROM slotsync.runs WHERE kind <> 'incremental' AND streams <> '{halls}' ORDER BY id`;
  const latest = async () => {
    const run = (await runs()).at(-1);
    if (!run) throw new Error('there is no run');
    return run;
  };
  const stop = async ({ child, finished }: Running) => {
    child.kill('SIGTERM');
    expect((await finished).code).toBe(0);
  };
  /** Ages the row of a killed process by more than the half minute after which the process counts as gone. */
  const forget = ({ child }: Running) =>
    world.sql`UPDATE slotsync.processes SET seen_at = now() - interval '1 minute' WHERE pid = ${child.pid ?? 0}`;
  const kill = async (running: Running) => {
    running.child.kill('SIGKILL');
    await running.finished;
    await forget(running);
    await world.expireClaims();
  };

  it('is followed by a sync, which names the outdated worker', async () => {
    const worker = await world.startWorker();
    await world.configure(PRESENT);
    const { code, stdout, stderr } = await world.run(['sync']);
    expect({ code, stderr }).toMatchObject({ code: 0 });
    expect(stdout).toMatch(/halls +1 /);
    areAll('New ');
    expect(nameOf('hall_H')).toBe('Hall');
    expect(stderr).toMatch(
      new RegExp(
        `worker on \\S+, process ${worker.child.pid}, has another configuration \\(.*rooms.*\\), loaded .*: restart it`,
      ),
    );
    await world.ends('check', 0, `process ${worker.child.pid}, has another configuration`);
    await stop(worker);
  });

  it('keeps its detached run waiting for a process that has loaded it, and status says so', async () => {
    const worker = await world.startWorker();
    await world.configure(PRESENT);
    await world.read('sync --detach');
    const { id } = await latest();
    await world.ends(
      'status --full',
      0,
      `Run ${id} (rooms, halls, courses) waits, because no running process has its configuration`,
      // The words depend on whether the worker has seen by now that its file changed.
      new RegExp(
        `process ${worker.child.pid}, has (another configuration|the configuration loaded .* have changed) .*: restart it`,
      ),
    );
    await until(
      () => worker.output().includes('run not queued: only processes with its configuration work it'),
      {
        describe: () => `the worker to leave the run to others: ${worker.output()}`,
      },
    );
    expect(await latest()).toMatchObject({ id, status: 'planning' });

    const present = await world.startWorker();
    await until(async () => (await latest()).status === 'succeeded', { describe: present.output });
    areAll('New ');
    expect(nameOf('hall_H')).toBe('Hall');
    await Promise.all([stop(worker), stop(present)]);
    expect(worker.output().split('run not queued: only processes')).toHaveLength(2);
  });

  it('does not affect a run in progress, and is used by the next run', async () => {
    await world.sql`UPDATE rooms SET name = 'Old ' || name`;
    const worker = await world.startWorker();
    world.holdWrites();
    const former = world.start(['sync']);
    await world.untilHeld();
    await world.configure(PRESENT);
    await until(() => worker.output().includes('configuration file changed'), {
      describe: worker.output,
    });
    await world.ends(
      'status --full',
      0,
      new RegExp(
        `worker on \\S+, process ${worker.child.pid}, has the configuration loaded .*; its files have changed since .*: restart it`,
      ),
    );
    world.sandbox.openGate();
    expect((await former.finished).code).toBe(0);
    areAll('Old ');

    await world.configure(CONFIGURATION);
    await until(() => worker.output().includes('again the version that this process loaded'), {
      describe: worker.output,
    });
    expect(await world.read('status --full')).not.toContain('restart');

    await world.configure(PRESENT);
    await world.read('sync');
    areAll('New Old ');
    await stop(worker);
  });

  it('leaves an incremental run to the process that began it, or returns its keys to the inbox', async () => {
    const former = await world.startWorker();
    world.holdWrites();
    await world.sql`UPDATE rooms SET name = 'Old ' || name WHERE code IN ('R1', 'R2')`;
    await world.run(['push', 'rooms', 'R1', 'R2']);
    await world.untilHeld();
    await world.configure(PRESENT);
    const present = await world.startWorker();
    await until(() => present.output().includes('run not queued: only processes'), {
      describe: present.output,
    });
    world.sandbox.openGate();
    await until(() => nameOf('room_R1') === 'Old Sal 1' && nameOf('room_R2') === 'Old Sal 2', {
      describe: names().join(),
    });

    world.holdWrites();
    await stop(present);
    await world.sql`UPDATE rooms SET name = 'Older ' || name WHERE code IN ('R1', 'R2')`;
    await world.run(['push', 'rooms', 'R1', 'R2']);
    await world.untilHeld();
    await kill(former);
    world.sandbox.openGate();
    const successor = await world.startWorker();
    await until(
      async () => (await world.sql`UPDATE slotsync.changes SET not_before = NULL RETURNING id`).length > 0,
      {
        describe: successor.output,
      },
    );
    await until(
      () => nameOf('room_R1') === 'New Older Old Sal 1' && nameOf('room_R2') === 'New Older Old Sal 2',
      {
        describe: () => `${names().join()}: ${successor.output()}`,
      },
    );
    const ended =
      await world.sql`SELECT error_code FROM slotsync.runs WHERE kind = 'incremental' AND status = 'cancelled'`;
    expect(ended).toEqual([{ error_code: 'configuration_changed' }]);
    await stop(successor);
  });
});
