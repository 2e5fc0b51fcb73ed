// Guarantees 6, 11
// The two answers of an operator to a closed gate: each counts once, for the keys that were shown, and ends with its run.
// Answers to a changed gate and to a stream that left the configuration are refused.
import { describe, expect, it } from 'vitest';
import { approveGates } from '../../src/state/gates/answers.js';
import { readGates } from '../../src/state/gates/gates.js';
import { listFrozen, registerFreezes, unfreezeStreams } from '../../src/state/freezes.js';
import { approve } from '../../src/sync/operator/approve.js';
import {
  codes,
  COURSES,
  keepSyncedRooms,
  LIMITED,
  OPERATOR,
  ROOMS,
  rooms,
  roomsAndCourses,
  statusOf,
  type Declaration,
  type RoomWorld,
} from '../support/steps.js';

const open = keepSyncedRooms();
const three = codes(3);
const HOUR = 60 * 60 * 1000;
const inHours = (hours: number) => new Date(Date.now() + hours * HOUR);

const openSynced = (changes: Partial<Declaration> = LIMITED, config = rooms(changes)) => open(config);
/** Opens a world in which run 2 holds updates of three rooms. */
async function openHeld(
  changes?: Partial<Declaration>,
  config?: ReturnType<typeof rooms>,
): Promise<RoomWorld> {
  const world = await openSynced(changes, config);
  await world.renameAll('new', three);
  expect((await world.sync()).run).toMatchObject({ id: 2, status: 'held' });
  return world;
}
const restore = (world: RoomWorld) => world.sql`UPDATE rooms SET name = 'Room ' || code`;
const FORMER = three.map((code) => `Room ${code}`);
const NEW = three.map(() => 'new');
const approveOf = (world: RoomWorld, choice = {}) => approve(world.approving(), { runId: 2, ...choice });

describe('an answer to a gate that has changed', () => {
  it.each<[string, (world: RoomWorld) => Promise<unknown>]>([
    ['the held rows are as they were accepted', async (world) => [await restore(world), await world.sync()]],
    ['the held keys were approved and sent', (world) => world.approve(2)],
  ])('is refused when %s', async (_, change) => {
    const world = await openHeld();
    await change(world);
    expect(await world.gates()).toEqual([]);
    const opened = /records that run 2 held of rooms have been sent or planned again since/;
    await expect(approveOf(world)).rejects.toThrow(opened);
    await expect(world.reject(2)).rejects.toThrow(opened);
    expect(await world.sql`SELECT FROM slotsync.runs WHERE finished_at IS NULL`).toHaveLength(0);
  });

  it.each<[string, (world: RoomWorld) => Promise<unknown>]>([
    ['opened', async (world) => [await restore(world), await world.sync()]],
    ['got other keys', async (world) => [await world.rename('r003', 'new'), await world.sync()]],
    ['was approved', (world) => approveOf(world)],
  ])('is refused without effect when the gate %s after it was shown', async (_, change) => {
    const world = await openHeld();
    const shown = await readGates(world.state.db);
    await change(world);
    const before = await world.gates();
    const given = { actor: OPERATOR, runId: 9, exactly: false, hours: 24 };
    await expect(approveGates(world.state.db, shown, given)).rejects.toThrow(
      'update of rooms has been answered, or holds other records, since it was shown; nothing was changed',
    );
    expect(await world.gates()).toEqual(before);
  });
});

describe('an approval', () => {
  it('lets nothing through when it has expired, and sends exactly the held keys when it is given again', async () => {
    const world = await openHeld();
    await expect(approveOf(world, { shown: 2 })).rejects.toThrow(
      'run 2 holds 3 now, not 2; nothing was approved',
    );
    const { run } = await approveOf(world);
    await world.sql`UPDATE slotsync.gates SET expires_at = now()`;
    expect((await world.work(run.id)).run.status).toBe('held');
    expect(await world.gates()).toEqual(['rooms update limit 3']);
    await world.rename('r000', 'newer');
    expect((await world.approve(run.id, { exactly: true })).run.status).toBe('succeeded');
    expect(world.namesOf(three)).toEqual(['newer', 'new', 'new']);
  });

  it('sends its own operation, in whatever order operations are approved', async () => {
    for (const order of [
      ['create', 'update'],
      ['update', 'create'],
    ]) {
      const world = await openSynced();
      await world.renameAll('new', three);
      await world.addRooms('x1', 'x2', 'x3');
      let { run } = await world.sync();
      for (const operation of order) {
        const former = Object.keys(run.holds['rooms'] ?? {});
        ({ run } = await world.approve(run.id, { operation }));
        expect(Object.keys(run.holds['rooms'] ?? {})).toEqual(former.filter((held) => held !== operation));
      }
      expect(run.status).toBe('succeeded');
      expect(world.namesOf([...three, 'x1'])).toEqual([...NEW, 'Room x1']);
    }
  });
});

describe('a gate during a freeze', () => {
  /** Twenty rooms, frozen for an hour, in which a sync plans them; then what a worker does after the hour. */
  async function passFreeze(world: RoomWorld, plan: () => Promise<unknown>): Promise<void> {
    await world.freeze(['rooms'], 1);
    await plan();
    expect(world.writes()).toEqual([]);
    await world.passFreezes(2);
    await world.workDue();
  }

  it('keeps its rejection for the same keys after the freeze', async () => {
    const world = await openHeld();
    await world.reject(2);
    await world.rename('r010', 'new');
    await passFreeze(world, () => world.sync());
    expect(await world.gates()).toEqual(['rooms update limit 4']);
    const [gate] = await readGates(world.state.db);
    await world.reject(gate?.runId ?? 0);
    await passFreeze(world, () => world.sync());
    expect(await world.gates()).toEqual(['rooms update limit 4 rejected']);
  });

  it('keeps an approval whose run was planned during the freeze', async () => {
    const world = await openHeld();
    const { run } = await approveOf(world);
    await passFreeze(world, () => world.work(run.id));
    expect(world.namesOf(three)).toEqual(NEW);
    expect(await world.gates()).toEqual([]);
  });

  it('holds no key twice, and its keys are sent or held after the freeze', async () => {
    const world = await openHeld();
    await world.addRooms('x1');
    await passFreeze(world, async () => {
      await world.sync();
      expect(await world.gates()).toEqual(['rooms * frozen 1', 'rooms update limit 3']);
      await restore(world);
      await world.sync();
    });
    expect(await world.gates()).toEqual([]);
    expect(world.namesOf(['x1', ...three])).toEqual(['Room x1', ...FORMER]);
  });
});

describe('a freeze of the configuration', () => {
  const declared = (from: number, to: number, reason = 'exams') => ({
    stream: 'rooms',
    beginsAt: inHours(from),
    endsAt: inHours(to),
    reason,
  });

  it('freezes the stream from its begin to the end of the last of several freezes', async () => {
    const world = await openSynced({});
    const { db } = world.state;
    await registerFreezes(db, [declared(-100, -1), declared(1, 2)]);
    expect(await listFrozen(db, ['rooms'])).toEqual([]);
    await registerFreezes(db, [declared(-1, 4, 'long'), declared(-1, 2, 'short'), declared(-1, 2, 'short')]);
    await world.freeze(['rooms'], 1);
    await world.freeze(['rooms'], 1);
    expect(await world.sql`SELECT FROM slotsync.freezes WHERE is_declared`).toHaveLength(2);
    expect(await listFrozen(db, ['rooms'])).toMatchObject([{ reason: 'long' }]);
    await world.passFreezes(3);
    expect(await listFrozen(db, ['rooms'])).toMatchObject([{ reason: 'long' }]);
    await world.renameAll('new', three);
    await world.sync();
    expect(world.writes()).toEqual([]);
    await world.passFreezes(2);
    await world.workDue();
    expect(world.namesOf(three)).toEqual(NEW);
  });
});

describe('a stream that left the configuration', () => {
  const limited = { streams: { courses: COURSES, rooms: { ...ROOMS, ...LIMITED } } };
  const withoutRooms = { streams: { courses: { ...COURSES, references: {} } } };

  it('gets no approval while keys are held, and holds the keys when it comes back', async () => {
    const world = await openHeld({}, limited);
    await world.sql`INSERT INTO courses VALUES ('C', 'Course', NULL)`;
    world.configure(withoutRooms);
    await expect(approveOf(world)).rejects.toMatchObject({
      message: 'rooms is not in the configuration, so nothing of it is sent',
      remedy: expect.stringContaining('slotsync rename-stream rooms <new>') as string,
    });
    expect((await world.sync()).run).toMatchObject({ streams: ['courses'], status: 'succeeded' });
    expect(await world.gates()).toEqual(['rooms update limit 3']);
    await world.reject(2);
    expect(await world.gates()).toEqual(['rooms update limit 3 rejected']);
    world.configure(limited);
    await world.sync();
    expect(await world.held()).toEqual(three);
    expect(world.namesOf(three)).toEqual(FORMER);
  });

  it('can be unfrozen; no run is started for it while it is due, and status does not show it', async () => {
    const world = await openSynced({}, limited);
    await world.freeze();
    await world.renameAll('new', three);
    await world.sync();
    world.configure(withoutRooms);
    expect(await unfreezeStreams(world.state.db, ['rooms'])).toEqual(['rooms']);
    expect(await world.workDue()).toEqual([]);
    expect(await world.due()).toEqual({ rooms: 'frozen' });
    expect(await statusOf(world.state, ['courses'])).not.toContain('rooms is due');
    world.configure(roomsAndCourses());
    expect(await world.workDue()).toHaveLength(1);
    expect(world.namesOf(three)).toEqual(NEW);
  });
});
