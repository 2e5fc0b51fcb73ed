// Guarantees 6, 11
// Mass changes wait for an operator: the held operations, what goes on beside them, and what an approval lets through. Checked
// as an operator sees it: objects at the service, rows of the state, and requests that arrived.
import { describe, expect, it } from 'vitest';
import { runNumber } from '../../src/commands/read-options.js';
import { chooseGates, rejectGates, type GateChoice } from '../../src/state/gates/answers.js';
import { readGates, waitsForOperator } from '../../src/state/gates/gates.js';
import { addChanges } from '../../src/state/inbox/add-changes.js';
import { takeChanges } from '../../src/state/inbox/take-changes.js';
import { failRun } from '../../src/state/runs/end-run.js';
import { readRun } from '../../src/state/runs/read-runs.js';
import { approve } from '../../src/sync/operator/approve.js';
import type { SlotsyncConfig } from '../../src/streams/config-schema.js';
import { planRun } from '../../src/sync/plan/plan-run.js';
import { codes, rooms as roomsOf } from '../support/room-worlds.js';
import { createDeferred } from '../support/wait.js';
import { FEW, keepRooms, OPERATOR, reasonHeld, type Declaration, type RoomWorld } from '../support/steps.js';

const rooms = (changes: Partial<Declaration> = {}) => roomsOf({ retire: 'deactivate', ...changes });

const openRooms = keepRooms();
/** Opens a world in which `count` rooms are synced. */
const open = (config: SlotsyncConfig, count: number) => openRooms(config, { synced: codes(count) });

const rename = (world: RoomWorld, ...renamed: string[]) =>
  world.sql`UPDATE rooms SET name = name || '!' WHERE code = ANY (${renamed})`;
const inactive = (world: RoomWorld) =>
  world.sandbox.objects().flatMap(({ extId, active }) => (active ? [] : [extId.slice('room_'.length)]));

const gatesOf = ({ state }: RoomWorld) => readGates(state.db);
const openApprovals = async (world: RoomWorld) =>
  (await gatesOf(world)).flatMap(({ approval }) => approval ?? []);

/** Takes these keys from the inbox into a run that is not planned yet. */
async function take({ state }: RoomWorld, ...keys: string[]): Promise<number> {
  await addChanges(state.db, 'rooms', keys);
  const taken = await takeChanges(state.db, ['rooms']);
  return typeof taken === 'string' ? expect.fail(taken) : taken.runId;
}

/** Opens a world of twenty rooms, of which `gone` are gone. Run 2 holds their deactivations. */
async function openHeld(gone = 3): Promise<RoomWorld> {
  const world = await open(rooms({ limits: { retire: FEW } }), 20);
  await world.remove(...codes(gone));
  const { run } = await world.sync();
  expect(run).toMatchObject({ id: 2, status: 'held', holds: { rooms: { retire: { count: gone } } } });
  expect(inactive(world)).toEqual([]);
  return world;
}

it('an operation beyond its limit is held while creates go on; deactivations wait until the whole stream was sent', async () => {
  const world = await open(rooms({ limits: { update: FEW } }), 20);
  await rename(world, 'r000', 'r001', 'r002');
  await world.addRooms('new');
  await world.remove('r019');
  expect((await world.preview()).holds).toMatchObject({ update: { count: 3 } });
  const { run } = await world.sync();
  expect(run).toMatchObject({
    status: 'held',
    holds: { rooms: { update: { count: 3, reason: 'limit' } } },
    plan: { rooms: { create: 1, update: 3, retire: 1 } },
    counts: { rooms: { synced: 1, deferred: 1 } },
  });
  expect(reasonHeld(run, 'rooms', 'update')).toContain(
    'slotsync approve 2 --stream rooms --operation update',
  );
  expect(world.nameOf('r000')).toBe('Room r000');
  expect(world.nameOf('new')).toBe('Room new');
  expect(inactive(world)).toEqual([]);
  expect(world.writes().map(({ objects }) => objects)).toEqual([1]);
  expect(await world.recordsOf('rooms')).toMatchObject({
    r019: { status: 'deferred', error_code: 'retirement_postponed' },
  });
});

describe('an approval', () => {
  it('lets nothing through when more records are held than it names, and the reason says so', async () => {
    const world = await openHeld();
    await world.remove('r003');
    const { run } = await world.approve(2);
    expect(run.holds['rooms']?.retire).toMatchObject({ count: 4 });
    expect(reasonHeld(run, 'rooms', 'retire')).toContain(
      ', and the approval allows 3; if this is intended: slotsync approve 3 --stream rooms --operation retire',
    );
    expect(inactive(world)).toEqual([]);
    expect(await openApprovals(world)).toEqual([]);
    // Fewer again: the approval has ended with the plan that could not use it.
    await world.addRooms('r003');
    expect((await world.sync()).run.status).toBe('held');
    expect(inactive(world)).toEqual([]);
  });

  it('ends with the plan that finds it, even if the plan needs no approval', async () => {
    const world = await openHeld(8);
    await world.addRooms(...codes(6, 2));
    expect((await world.approve(2)).run.status).toBe('succeeded');
    expect(inactive(world)).toEqual(codes(2));
    expect(await gatesOf(world)).toEqual([]);
    await world.nextDay();
    await world.remove(...codes(6, 10));
    expect((await world.sync()).run).toMatchObject({
      status: 'held',
      holds: { rooms: { retire: { count: 6 } } },
    });
    expect(inactive(world)).toEqual(codes(2));
  });

  it('is withdrawn with its cancelled run, and its gate may be approved again', async () => {
    const world = await openHeld();
    const { run } = await approve(world.approving(), { runId: 2 });
    expect(await openApprovals(world)).toMatchObject([{ allowed: 3, runId: run.id }]);
    await world.cancel(run.id);
    expect(await openApprovals(world)).toEqual([]);
    expect(await gatesOf(world)).toMatchObject([{ count: 3, runId: 2 }]);
    expect((await world.sync()).run.status).toBe('held');
    expect(inactive(world)).toEqual([]);
    await world.approve(4);
    expect(inactive(world)).toEqual(codes(3));
  });

  it('outlives its failed run, and the next whole sync uses it', async () => {
    const world = await openHeld();
    const { run } = await approve(world.approving(), { runId: 2 });
    await failRun(world.state.db, run.id, { code: 'unexpected', message: 'no' });
    expect(await openApprovals(world)).toMatchObject([{ allowed: 3, runId: run.id }]);
    // A part of the stream does not use it.
    await world.backfill({ from: 'r010' });
    await world.send('rooms', 'r000');
    expect(await openApprovals(world)).toHaveLength(1);
    expect(inactive(world)).toEqual([]);
    expect((await world.sync()).run.status).toBe('succeeded');
    expect(inactive(world)).toEqual(codes(3));
    expect(await gatesOf(world)).toEqual([]);
  });

  it('lets no other record through if it is of exactly the held records', async () => {
    const world = await openHeld();
    const swap = async (gone: string, back: string) => [await world.remove(gone), await world.addRooms(back)];
    await swap('r003', 'r000');
    const { run } = await world.approve(2, { exactly: true });
    expect(run).toMatchObject({ status: 'held', holds: { rooms: { retire: { count: 3 } } } });
    expect(reasonHeld(run, 'rooms', 'retire')).toContain(
      'the approval allows exactly the 3 records that were held, and these are others',
    );
    await swap('r000', 'r003');
    const { run: exact } = await world.approve(run.id);
    expect(exact.status).toBe('succeeded');
    expect(inactive(world)).toEqual(codes(3));
    expect(await gatesOf(world)).toEqual([]);
  });

  it('covers the whole stream if a part was held, and no more records than the part', async () => {
    const world = await open(rooms({ limits: { update: FEW } }), 20);
    await rename(world, ...codes(4));
    const { run } = await world.backfill({ where: `code < 'r004'` });
    expect(run.holds).toMatchObject({ rooms: { update: { count: 4 } } });
    await rename(world, 'r004');
    const { run: more } = await world.approve(run.id);
    expect(more).toMatchObject({ kind: 'sync', range: null, status: 'held' });
    expect(reasonHeld(more, 'rooms', 'update')).toContain('the approval allows 4');
    expect(world.writes()).toEqual([]);
    expect((await world.approve(more.id)).run.status).toBe('succeeded');
    expect(codes(6).filter((code) => world.nameOf(code)?.endsWith('!'))).toEqual(codes(5));
    expect(await gatesOf(world)).toEqual([]);
  });
});

describe('a gate', () => {
  const limited = rooms({ limits: { retire: FEW, update: FEW } });

  it('stays closed until a whole run has planned its stream again', async () => {
    const world = await openHeld();
    const closed = async () => (await gatesOf(world)).map(({ runId, count }) => ({ runId, count }));
    expect(await closed()).toEqual([{ runId: 2, count: 3 }]);
    // It has ended as held, and is not cancelled any more.
    await world.cancel(2);
    expect((await readRun(world.state.db, 2))?.status).toBe('held');
    // Neither single keys nor a part say anything of the whole.
    await world.send('rooms', 'r010');
    await world.backfill({ from: 'r010' });
    expect(await closed()).toEqual([{ runId: 2, count: 3 }]);
    await world.sync();
    expect(await closed()).toEqual([{ runId: 5, count: 3 }]);
    expect(await readGates(world.state.db, { runId: 2 })).toEqual([]);
    await world.addRooms('new');
    const { runId } = await world.plan();
    expect(await closed()).toEqual([{ runId, count: 3 }]);
    await world.cancel(runId);
    expect(await closed()).toEqual([{ runId, count: 3 }]);
    await world.addRooms(...codes(3));
    await world.sync();
    expect(await closed()).toEqual([]);
  });

  it('stays closed when it is rejected, and waits for no operator until it keeps other keys', async () => {
    const world = await open(limited, 20);
    await world.remove(...codes(3));
    await rename(world, ...codes(3, 10));
    const { run } = await world.sync();
    const waiting = async () =>
      (await gatesOf(world)).flatMap((gate) => (waitsForOperator(gate) ? gate.operation : []));
    expect(await waiting()).toEqual(['retire', 'update']);
    await rejectGates(world.state.db, run.id, { stream: 'rooms', operation: 'retire' }, OPERATOR);
    expect(await waiting()).toEqual(['update']);
    await rejectGates(world.state.db, run.id, {}, OPERATOR);
    expect(await waiting()).toEqual([]);
    expect(await readRun(world.state.db, run.id)).toEqual(run);
    // The next plan finds the same records, and the rejection is still theirs.
    expect((await world.sync()).run).toMatchObject({
      status: 'held',
      holds: { rooms: { retire: { count: 3, isRejected: true }, update: { count: 3, isRejected: true } } },
    });
    expect(await waiting()).toEqual([]);
    // So it does while single keys of them are checked again.
    for (const key of ['r000', 'r010']) await world.send('rooms', key);
    expect(await waiting()).toEqual([]);
    await world.remove('r003');
    await rename(world, 'r013');
    const { run: other } = await world.sync();
    expect(await waiting()).toEqual(['retire', 'update']);
    expect(world.writes()).toEqual([]);
    await rejectGates(world.state.db, other.id, {}, OPERATOR);
    await world.approve(other.id, { operation: 'update' });
    expect(world.nameOf('r013')).toBe('Room r013!');
  });

  it('lets the rest of its run be sent when it is rejected while the run is under way', async () => {
    const world = await open(limited, 20);
    await world.remove(...codes(3));
    await world.addRooms('new');
    const { runId, queue } = await world.plan();
    await rejectGates(world.state.db, runId, { operation: 'retire' }, OPERATOR);
    const { run } = await world.finish(runId, queue);
    expect(run).toMatchObject({ status: 'held', errorCode: null });
    expect(world.nameOf('new')).toBe('Room new');
  });
});

it('a run and gate named by an operator must exist, or one line names those that exist', async () => {
  const world = await openHeld();
  const wrong: [run: string, options: GateChoice, message: string][] = [
    ['1', {}, 'run 1 holds nothing; slotsync status shows what is held'],
    ['99', {}, 'there is no run 99; slotsync status shows what is held'],
    ['two', {}, "a run is a whole number from 1 on, not 'two'"],
    ['2', { stream: 'courses' }, 'run 2 does not hold courses; it holds: retire of rooms'],
    ['2', { operation: 'update' }, 'run 2 does not hold update; it holds: retire of rooms'],
    ['2', { gate: 'refused' }, 'run 2 does not hold refused; it holds: retire of rooms'],
    [
      '2',
      { operation: 'delete' },
      "--operation takes create, update, retire, overwrite, repair, not 'delete'",
    ],
    [
      '2',
      { gate: 'closed' },
      "--gate takes limit, empty_source, stale, restored, owned_by_former_stream, refused, frozen, forbidden, not 'closed'",
    ],
  ];
  for (const [run, options, message] of wrong) {
    const choose = async () => chooseGates(world.state.db, runNumber(run), options);
    await expect(choose()).rejects.toMatchObject({ code: 'usage', message });
  }
  expect(await chooseGates(world.state.db, 2, { stream: 'rooms', gate: 'limit' })).toHaveLength(1);
  await world.sync();
  const message =
    'the records that run 2 held of rooms have been sent or planned again since; slotsync status shows what is held';
  await expect(chooseGates(world.state.db, 2, {})).rejects.toMatchObject({ code: 'usage', message });
});

describe('a plan from a source that cannot be trusted', () => {
  it('retires nothing on a reading that fails', async () => {
    const world = await open(rooms(), 20);
    await world.remove('r000');
    await world.sql`ALTER TABLE rooms RENAME TO source`;
    await world.sql`
      CREATE VIEW rooms AS SELECT code, seats, CASE WHEN code > 'r010' THEN (1 / (length(code) - 4))::text ELSE name END AS name
      FROM source`;
    const { run } = await world.sync();
    expect(run.status).toBe('failed');
    expect(world.writes()).toEqual([]);
    await world.sql`DROP VIEW rooms`;
    await world.sql`ALTER TABLE source RENAME TO rooms`;
    await world.sync();
    expect(inactive(world)).toEqual(['r000']);
  });

  it('retires nothing on a reading that turns out unreliable half way', async () => {
    const generous = { limits: { retire: { count: 1000 } } };
    const world = await open(rooms(generous), 300);
    // So many that the first of their batches are written before the last row is read.
    world.configure(rooms({ ...generous, batchSize: 1 }));
    await world.remove(...codes(250));
    await world.sql`ALTER TABLE rooms DROP CONSTRAINT rooms_pkey`;
    await world.addRooms('r299');
    const { run } = await world.sync();
    expect(run).toMatchObject({ status: 'failed', errorCode: 'key_not_unique' });
    expect(inactive(world)).toEqual([]);
    expect(await world.sql`SELECT 1 FROM slotsync.batches WHERE operation = 'retire'`).toEqual([]);
  });

  it('retires nothing from an empty source, for a whole sync or for single changes', async () => {
    const world = await open(rooms(), 2);
    await world.sql`TRUNCATE rooms`;
    expect((await world.sync()).run.holds).toMatchObject({
      rooms: { retire: { count: 2, reason: 'empty_source' } },
    });
    const { run } = await world.send('rooms', 'r000');
    expect(run).toMatchObject({ status: 'succeeded', plan: { rooms: { retire: 0 } } });
    expect(await gatesOf(world)).toMatchObject([{ count: 2, reason: 'empty_source' }]);
    await expect(world.approve(2)).rejects.toThrow('an empty source deactivates nothing');
    expect(inactive(world)).toEqual([]);
  });
});

describe('single changes', () => {
  const limited = rooms({ limits: { retire: FEW, update: FEW } });

  it('retire nothing, and make the stream due for a whole sync that weighs all gone rows', async () => {
    const world = await open(limited, 20);
    for (const code of codes(3)) {
      await world.remove(code);
      const { run } = await world.send('rooms', code);
      expect(run).toMatchObject({ status: 'succeeded', plan: { rooms: { retire: 0 } } });
    }
    expect(await world.due()).toEqual({ rooms: 'rows_gone' });
    expect(world.writes()).toEqual([]);
    const { run } = await world.sync();
    expect(run).toMatchObject({ status: 'held', holds: { rooms: { retire: { count: 3 } } } });
    expect(await world.due()).toEqual({});
    expect(inactive(world)).toEqual([]);
  });

  it('count together towards the limit when they are planned side by side', async () => {
    const world = await open(limited, 20);
    await rename(world, ...codes(4));
    const [one, two] = [await take(world, 'r000', 'r001'), await take(world, 'r002', 'r003')];
    // The first has decided what may go, and not yet let it go, while the second is planned from beginning to end.
    const [decided, goOn] = [createDeferred(), createDeferred()];
    const requireKnownNames = () => {
      decided.resolve();
      return goOn.promise;
    };
    const first = planRun({ ...world.deps(), nameCheck: { requireKnownNames } }, one);
    await decided.promise;
    const second = await world.planRun(two);
    goOn.resolve();
    const queue = (await first).map(({ id }) => id);
    await world.finish(one, queue);
    await world.finish(two, second.queue);
    expect(world.namesOf(codes(4))).toEqual(['Room r000!', 'Room r001!', 'Room r002', 'Room r003']);
    expect(await gatesOf(world)).toMatchObject([{ runId: two, operation: 'update', count: 2 }]);
  });

  it('are not weighed with approved records, and do not use up an approval', async () => {
    const world = await open(limited, 20);
    await rename(world, ...codes(5));
    await world.sync();
    const { run } = await approve(world.approving(), { runId: 2 });
    const dropped = await world.send('rooms', ...codes(3));
    expect(dropped.run.status).toBe('held');
    expect(await openApprovals(world)).toHaveLength(1);
    expect((await world.work(run.id)).run.status).toBe('succeeded');
    expect(world.namesOf(codes(5))).toEqual(codes(5).map((code) => `Room ${code}!`));
    await rename(world, 'r005');
    expect((await world.send('rooms', 'r005')).run.status).toBe('succeeded');
  });
});

describe('days of grace', () => {
  const patient = rooms({ graceDays: 3 });
  const passDays = ({ sql }: RoomWorld, days: number) =>
    sql`UPDATE slotsync.records SET gone_since = gone_since - make_interval(days => ${days}) WHERE gone_since IS NOT NULL`;
  const goneSince = async ({ sql }: RoomWorld, code: string) => {
    const [row] = await sql<{ gone_since: Date | null }[]>`
      SELECT gone_since FROM slotsync.records WHERE local_key = ${code}`;
    return row?.gone_since ?? null;
  };

  it('pass before a row that is gone is retired', async () => {
    const world = await open(patient, 20);
    await world.remove('r000');
    // They begin with a single change.
    for (const run of [await world.send('rooms', 'r000'), await world.sync()])
      expect(run.run).toMatchObject({ status: 'succeeded', plan: { rooms: { retire: 0 } } });
    const first = await goneSince(world, 'r000');
    expect(first).not.toBeNull();
    await world.sync();
    expect(await goneSince(world, 'r000')).toEqual(first);
    await passDays(world, 2);
    await world.sync();
    expect(inactive(world)).toEqual([]);
    expect((await world.preview()).counts.retire).toBe(0);
    await passDays(world, 1);
    expect((await world.preview()).counts.retire).toBe(1);
    expect((await world.sync()).run.plan).toMatchObject({ rooms: { retire: 1 } });
    expect(inactive(world)).toEqual(['r000']);
    // They pass before many gone rows are held, too.
    world.configure(rooms({ graceDays: 3, limits: { retire: FEW } }));
    await world.remove(...codes(5, 1));
    expect((await world.sync()).run.status).toBe('succeeded');
    await passDays(world, 3);
    expect((await world.sync()).run.holds).toMatchObject({ rooms: { retire: { count: 5 } } });
    expect(inactive(world)).toEqual(['r000']);
  });

  it('begin anew when a row comes back and goes again, and end with an update of a changed row', async () => {
    const world = await open(rooms({ graceDays: 3, limits: { update: { count: 0, percent: 0 } } }), 20);
    await world.remove('r000');
    await world.sync();
    await passDays(world, 2);
    await world.addRooms('r000');
    const { run } = await world.sync();
    expect(run).toMatchObject({ status: 'succeeded', plan: { rooms: { update: 0, unchanged: 20 } } });
    expect(world.sandbox.arrivals()).toEqual([]);
    expect(await goneSince(world, 'r000')).toBeNull();
    await world.remove('r000');
    await world.sync();
    await passDays(world, 2);
    await world.sync();
    expect(inactive(world)).toEqual([]);
    world.configure(patient);
    await world.sql`INSERT INTO rooms VALUES ('r000', 'Aula')`;
    await world.sync();
    expect(world.nameOf('r000')).toBe('Aula');
    expect(await goneSince(world, 'r000')).toBeNull();
  });

  it('do not send a dead record again when its row comes back', async () => {
    const world = await open(patient, 20);
    await rename(world, 'r000', 'r001');
    world.refuse('room_r000');
    await world.sync();
    await world.remove('r000');
    await world.sync();
    expect(await goneSince(world, 'r000')).not.toBeNull();
    await world.sql`INSERT INTO rooms VALUES ('r000', 'Room r000!')`;
    world.sandbox.clearArrivals();
    await world.sync();
    expect(world.writes()).toEqual([]);
    expect(await goneSince(world, 'r000')).toBeNull();
  });
});

describe('the limit of a day', () => {
  const both = rooms({ limits: { create: FEW, update: FEW } });
  const sync = async (world: RoomWorld) => (await world.sync()).run;
  const single = async (world: RoomWorld, ...keys: string[]) => (await world.send('rooms', ...keys)).run;

  it.each([
    ['syncs', (world: RoomWorld) => sync(world)],
    ['incremental runs', (world: RoomWorld, ...keys: string[]) => single(world, ...keys)],
    [
      'backfills of parts',
      async (world: RoomWorld, ...keys: string[]) => (await world.backfill({ keys })).run,
    ],
  ])('counts the updates of several %s together', async (_, send) => {
    const world = await open(both, 20);
    await rename(world, 'r000', 'r001');
    expect((await send(world, 'r000', 'r001')).status).toBe('succeeded');
    await rename(world, 'r002');
    const run = await send(world, 'r002');
    expect(run).toMatchObject({ status: 'held', holds: { rooms: { update: { count: 1 } } } });
    expect(reasonHeld(run, 'rooms', 'update')).toContain(
      '1 of 20 records would be updated in addition to 2 in the last 23 hours',
    );
    expect(world.nameOf('r002')).toBe('Room r002');
  });

  it('counts creates of runs of different kinds, and deactivations of several syncs', async () => {
    const world = await open(rooms({ limits: { create: FEW, retire: FEW } }), 20);
    await world.addRooms('new0', 'new1');
    await world.remove('r000', 'r001');
    expect((await sync(world)).status).toBe('succeeded');
    await world.addRooms('new2');
    await world.remove('r002');
    expect((await single(world, 'new2', 'r002')).holds).toMatchObject({ rooms: { create: { count: 1 } } });
    const run = await sync(world);
    expect(run.holds).toMatchObject({ rooms: { create: { count: 1 }, retire: { count: 1 } } });
    expect(reasonHeld(run, 'rooms', 'retire')).toContain('in addition to 2 in the last 23 hours');
    expect(world.sandbox.object('room_new2')).toBeUndefined();
    expect(inactive(world)).toEqual(codes(2));
  });

  it('counts a record once, however often it changes', async () => {
    const world = await open(both, 20);
    for (const send of [sync, single, sync, single, sync]) {
      await rename(world, 'r000', 'r001');
      expect((await send(world, 'r000', 'r001')).status).toBe('succeeded');
    }
    expect(world.nameOf('r000')).toBe('Room r000!!!!!');
  });

  it('does not count writes of the day before', async () => {
    const world = await open(both, 20);
    for (const two of [codes(2), codes(2, 2), codes(2, 4)]) {
      await rename(world, ...two);
      expect((await sync(world)).status).toBe('succeeded');
      // The next night begins a little earlier.
      await world.sql`UPDATE slotsync.sent SET hour = hour - interval '23 hours 40 minutes'`;
      await world.sql`UPDATE slotsync.records SET synced_at = synced_at - interval '23 hours 40 minutes'`;
    }
  });

  it('counts neither what an approval allowed nor the first filling', async () => {
    const world = await open(both, 20);
    await world.addRooms('new0');
    expect((await single(world, 'new0')).status).toBe('succeeded');
    await rename(world, ...codes(10));
    const held = await sync(world);
    expect(held.status).toBe('held');
    // A batch that is settled in parts is counted by none of them.
    world.sandbox.failNext({ method: 'PUT', extId: 'room_r000', fault: 'status', status: 500 });
    expect((await world.approve(held.id)).run.status).toBe('succeeded');
    expect(await world.sql`SELECT DISTINCT exempt FROM slotsync.batches WHERE run_id > ${held.id}`).toEqual([
      { exempt: true },
    ]);
    await rename(world, 'r010', 'r011');
    expect((await single(world, 'r010', 'r011')).status).toBe('succeeded');
    expect((await sync(world)).status).toBe('succeeded');
  });

  it('does not count a released deactivation that waits for the end of its bookings', async () => {
    const world = await open(rooms({ limits: { retire: FEW } }), 20);
    for (const code of codes(6)) world.book(`room_${code}`);
    await world.remove(...codes(6));
    const { id } = await sync(world);
    expect((await world.approve(id)).run.counts).toMatchObject({ rooms: { deferred: 6 } });
    await world.nextDay();
    // The nights weigh them no more.
    expect(await sync(world)).toMatchObject({ status: 'succeeded', plan: { rooms: { retire: 6 } } });
    await world.remove('r010', 'r011');
    expect((await sync(world)).status).toBe('succeeded');
    expect(inactive(world)).toEqual(['r010', 'r011']);
  });
});

it('a single key of a closed gate is kept back although it is within the limit, until the gate is approved', async () => {
  const world = await open(rooms({ limits: { update: { count: 2, percent: 10 } } }), 20);
  await rename(world, ...codes(3));
  expect((await world.sync()).run).toMatchObject({ id: 2, status: 'held' });
  for (const keys of [['r000'], ['r010']]) {
    await rename(world, ...keys);
    const { run } = await world.send('rooms', ...keys);
    expect(run).toMatchObject({ status: 'held', holds: { rooms: { update: { count: 1 } } } });
    expect(reasonHeld(run, 'rooms', 'update')).toContain(
      '1 of 20 records would be updated, beside 3 that were held before',
    );
  }
  expect(world.writes()).toEqual([]);
  const [gate] = await gatesOf(world);
  expect(gate).toMatchObject({ operation: 'update', count: 4 });
  expect((await world.approve(gate?.runId ?? 0)).run.status).toBe('succeeded');
  expect(await gatesOf(world)).toEqual([]);
  expect(world.nameOf('r010')).toBe('Room r010!');
  await rename(world, 'r000');
  expect((await world.send('rooms', 'r000')).run.status).toBe('succeeded');
});
