// Guarantees 3, 6, 11
// A stream is due until the plan of a whole sync has ended. A run over a part of the stream is no success of the stream, and
// leaves everything due that a whole sync has to do.
import { describe, expect, it } from 'vitest';
import { concerns, needsPerson } from '../../src/documents/concerns/concerns.js';
import { readSituation } from '../../src/situation/situation.js';
import { listFrozen, unfreezeStreams } from '../../src/state/freezes.js';
import { addChanges } from '../../src/state/inbox/add-changes.js';
import { registerSchedule } from '../../src/state/schedules.js';
import { cancelRun, failRun } from '../../src/state/runs/end-run.js';
import { listStreams, markDue, readWholeSuccess } from '../../src/state/streams.js';
import { planRun } from '../../src/sync/plan/plan-run.js';
import { startDue, startScheduled } from '../../src/sync/run/start-due-syncs.js';
import { verify } from '../../src/sync/verify/verify.js';
import {
  backfill,
  deleteFinishedRuns,
  dueOf,
  FEW,
  freeze,
  gatesOf,
  heldOf,
  nextDay,
  passFreezes,
  runOf,
  startRunOf,
  syncedAt,
  work,
  workDue,
} from '../support/gated-rooms.js';
import { rehearse } from '../support/rehearsal.js';
import {
  addRooms,
  codes,
  isActive,
  keepRoomWorlds,
  nameAtService,
  rename,
  rooms,
  roomsAndCourses,
} from '../support/room-worlds.js';
import { statusOf } from '../support/status.js';
import type { World } from '../support/world.js';

const open = keepRoomWorlds();
const FIVE = codes(5);

/** Opens a world in which five rooms were synced a day ago. */
async function openSynced(config = rooms({ retire: 'deactivate' })): Promise<World> {
  const world = await open(config);
  await addRooms(world, ...FIVE);
  await world.sync();
  await nextDay(world);
  world.sandbox.clearArrivals();
  return world;
}
const concernsOf = async ({ state }: World, streams = ['rooms']) =>
  concerns(await readSituation(state.db, { streams }));
/** Deletes the time of the stream's last success. */
const forgetSuccess = ({ sql }: World) => sql`UPDATE slotsync.streams SET synced_at = NULL`;

/** Lets the nightly schedule come due. Returns the runs that a worker starts for it. */
async function passNight({ state, sql, deps }: World) {
  await registerSchedule(state.db, 'nightly', { pattern: '* * * * *', timezone: 'UTC' });
  await sql`UPDATE slotsync.schedules SET registered_at = now() - interval '1 hour', last_due = NULL`;
  return startScheduled(deps());
}

describe('a stream that is due by its schedule', () => {
  it('stays due beside an unfinished backfill of one key, and is synced whole after it', async () => {
    const world = await openSynced();
    await forgetSuccess(world);
    const runId = await startRunOf(world, { kind: 'backfill', lane: 'backfill', range: { keys: ['r000'] } });
    await rename(world, 'r004', 'new');
    expect(await passNight(world)).toEqual([]);
    expect(await dueOf(world)).toEqual({ rooms: 'schedule' });
    await work(world, runId);
    expect(await dueOf(world)).toEqual({ rooms: 'schedule' });
    expect(await syncedAt(world)).toBeNull();
    expect(await readWholeSuccess(world.state.db, ['rooms'])).toBeNull();
    expect(await workDue(world)).toMatchObject([{ run: { kind: 'sync', range: null, status: 'succeeded' } }]);
    expect(nameAtService(world, 'r004')).toBe('new');
    expect(await dueOf(world)).toEqual({});
    expect(await syncedAt(world)).not.toBeNull();
    expect(await workDue(world)).toEqual([]);
  });

  it('stays due under an unfinished run, while the schedule starts the uncovered streams', async () => {
    const world = await openSynced(roomsAndCourses());
    await startRunOf(world, { kind: 'backfill', lane: 'backfill', range: { keys: ['r000'] } });
    expect(await passNight(world)).toMatchObject([{ streams: ['courses'] }]);
    expect(await dueOf(world)).toMatchObject({ rooms: 'schedule' });
  });
});

describe('a sync with --limit', () => {
  it('leaves its stream due, is no success, and ends no alert', async () => {
    const world = await openSynced();
    await forgetSuccess(world);
    await rename(world, 'r000', 'new');
    await rename(world, 'r001', 'new');
    const { run } = await runOf(world, { range: { limit: 1 } });
    expect(run.counts).toMatchObject({ rooms: { synced: 1 } });
    expect(await dueOf(world)).toEqual({ rooms: 'limited' });
    expect(await syncedAt(world)).toBeNull();
    expect(await statusOf(world.state)).not.toContain('Every record is in sync');
    await workDue(world);
    expect([nameAtService(world, 'r000'), nameAtService(world, 'r001')]).toEqual(['new', 'new']);
    expect(await dueOf(world)).toEqual({});
    expect(await syncedAt(world)).not.toBeNull();
  });

  it('leaves nothing due if it left nothing out, and retires nothing', async () => {
    const world = await openSynced();
    await rename(world, 'r000', 'new');
    await world.sql`DELETE FROM rooms WHERE code = 'r001'`;
    await runOf(world, { range: { limit: 10 } });
    expect(await dueOf(world)).toEqual({});
    expect(isActive(world, 'room_r001')).toBe(true);
  });
});

describe('the end of a freeze', () => {
  it('leaves a longer freeze of one stream in force if it was of all streams', async () => {
    const world = await openSynced();
    await freeze(world, ['rooms'], 100);
    await freeze(world, null, 1);
    await passFreezes(world, 2);
    expect(await listFrozen(world.state.db, ['rooms', 'courses'])).toMatchObject([{ stream: 'rooms' }]);
    await rename(world, 'r000', 'new');
    await world.sync();
    expect(world.writes()).toEqual([]);
    expect(await workDue(world)).toEqual([]);
  });

  it('leaves the freeze of all other streams in force after unfreeze of one stream', async () => {
    const world = await openSynced();
    await freeze(world, null);
    expect(await unfreezeStreams(world.state.db, ['rooms'])).toEqual(['rooms']);
    expect(await listFrozen(world.state.db, ['rooms', 'courses'])).toMatchObject([{ stream: 'courses' }]);
  });

  it.each<[string, (world: World) => Promise<unknown>]>([
    ['a backfill of one key', (world) => backfill(world, { keys: ['r004'] })],
    [
      'an incremental run',
      (world) => addChanges(world.state.db, 'rooms', ['r004']).then(() => world.drainInbox()),
    ],
    ['a sync with --limit', (world) => runOf(world, { range: { limit: 1 } })],
    ['a repair', (world) => runOf(world, { kind: 'repair', lane: 'verify' })],
    ['a verify', (world) => verify(world.verifying())],
  ])('plans what the nightly run held, although %s came later', async (_, part) => {
    const world = await openSynced();
    await freeze(world);
    for (const code of FIVE) await rename(world, code, 'new');
    const { run } = await world.sync();
    expect(run.status).toBe('held');
    expect(await heldOf(world)).toEqual(FIVE);
    await passFreezes(world);
    await part(world);
    expect(await dueOf(world)).toEqual({ rooms: 'frozen' });
    await deleteFinishedRuns(world);
    await workDue(world);
    expect(FIVE.map((code) => nameAtService(world, code))).toEqual(FIVE.map(() => 'new'));
    expect([await gatesOf(world), await dueOf(world)]).toEqual([[], {}]);
  });

  it('repairs what a repair held during the freeze', async () => {
    const world = await openSynced();
    await world.sql`UPDATE slotsync.records SET updated_at = now() - interval '1 hour'`;
    world.sandbox.changeObject('room_r000', { fields: [{ fieldId: 'room.name', values: ['by hand'] }] });
    await verify(world.verifying());
    await freeze(world);
    await runOf(world, { kind: 'repair', lane: 'verify' });
    expect(nameAtService(world, 'r000')).toBe('by hand');
    await passFreezes(world);
    await backfill(world, { keys: ['r001'] });
    await workDue(world);
    expect(nameAtService(world, 'r000')).toBe('Room r000');
  });
});

describe('a whole sync that is still due', () => {
  it.each([
    ['waits for its schedule or a command when it was cancelled', cancelRun, 'cancelled', 0],
    [
      'is tried again when it failed',
      (db: World['state']['db'], id: number) => failRun(db, id, { code: 'unexpected', message: 'no' }),
      'failed',
      1,
    ],
  ] as const)('%s', async (_, end, reason, runs) => {
    const world = await openSynced();
    await rename(world, 'r000', 'new');
    const { runId } = await world.plan();
    await end(world.state.db, runId);
    expect(await dueOf(world)).toEqual({ rooms: reason });
    expect(await startDue(world.deps())).toHaveLength(runs);
  });

  it('is started although a backfill of one key was cancelled', async () => {
    const world = await openSynced();
    await freeze(world);
    await rename(world, 'r001', 'new');
    await world.sync();
    await passFreezes(world);
    await cancelRun(
      world.state.db,
      await startRunOf(world, { kind: 'backfill', lane: 'backfill', range: { keys: ['r000'] } }),
    );
    await workDue(world);
    expect(nameAtService(world, 'r001')).toBe('new');
    expect(await dueOf(world)).toEqual({});
  });

  it('is not started over and over while the source cannot be read', async () => {
    const world = await openSynced();
    await world.sql`UPDATE rooms SET name = 'newer'`;
    await runOf(world, { range: { limit: 1 } });
    await world.sql`ALTER TABLE rooms RENAME TO elsewhere`;
    expect(await workDue(world)).toMatchObject([{ run: { status: 'failed' } }]);
    expect(await workDue(world)).toEqual([]);
    await world.sql`ALTER TABLE elsewhere RENAME TO rooms`;
    await world.sql`UPDATE slotsync.streams SET attempted_at = attempted_at - interval '2 hours'`;
    await workDue(world);
    expect(FIVE.map((code) => nameAtService(world, code))).toEqual(FIVE.map(() => 'newer'));
  });
});

describe('the plan of a whole sync', () => {
  it.each([
    ['a stream that was not due', async () => undefined],
    ['a stream that was due already', (world: World) => markDue(world.state.db, ['rooms'], 'limited')],
  ])('leaves %s due after it was marked during the plan', async (_, prepare) => {
    const world = await openSynced();
    await prepare(world);
    const runId = await world.startRun();
    const deps = world.deps();
    /** Called between the reading of the mirror and the end of the plan. */
    async function requireKnownNames(): Promise<void> {
      await rename(world, 'r003', 'late');
      await markDue(world.state.db, ['rooms'], 'busy');
    }
    await planRun({ ...deps, nameCheck: { ...deps.nameCheck, requireKnownNames } }, runId);
    expect(Object.keys(await dueOf(world))).toEqual(['rooms']);
    await workDue(world);
    expect(nameAtService(world, 'r003')).toBe('late');
    expect(await dueOf(world)).toEqual({});
  });

  it('keeps held what an incremental run held during the plan', async () => {
    const world = await openSynced(rooms({ limits: { update: FEW } }));
    const three = codes(3);
    for (const code of three) await rename(world, code, 'new');
    await world.sync();
    const runId = await world.startRun();
    const deps = world.deps();
    async function requireKnownNames(): Promise<void> {
      await rename(world, 'r004', 'late');
      await addChanges(world.state.db, 'rooms', ['r004']);
      await world.drainInbox();
    }
    await planRun({ ...deps, nameCheck: { ...deps.nameCheck, requireKnownNames } }, runId);
    expect(await heldOf(world)).toEqual([...three, 'r004']);
    expect(await gatesOf(world)).toEqual(['rooms update limit 4']);
  });
});

describe('the problem of a stream that cannot be read', () => {
  it('needs a person until a whole run has read the stream', async () => {
    const world = await openSynced();
    await world.sql`ALTER TABLE rooms RENAME TO elsewhere`;
    await addChanges(world.state.db, 'rooms', FIVE);
    await world.drainInbox();
    const [stream] = await listStreams(world.state.db);
    expect(stream?.problem).toMatchObject({
      status: 'failed',
      code: expect.stringMatching(/^mirror_/) as string,
    });
    expect((await concernsOf(world)).some(needsPerson)).toBe(true);
    await deleteFinishedRuns(world);
    expect((await concernsOf(world)).some(needsPerson)).toBe(true);
    expect(await statusOf(world.state)).not.toMatch(/^All well/);

    await world.sql`ALTER TABLE elsewhere RENAME TO rooms`;
    await world.sync();
    expect((await listStreams(world.state.db))[0]?.problem).toBeNull();
    expect((await concernsOf(world)).filter(needsPerson)).toEqual([]);
  });

  it('is not ended by a run over a part of the stream if a whole run has found it', async () => {
    const world = await openSynced();
    await world.sql`ALTER TABLE rooms RENAME TO elsewhere`;
    await world.sync();
    await world.sql`ALTER TABLE elsewhere RENAME TO rooms`;
    await backfill(world, { keys: ['r000'] });
    expect((await listStreams(world.state.db))[0]?.problem).toMatchObject({ isWhole: true });
    await workDue(world);
    await world.sync();
    expect((await listStreams(world.state.db))[0]?.problem).toBeNull();
  });
});

describe('sync --detach beside a detached backfill of one key', () => {
  it('makes the streams due and says so, and a worker syncs them', async () => {
    const installation = await rehearse({ rows: 3, sandbox: { rate: 0 } });
    const { run, sql, sandbox } = installation;
    try {
      await run(['sync']);
      await run(['backfill', 'rooms', '--keys', 'R1', '--detach']);
      await sql`UPDATE rooms SET name = 'new'`;
      const { code, stdout } = await run(['sync', '--detach']);
      expect(code).toBe(0);
      expect(stdout).toMatch(
        /^Run 2 over the same streams is unfinished\. .*rooms.* are due: a worker starts the sync/,
      );
      const due =
        await sql`SELECT stream, due_reason FROM slotsync.streams WHERE due_since IS NOT NULL ORDER BY stream`;
      expect(due).toMatchObject([
        { stream: 'courses', due_reason: 'busy' },
        { stream: 'rooms', due_reason: 'busy' },
      ]);
      expect((await run(['status', '--full'])).stdout).toMatch(/due/);
      await run(['sync']);
      expect(sandbox.object('room_R3')?.fields).toContainEqual({ fieldId: 'room.name', values: ['new'] });
      expect(await sql`SELECT FROM slotsync.streams WHERE due_since IS NOT NULL`).toHaveLength(0);
    } finally {
      await installation.close();
    }
  });
});
