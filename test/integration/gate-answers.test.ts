// Guarantees 6, 11
// The two answers of an operator to a closed gate: each counts once, for the keys that were shown, and ends with its run.
// Answers to a changed gate and to a stream that left the configuration are refused.
import { describe, expect, it } from 'vitest';
import { approveGates } from '../../src/state/gates/answers.js';
import { readGates } from '../../src/state/gates/gates.js';
import { listFrozen, registerFreezes, unfreezeStreams } from '../../src/state/freezes.js';
import { approve } from '../../src/sync/operator/approve.js';
import type { Declaration } from '../support/campus.js';
import {
  dueOf,
  freeze,
  gatesOf,
  heldOf,
  keepSyncedRooms,
  LIMITED,
  namesOf,
  passFreezes,
  reject,
  renameAll,
  runOf,
  work,
  workDue,
} from '../support/gated-rooms.js';
import { OPERATOR } from '../support/operator.js';
import { addRooms, codes, rename, roomsAndCourses, rooms } from '../support/room-worlds.js';
import { statusOf } from '../support/status.js';
import type { World } from '../support/world.js';

const open = keepSyncedRooms();
const three = codes(3);
const HOUR = 60 * 60 * 1000;
const inHours = (hours: number) => new Date(Date.now() + hours * HOUR);

const openSynced = (changes: Partial<Declaration> = LIMITED, config = rooms(changes)) => open(config);
/** Opens a world in which run 2 holds updates of three rooms. */
async function openHeld(changes?: Partial<Declaration>, config?: ReturnType<typeof rooms>): Promise<World> {
  const world = await openSynced(changes, config);
  await renameAll(world, three, 'new');
  expect((await world.sync()).run).toMatchObject({ id: 2, status: 'held' });
  return world;
}
const restore = (world: World) => world.sql`UPDATE rooms SET name = 'Room ' || code`;
const FORMER = three.map((code) => `Room ${code}`);
const NEW = three.map(() => 'new');
const approveOf = (world: World, choice = {}) => approve(world.approving(), { runId: 2, ...choice });

describe('an answer to a gate that has changed', () => {
  it.each<[string, (world: World) => Promise<unknown>]>([
    ['the held rows are as they were accepted', async (world) => [await restore(world), await world.sync()]],
    ['the held keys were approved and sent', (world) => world.approve(2)],
  ])('is refused when %s', async (_, change) => {
    const world = await openHeld();
    await change(world);
    expect(await gatesOf(world)).toEqual([]);
    const opened = /records that run 2 held of rooms have been sent or planned again since/;
    await expect(approveOf(world)).rejects.toThrow(opened);
    await expect(reject(world, 2)).rejects.toThrow(opened);
    expect(await world.sql`SELECT FROM slotsync.runs WHERE finished_at IS NULL`).toHaveLength(0);
  });

  it.each<[string, (world: World) => Promise<unknown>]>([
    ['opened', async (world) => [await restore(world), await world.sync()]],
    ['got other keys', async (world) => [await rename(world, 'r003', 'new'), await world.sync()]],
    ['was approved', (world) => approveOf(world)],
  ])('is refused without effect when the gate %s after it was shown', async (_, change) => {
    const world = await openHeld();
    const shown = await readGates(world.state.db);
    await change(world);
    const before = await gatesOf(world);
    const given = { actor: OPERATOR, runId: 9, exactly: false, hours: 24 };
    await expect(approveGates(world.state.db, shown, given)).rejects.toThrow(
      'update of rooms has been answered, or holds other records, since it was shown; nothing was changed',
    );
    expect(await gatesOf(world)).toEqual(before);
  });
});

describe('an approval of exactly the held keys', () => {
  it('sends the keys with the rows as they are then', async () => {
    const world = await openHeld();
    await rename(world, 'r000', 'newer');
    expect((await world.approve(2, { exactly: true })).run.status).toBe('succeeded');
    expect(namesOf(world, three)).toEqual(['newer', 'new', 'new']);
  });
});

describe('an approval', () => {
  it('is refused if the gate holds another number than was shown', async () => {
    const world = await openHeld();
    await expect(approveOf(world, { shown: 2 })).rejects.toThrow(
      'run 2 holds 3 now, not 2; nothing was approved',
    );
  });

  it('lets nothing through when it has expired, and may be given again', async () => {
    const world = await openHeld();
    const { run } = await approveOf(world);
    await world.sql`UPDATE slotsync.gates SET expires_at = now()`;
    expect((await work(world, run.id)).run.status).toBe('held');
    expect(await gatesOf(world)).toEqual(['rooms update limit 3']);
    await world.approve(run.id);
    expect(namesOf(world, three)).toEqual(NEW);
  });

  it('sends its own operation, in whatever order operations are approved', async () => {
    for (const order of [
      ['create', 'update'],
      ['update', 'create'],
    ]) {
      const world = await openSynced();
      await renameAll(world, three, 'new');
      await addRooms(world, 'x1', 'x2', 'x3');
      let { run } = await world.sync();
      for (const operation of order) ({ run } = await world.approve(run.id, { operation }));
      expect(run.status).toBe('succeeded');
      expect(namesOf(world, [...three, 'x1'])).toEqual([...NEW, 'Room x1']);
    }
  });
});

describe('a gate during a freeze', () => {
  /** Twenty rooms, frozen for an hour, in which a sync plans them; then what a worker does after the hour. */
  async function passFreeze(world: World, plan: () => Promise<unknown>): Promise<void> {
    await freeze(world, ['rooms'], 1);
    await plan();
    expect(world.writes()).toEqual([]);
    await passFreezes(world, 2);
    await workDue(world);
  }

  it('keeps its rejection for the same keys after the freeze', async () => {
    const world = await openHeld();
    await reject(world, 2);
    await rename(world, 'r010', 'new');
    await passFreeze(world, () => world.sync());
    expect(await gatesOf(world)).toEqual(['rooms update limit 4']);
    const [gate] = await readGates(world.state.db);
    await reject(world, gate?.runId ?? 0);
    await passFreeze(world, () => world.sync());
    expect(await gatesOf(world)).toEqual(['rooms update limit 4 rejected']);
  });

  it('keeps an approval whose run was planned during the freeze', async () => {
    const world = await openHeld();
    const { run } = await approveOf(world);
    await passFreeze(world, () => work(world, run.id));
    expect(namesOf(world, three)).toEqual(NEW);
    expect(await gatesOf(world)).toEqual([]);
  });

  it('holds no key twice, and its keys are sent or held after the freeze', async () => {
    const world = await openHeld();
    await addRooms(world, 'x1');
    await passFreeze(world, async () => {
      await world.sync();
      expect(await gatesOf(world)).toEqual(['rooms * frozen 1', 'rooms update limit 3']);
      await restore(world);
      await world.sync();
    });
    expect(await gatesOf(world)).toEqual([]);
    expect(namesOf(world, ['x1', ...three])).toEqual(['Room x1', ...FORMER]);
  });
});

describe('a freeze of the configuration', () => {
  const declared = (from: number, to: number, reason = 'exams') => ({
    stream: 'rooms',
    beginsAt: inHours(from),
    endsAt: inHours(to),
    reason,
  });

  it('stops nothing when it is over or in the future', async () => {
    const world = await openSynced({});
    await registerFreezes(world.state.db, [declared(-100, -1), declared(1, 2)]);
    await renameAll(world, three, 'new');
    expect((await world.sync()).run.status).toBe('succeeded');
  });

  it('freezes the stream until the last of several freezes ends', async () => {
    const world = await openSynced({});
    const { db } = world.state;
    await registerFreezes(db, [declared(-1, 4, 'long'), declared(-1, 2, 'short'), declared(-1, 2, 'short')]);
    await freeze(world, ['rooms'], 1);
    await freeze(world, ['rooms'], 1);
    expect(await world.sql`SELECT FROM slotsync.freezes WHERE is_declared`).toHaveLength(2);
    expect(await listFrozen(db, ['rooms'])).toMatchObject([{ reason: 'long' }]);
    await passFreezes(world, 3);
    expect(await listFrozen(db, ['rooms'])).toMatchObject([{ reason: 'long' }]);
    await renameAll(world, three, 'new');
    await world.sync();
    expect(world.writes()).toEqual([]);
    await passFreezes(world, 2);
    await workDue(world);
    expect(namesOf(world, three)).toEqual(NEW);
  });
});

describe('a stream that left the configuration', () => {
  const BOTH = roomsAndCourses();
  const limited = () => {
    const { courses, rooms: declared } = BOTH.streams;
    if (!courses || !declared) throw new Error('streams of the support');
    return { streams: { courses, rooms: { ...declared, ...LIMITED } } };
  };
  const withoutRooms = () => {
    const { courses } = BOTH.streams;
    if (!courses) throw new Error('streams of the support');
    return { streams: { courses: { ...courses, references: {} } } };
  };

  it('gets no approval while keys are held, and holds the keys when it comes back', async () => {
    const world = await openHeld({}, limited());
    await world.sql`INSERT INTO courses VALUES ('C', 'Course', NULL)`;
    world.configure(withoutRooms());
    await expect(approveOf(world)).rejects.toMatchObject({
      message: 'rooms is not in the configuration, so nothing of it is sent',
      remedy: expect.stringContaining('slotsync rename-stream rooms <new>') as string,
    });
    expect((await world.sync()).run).toMatchObject({ streams: ['courses'], status: 'succeeded' });
    expect(await gatesOf(world)).toEqual(['rooms update limit 3']);
    await reject(world, 2);
    expect(await gatesOf(world)).toEqual(['rooms update limit 3 rejected']);
    world.configure(limited());
    await world.sync();
    expect(await heldOf(world)).toEqual(three);
    expect(namesOf(world, three)).toEqual(FORMER);
  });

  it('can be unfrozen, and no run is started for it', async () => {
    const world = await openSynced({}, limited());
    await freeze(world);
    await renameAll(world, three, 'new');
    await world.sync();
    world.configure(withoutRooms());
    expect(await unfreezeStreams(world.state.db, ['rooms'])).toEqual(['rooms']);
    expect(await workDue(world)).toEqual([]);
    expect(await dueOf(world)).toEqual({ rooms: 'frozen' });
    world.configure(BOTH);
    await workDue(world);
    expect(namesOf(world, three)).toEqual(NEW);
  });

  it('starts no run while it is due, and does not break status', async () => {
    const world = await openSynced({}, limited());
    await renameAll(world, three, 'new');
    await runOf(world, { range: { limit: 1 } });
    world.configure(withoutRooms());
    expect(await workDue(world)).toEqual([]);
    expect(await statusOf(world.state, ['courses'])).not.toContain('rooms is due');
    world.configure(BOTH);
    expect(await workDue(world)).toHaveLength(1);
    expect(namesOf(world, three)).toEqual(NEW);
  });
});
