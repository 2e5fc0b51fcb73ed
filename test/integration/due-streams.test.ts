// Guarantees 3, 6, 11
// A stream is due until the plan of a whole sync has ended. A run over a part of the stream is no success of the stream, and
// leaves everything due that a whole sync has to do.
import { describe, expect, it } from 'vitest';
import { concerns, needsPerson } from '../../src/documents/concerns/concerns.js';
import { readSituation } from '../../src/situation/situation.js';
import { listFrozen, unfreezeStreams } from '../../src/state/freezes.js';
import { registerSchedule } from '../../src/state/schedules.js';
import { failRun } from '../../src/state/runs/end-run.js';
import { listStreams, markDue, readWholeSuccess } from '../../src/state/streams.js';
import { planRun } from '../../src/sync/plan/plan-run.js';
import { startDue, startScheduled } from '../../src/sync/run/start-due-syncs.js';
import { codes, FEW, keepRooms, rooms, roomsAndCourses, statusOf, type RoomWorld } from '../support/steps.js';

const open = keepRooms();
const FIVE = codes(5);

/** Opens a world in which five rooms were synced a day ago. */
async function openSynced(config = rooms({ retire: 'deactivate' })): Promise<RoomWorld> {
  const world = await open(config, { synced: FIVE });
  await world.nextDay();
  return world;
}
const concernsOf = async ({ state }: RoomWorld, streams = ['rooms']) =>
  concerns(await readSituation(state.db, { streams }));
/** Deletes the time of the stream's last success. */
const forgetSuccess = ({ sql }: RoomWorld) => sql`UPDATE slotsync.streams SET synced_at = NULL`;

/** Lets the nightly schedule come due. Returns the runs that a worker starts for it. */
async function passNight({ state, sql, deps }: RoomWorld) {
  await registerSchedule(state.db, 'nightly', { pattern: '* * * * *', timezone: 'UTC' });
  await sql`UPDATE slotsync.schedules SET registered_at = now() - interval '1 hour', last_due = NULL`;
  return startScheduled(deps());
}

describe('a stream that is due by its schedule', () => {
  it('stays due beside an unfinished backfill of one key, and is synced whole after it', async () => {
    const world = await openSynced();
    await forgetSuccess(world);
    const runId = await world.startRunOf({ kind: 'backfill', lane: 'backfill', range: { keys: ['r000'] } });
    await world.rename('r004', 'new');
    expect(await passNight(world)).toEqual([]);
    expect(await world.due()).toEqual({ rooms: 'schedule' });
    await world.work(runId);
    expect(await world.due()).toEqual({ rooms: 'schedule' });
    expect(await world.syncedAt()).toBeNull();
    expect(await readWholeSuccess(world.state.db, ['rooms'])).toBeNull();
    expect(await world.workDue()).toMatchObject([
      { run: { kind: 'sync', range: null, status: 'succeeded' } },
    ]);
    expect(world.nameOf('r004')).toBe('new');
    expect(await world.due()).toEqual({});
    expect(await world.syncedAt()).not.toBeNull();
    expect(await world.workDue()).toEqual([]);
  });

  it('stays due under an unfinished run, while the schedule starts the uncovered streams', async () => {
    const world = await openSynced(roomsAndCourses());
    await world.startRunOf({ kind: 'backfill', lane: 'backfill', range: { keys: ['r000'] } });
    expect(await passNight(world)).toMatchObject([{ streams: ['courses'] }]);
    expect(await world.due()).toMatchObject({ rooms: 'schedule' });
  });
});

it('a sync with --limit leaves its stream due, is no success, and ends no alert, unless it left nothing out', async () => {
  const world = await openSynced();
  await forgetSuccess(world);
  await world.rename('r000', 'new');
  await world.rename('r001', 'new');
  const { run } = await world.run({ range: { limit: 1 } });
  expect(run.counts).toMatchObject({ rooms: { synced: 1 } });
  expect(await world.due()).toEqual({ rooms: 'limited' });
  expect(await world.syncedAt()).toBeNull();
  expect(await statusOf(world.state)).not.toContain('Every record is in sync');
  await world.workDue();
  expect([world.nameOf('r000'), world.nameOf('r001')]).toEqual(['new', 'new']);
  expect(await world.due()).toEqual({});
  expect(await world.syncedAt()).not.toBeNull();
  // It leaves nothing due if it left nothing out, and retires nothing.
  await world.rename('r000', 'newer');
  await world.remove('r001');
  await world.run({ range: { limit: 10 } });
  expect(await world.due()).toEqual({});
  expect(world.isActive('room_r001')).toBe(true);
});

describe('the end of a freeze', () => {
  it('leaves a longer freeze of one stream in force if it was of all streams', async () => {
    const world = await openSynced();
    await world.freeze(['rooms'], 100);
    await world.freeze(null, 1);
    await world.passFreezes(2);
    expect(await listFrozen(world.state.db, ['rooms', 'courses'])).toMatchObject([{ stream: 'rooms' }]);
    await world.rename('r000', 'new');
    await world.sync();
    expect(world.writes()).toEqual([]);
    expect(await world.workDue()).toEqual([]);
    // The end of one stream's freezes leaves the others in force.
    await world.freeze(null);
    expect(await unfreezeStreams(world.state.db, ['rooms'])).toEqual(['rooms']);
    expect(await listFrozen(world.state.db, ['rooms', 'courses'])).toMatchObject([{ stream: 'courses' }]);
  });

  it('plans what the nightly run held, whatever run over a part came later', async () => {
    const world = await openSynced();
    const parts: Record<string, () => Promise<unknown>> = {
      'a backfill of one key': () => world.backfill({ keys: ['r004'] }),
      'an incremental run': () => world.push('rooms', 'r004'),
      'a cancelled backfill': async () =>
        world.cancel(
          await world.startRunOf({ kind: 'backfill', lane: 'backfill', range: { keys: ['r000'] } }),
        ),
      'a sync with --limit': () => world.run({ range: { limit: 1 } }),
      'a repair': () => world.repair(),
      'a verify': () => world.verify(),
    };
    for (const [name, part] of Object.entries(parts)) {
      await world.freeze();
      await world.renameAll(name);
      expect((await world.sync()).run.status).toBe('held');
      expect(await world.held()).toEqual(FIVE);
      await world.passFreezes();
      await part();
      expect([name, await world.due()]).toEqual([name, { rooms: 'frozen' }]);
      await world.forgetFinishedRuns();
      await world.workDue();
      expect(world.namesOf(FIVE)).toEqual(FIVE.map(() => name));
      expect([await world.gates(), await world.due()]).toEqual([[], {}]);
    }
  });

  it('repairs what a repair held during the freeze', async () => {
    const world = await openSynced();
    await world.passHour();
    world.edit('room_r000', { 'room.name': 'by hand' });
    await world.verify();
    await world.freeze();
    await world.run({ kind: 'repair', lane: 'verify' });
    expect(world.nameOf('r000')).toBe('by hand');
    await world.passFreezes();
    await world.backfill({ keys: ['r001'] });
    await world.workDue();
    expect(world.nameOf('r000')).toBe('Room r000');
  });
});

describe('a whole sync that is still due', () => {
  it.each([
    ['waits for its schedule or a command when it was cancelled', 'cancelled', 0],
    ['is tried again when it failed', 'failed', 1],
  ] as const)('%s', async (_, reason, runs) => {
    const world = await openSynced();
    await world.rename('r000', 'new');
    const { runId } = await world.plan();
    await (reason === 'failed'
      ? failRun(world.state.db, runId, { code: 'unexpected', message: 'no' })
      : world.cancel(runId));
    expect(await world.due()).toEqual({ rooms: reason });
    expect(await startDue(world.deps())).toHaveLength(runs);
  });

  it('is not started over and over while the source cannot be read', async () => {
    const world = await openSynced();
    await world.renameAll('newer');
    await world.run({ range: { limit: 1 } });
    await world.sql`ALTER TABLE rooms RENAME TO elsewhere`;
    expect(await world.workDue()).toMatchObject([{ run: { status: 'failed' } }]);
    expect(await world.workDue()).toEqual([]);
    await world.sql`ALTER TABLE elsewhere RENAME TO rooms`;
    await world.sql`UPDATE slotsync.streams SET attempted_at = attempted_at - interval '2 hours'`;
    await world.workDue();
    expect(world.namesOf(FIVE)).toEqual(FIVE.map(() => 'newer'));
  });
});

describe('the plan of a whole sync', () => {
  it('leaves a stream due that was marked during the plan, even if it was due already', async () => {
    const world = await openSynced();
    for (const name of ['late', 'later']) {
      const runId = await world.startRun();
      const deps = world.deps();
      /** Called between the reading of the mirror and the end of the plan. */
      async function requireKnownNames(): Promise<void> {
        await world.rename('r003', name);
        await markDue(world.state.db, ['rooms'], 'busy');
      }
      await planRun({ ...deps, nameCheck: { ...deps.nameCheck, requireKnownNames } }, runId);
      expect(Object.keys(await world.due())).toEqual(['rooms']);
      await world.workDue();
      expect([world.nameOf('r003'), await world.due()]).toEqual([name, {}]);
      await markDue(world.state.db, ['rooms'], 'limited');
    }
  });

  it('keeps held what an incremental run held during the plan', async () => {
    const world = await openSynced(rooms({ limits: { update: FEW } }));
    const three = codes(3);
    for (const code of three) await world.rename(code, 'new');
    await world.sync();
    const runId = await world.startRun();
    const deps = world.deps();
    async function requireKnownNames(): Promise<void> {
      await world.rename('r004', 'late');
      await world.push('rooms', 'r004');
    }
    await planRun({ ...deps, nameCheck: { ...deps.nameCheck, requireKnownNames } }, runId);
    expect(await world.held()).toEqual([...three, 'r004']);
    expect(await world.gates()).toEqual(['rooms update limit 4']);
  });
});

it('the problem of a stream that cannot be read needs a person until a whole run has read the stream', async () => {
  const world = await openSynced();
  await world.sql`ALTER TABLE rooms RENAME TO elsewhere`;
  await world.push('rooms', ...FIVE);
  const code = expect.stringMatching(/^mirror_/) as string;
  expect((await listStreams(world.state.db))[0]?.problem).toMatchObject({ status: 'failed', code });
  expect((await concernsOf(world)).some(needsPerson)).toBe(true);
  await world.forgetFinishedRuns();
  expect((await concernsOf(world)).some(needsPerson)).toBe(true);
  expect(await statusOf(world.state)).not.toMatch(/^All well/);

  await world.sql`ALTER TABLE elsewhere RENAME TO rooms`;
  await world.sync();
  expect((await listStreams(world.state.db))[0]?.problem).toBeNull();
  expect((await concernsOf(world)).filter(needsPerson)).toEqual([]);
  // A problem that a whole run has found is not ended by a run over a part of the stream.
  await world.sql`ALTER TABLE rooms RENAME TO elsewhere`;
  await world.sync();
  await world.sql`ALTER TABLE elsewhere RENAME TO rooms`;
  await world.backfill({ keys: ['r000'] });
  expect((await listStreams(world.state.db))[0]?.problem).toMatchObject({ isWhole: true });
  await world.workDue();
  await world.sync();
  expect((await listStreams(world.state.db))[0]?.problem).toBeNull();
});
