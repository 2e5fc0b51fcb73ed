// Guarantee 11
// A run belongs to the configuration that started it: who may take it over, and when it is replaced. Before the first write it asks
// the service for the types and fields of the configuration, and not again for an hour in the same process.
import { beforeEach, describe, expect, it } from 'vitest';
import { notePresence } from '../../src/state/processes.js';
import { takeChanges } from '../../src/state/inbox/take-changes.js';
import { addChanges } from '../../src/state/inbox/add-changes.js';
import { setPaused } from '../../src/state/runs/advance-run.js';
import { readRun } from '../../src/state/runs/read-runs.js';
import { adoptRuns, endLeftRuns, startFreeRun, startRun } from '../../src/state/runs/start-run.js';
import { createNameCheck } from '../../src/sync/plan/unknown-names.js';
import type { Fingerprints } from '../../src/streams/fingerprints.js';
import { keepRooms, rooms, roomsAndCourses, statusOf, type RoomWorld } from '../support/steps.js';

const open = keepRooms();

const FORMER: Fingerprints = { configuration: 'former', streams: { rooms: 'a', courses: 'c' } };
/** Another declaration of rooms, and the same declaration of courses. */
const PRESENT: Fingerprints = { configuration: 'present', streams: { rooms: 'b', courses: 'c' } };

describe('a run of another configuration', () => {
  let world: RoomWorld;
  beforeEach(async () => {
    world = await open(roomsAndCourses());
  });

  const start = async (fingerprints: Fingerprints | undefined, ...streams: string[]) => {
    const request = { kind: 'sync', lane: 'sync', startedBy: 'command', streams, fingerprints } as const;
    return (await startRun(world.state.db, request)).run.id;
  };
  const work = (id: string, configuration: Fingerprints, loadedAt = new Date()) =>
    notePresence(world.state.db, { id, command: 'worker', host: 'host-a', pid: 7 }, null, {
      configuration: { ...configuration, loadedAt },
    });
  const configurationOf = async (id: number) => (await readRun(world.state.db, id))?.configuration;
  const status = () => statusOf(world.state);

  it('is taken over if its streams are declared alike, once no process has its configuration', async () => {
    const [alike, other, former] = [
      await start(FORMER, 'courses'),
      await start(FORMER, 'rooms'),
      await start(undefined, 'halls'),
    ];
    await work('f', FORMER);
    await adoptRuns(world.state.db, PRESENT);
    expect(await configurationOf(alike)).toBe('former');
    await world.sql`UPDATE slotsync.processes SET seen_at = now() - interval '31 seconds'`;
    await adoptRuns(world.state.db, PRESENT);
    expect(await configurationOf(alike)).toBe('present');
    expect(await configurationOf(other)).toBe('former');
    expect(await configurationOf(former)).toBe('present');
  });

  it('is replaced by another run over its streams, once no process has its configuration', async () => {
    const former = await start(FORMER, 'rooms');
    await work('f', FORMER);
    expect(await start(PRESENT, 'rooms')).toBe(former);
    await world.sql`DELETE FROM slotsync.processes`;
    expect(await start(FORMER, 'rooms')).toBe(former);

    const request = { kind: 'sync', lane: 'sync', startedBy: 'schedule', streams: ['rooms'] } as const;
    const { run, busy } = await startFreeRun(world.state.db, { ...request, fingerprints: PRESENT });
    expect(busy).toEqual([]);
    expect(run).toMatchObject({ configuration: 'present', fingerprints: { rooms: 'b' } });
    expect(await readRun(world.state.db, former)).toMatchObject({
      status: 'cancelled',
      errorCode: 'configuration_changed',
    });
  });

  it('is not replaced while it is paused', async () => {
    const former = await start(FORMER, 'rooms');
    await setPaused(world.state.db, true, former);
    expect(await start(PRESENT, 'rooms')).toBe(former);
  });

  it('returns its keys if it is incremental, and is left to an operator otherwise', async () => {
    const { db } = world.state;
    const sync = await start(FORMER, 'rooms');
    await addChanges(db, 'rooms', ['A']);
    const taken = await takeChanges(db, ['rooms'], FORMER);
    await endLeftRuns(db, PRESENT, 'incremental');
    expect(await world.sql`SELECT id::int, status FROM slotsync.runs ORDER BY id`).toEqual([
      { id: sync, status: 'planning' },
      { id: (taken as { runId: number }).runId, status: 'cancelled' },
    ]);
    expect(await world.sql`SELECT local_key, run_id FROM slotsync.changes`).toEqual([
      { local_key: 'A', run_id: null },
    ]);
  });

  it('is shown by status with the process to restart, or with the way to replace the run', async () => {
    await work('f', FORMER, new Date(Date.now() - 72 * 3600 * 1000));
    const id = await start(PRESENT, 'rooms');
    const older = await status();
    expect(older).toContain(
      `Run ${id} (rooms) waits, because no running process has its configuration\n    → To continue: restart the worker`,
    );
    expect(older).toMatch(
      /worker on host-a, process 7, has another configuration \(rooms\), loaded .* \(3 d.* ago\): restart it/,
    );
    expect(older).toContain(`Run ${id} (rooms) waits`);

    await world.sql`UPDATE slotsync.processes SET configuration_loaded_at = now() + interval '1 minute'`;
    const newer = await status();
    expect(newer).toContain(`slotsync cancel ${id}, then slotsync sync`);
    expect(newer).not.toContain('restart');

    await work('p', PRESENT, new Date(Date.now() + 120_000));
    const both = await status();
    expect(both).not.toContain('waits, because no');
    expect(both).toContain('worker on host-a, process 7, has another configuration (rooms)');
  });
});

it('a run fails only the stream that the configuration does not know, and says so', async () => {
  const world = await open(rooms());
  await world.addRooms('A');
  const { run } = await world.sync('rooms', 'halls');
  expect(run).toMatchObject({
    status: 'partial',
    errorCode: 'configuration',
    errorMessage: 'halls: the stream was removed from the configuration',
    counts: { rooms: { synced: 1 } },
  });
  expect(world.nameOf('A')).toBe('Room A');
});

const CONTEXT = { lane: 'sync' } as const;
const MINUTE = 60 * 1000;

it('the check of names asks once for all types and once for all fields, again after an hour', async () => {
  const world = await open(roomsAndCourses());
  let now = 0;
  const nameCheck = createNameCheck(world.destination, () => now);
  const [rooms, courses] = [world.stream('rooms'), world.stream('courses')];
  const requests = async (...streams: (typeof rooms)[]) => {
    world.sandbox.clearArrivals();
    await nameCheck.requireKnownNames(streams, CONTEXT);
    return world.sandbox.arrivals().filter(({ path }) => !path.endsWith('/authenticate')).length;
  };
  expect(await requests(rooms)).toBe(2);
  expect(await requests(rooms, courses)).toBe(2);
  now += 59 * MINUTE;
  expect(await requests(rooms, courses)).toBe(0);
  now += 2 * MINUTE;
  expect(await requests(rooms, courses)).toBe(2);
});

it('the check of names asks again for names that the service did not know', async () => {
  const world = await open(roomsAndCourses(), { sandbox: { schema: { types: [], fields: [] } } });
  const nameCheck = createNameCheck(world.destination, () => 0);
  for (let attempt = 0; attempt < 2; attempt++) {
    world.sandbox.clearArrivals();
    const asking = nameCheck.requireKnownNames([world.stream('rooms')], CONTEXT);
    await expect(asking).rejects.toMatchObject({ code: 'configuration' });
    expect(world.sandbox.arrivals().length).toBeGreaterThan(0);
  }
});
