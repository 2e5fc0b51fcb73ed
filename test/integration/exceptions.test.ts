// Exceptions: no run writes a record that somebody administers by hand.
import { beforeEach, describe, expect, it } from 'vitest';
import { recordDocument } from '../../src/documents/record.js';
import { failuresDocument } from '../../src/documents/failures.js';
import type { Document } from '../../src/documents/document.js';
import { documentToText } from '../../src/render/text.js';
import { readFailuresFacts } from '../../src/situation/failures.js';
import { endExceptions, exceptRecords, listExceptions } from '../../src/state/exceptions.js';
import { addChanges } from '../../src/state/inbox/add-changes.js';
import { forgetKey } from '../../src/state/records/forget-key.js';
import { readKnown } from '../../src/state/records/read/record-details.js';
import { retireFormer, retryRecords } from '../../src/state/records/retry-records.js';
import { renameStream } from '../../src/state/rename-stream.js';
import { pruneRuns } from '../../src/state/retention.js';
import { startRun } from '../../src/state/runs/start-run.js';
import type { RunKind, RunRange } from '../../src/state/schema.js';
import { renameKey } from '../../src/sync/operator/rename-key.js';
import { previewStream } from '../../src/sync/plan/preview.js';
import { verify } from '../../src/sync/verify/verify.js';
import {
  addRooms,
  codes,
  expectNothingToSend,
  isActive,
  keepRoomWorlds,
  nameAtService,
  rename,
  rooms,
  roomsAndCourses,
} from '../support/room-worlds.js';
import type { World } from '../support/world.js';

const open = keepRoomWorlds();
const RETIRING = rooms({ retire: 'deactivate', limits: { retire: { count: 10, percent: 100 } } });

const MADE = { reason: 'the caretaker names it', by: 'anna' };
const except = ({ state }: World, keys: string[], { until = null as Date | null, stream = 'rooms' } = {}) =>
  state.db.transaction((tx) => exceptRecords(tx, { stream, keys, until, ...MADE }));
const end = ({ state }: World, ...keys: string[]) =>
  state.db.transaction((tx) => endExceptions(tx, 'rooms', keys));
const exceptedKeys = async ({ state }: World) =>
  (await listExceptions(state.db)).map(({ stream, localKey }) => `${stream} ${localKey}`);

async function runOf(world: World, kind: RunKind, range?: RunRange) {
  const request = { kind, lane: 'sync', startedBy: 'command', streams: ['rooms'], range } as const;
  const { run } = await startRun(world.state.db, request);
  const { queue } = await world.planRun(run.id);
  return world.finish(run.id, queue);
}

const printable = (document: Document) => documentToText(document, { timeZone: 'UTC', columns: Infinity });

const planOf = ({ run }: { run: { plan: Record<string, object> } }) => run.plan['rooms'];

describe('an excepted record', () => {
  let world: World;
  beforeEach(async () => {
    world = await open(RETIRING, { synced: ['A', 'B'] });
    await except(world, ['A']);
    await rename(world, 'A', 'new');
  });

  it('is left out of plans, counted apart, and counted in no limit', async () => {
    world.configure(rooms({ limits: { update: { count: 0, percent: 0 } } }));
    const { counts, holds } = await previewStream(world.deps(), world.stream('rooms'));
    expect(counts).toMatchObject({ update: 0, unchanged: 1, excepted: 1 });
    expect(holds).toEqual({});
    const result = await world.sync();
    expect(result.run).toMatchObject({ status: 'succeeded', holds: {} });
    expect(planOf(result)).toMatchObject({ update: 0, excepted: 1 });
    expect(nameAtService(world, 'A')).toBe('Room A');
  });

  it.each<[string, (world: World) => Promise<unknown>]>([
    [
      'a change of the inbox',
      async (world) => {
        await addChanges(world.state.db, 'rooms', ['A']);
        await world.drainInbox();
      },
    ],
    ['a forced backfill', (world) => runOf(world, 'backfill', { force: true })],
    ['a forced backfill of its key', (world) => runOf(world, 'backfill', { keys: ['A'], force: true })],
    [
      'a retry',
      async (world) => {
        await world.sql`UPDATE slotsync.records SET status = 'dead', refused_hash = source_hash WHERE local_key = 'A'`;
        await retryRecords(world.state.db, { stream: 'rooms', keys: ['A'] });
        await world.drainInbox();
        await world.sync();
      },
    ],
    [
      'a sync that finds its row gone',
      async (world) => {
        await world.sql`DELETE FROM rooms WHERE code = 'A'`;
        await world.sync();
      },
    ],
  ])('is not written by %s', async (_, act) => {
    await rename(world, 'B', 'B');
    await act(world);
    expect(nameAtService(world, 'A')).toBe('Room A');
    expect(isActive(world, 'room_A')).toBe(true);
  });

  it('is put into the inbox when its exception ends, and is sent', async () => {
    await world.sync();
    expect(await end(world, 'A', 'B')).toEqual(['A']);
    expect(await exceptedKeys(world)).toEqual([]);
    await world.drainInbox();
    expect(nameAtService(world, 'A')).toBe('new');
  });

  it('is sent by the next plan when its exception has expired, and the exception is pruned', async () => {
    await except(world, ['A'], { until: new Date(Date.now() + 60_000) });
    await world.sync();
    expect(nameAtService(world, 'A')).toBe('Room A');
    await world.sql`UPDATE slotsync.exceptions SET until = now()`;
    expect(await exceptedKeys(world)).toEqual([]);
    await world.sync();
    expect(nameAtService(world, 'A')).toBe('new');
    await pruneRuns(world.state.db);
    expect(await world.sql`SELECT FROM slotsync.exceptions`).toHaveLength(0);
  });

  it.each<[string, (world: World) => Promise<unknown>]>([
    ['a worker', async () => undefined],
    ['the pruning of runs', ({ state }) => pruneRuns(state.db)],
  ])('is put into the inbox by %s when its exception has expired', async (_, act) => {
    await except(world, ['A'], { until: new Date(Date.now() + 60_000) });
    await addChanges(world.state.db, 'rooms', ['A']);
    await world.drainInbox();
    expect(nameAtService(world, 'A')).toBe('Room A');
    await world.sql`UPDATE slotsync.exceptions SET until = now()`;
    await act(world);
    await world.drainInbox();
    expect(nameAtService(world, 'A')).toBe('new');
    expect(await world.sql`SELECT FROM slotsync.exceptions`).toHaveLength(0);
  });

  it('is neither compared by verify nor repaired', async () => {
    const sandbox = world.sandbox;
    await end(world, 'A');
    await world.drainInbox();
    for (const key of ['room_A', 'room_B'])
      sandbox.changeObject(key, { fields: [{ fieldId: 'room.name', values: ['by hand'] }] });
    const before = await verify(world.verifying());
    expect(before.streams).toMatchObject([{ changed: 2 }]);
    await except(world, ['A']);
    const after = await verify(world.verifying());
    expect(after).toMatchObject({ drifting: 1, notComparedAgain: 0 });
    expect(after.streams).toMatchObject([{ changed: 1, excepted: 1 }]);
    await runOf(world, 'repair');
    expect([nameAtService(world, 'A'), nameAtService(world, 'B')]).toEqual(['by hand', 'Room B']);
  });

  it('is not repaired by a run that was started before its exception', async () => {
    await end(world, 'A');
    await world.drainInbox();
    world.sandbox.changeObject('room_A', { fields: [{ fieldId: 'room.name', values: ['by hand'] }] });
    await verify(world.verifying());
    const drift = await world.sql`SELECT * FROM slotsync.drift`;
    await except(world, ['A']);
    await world.sql`INSERT INTO slotsync.drift ${world.sql(drift)}`;
    expect(planOf(await runOf(world, 'repair'))).toMatchObject({ repair: 0, excepted: 1 });
    expect(nameAtService(world, 'A')).toBe('by hand');
  });

  it('is shown as an exception, and counts as no failure', async () => {
    await world.sql`UPDATE slotsync.records SET status = 'failed' WHERE local_key = 'A'`;
    const { db } = world.state;
    const facts = await readFailuresFacts(db, {}, {});
    expect(facts).toMatchObject({ total: 0, causes: [], exceptions: [{ stream: 'rooms', count: 1 }] });
    expect(printable(failuresDocument(facts, { most: 5, now: new Date() }))).toContain(
      '1 exception: slotsync does not change this record. To list it: slotsync exceptions',
    );
    const known = await readKnown(db, 'rooms', 'A', 5);
    const shown = printable(recordDocument(known));
    expect(shown).toContain('by anna: the caretaker names it');
    expect(shown).toContain('slotsync except rooms A --end');
  });

  it('keeps its exception when its key or stream is renamed, and loses it by forget', async () => {
    await world.sync();
    await world.sql`UPDATE rooms SET code = 'Z' WHERE code = 'A'`;
    await renameKey(world.deps(), world.stream('rooms'), { from: 'A', to: 'Z' });
    expect(await exceptedKeys(world)).toEqual(['rooms Z']);
    await world.drainInbox();
    expect(nameAtService(world, 'A')).toBe('Room A');
    await world.state.db.transaction((tx) => renameStream(tx, { from: 'rooms', to: 'halls' }, []));
    expect(await exceptedKeys(world)).toEqual(['halls Z']);
    await forgetKey(world.state.db, { stream: 'halls', localKey: 'Z' });
    expect(await world.sql`SELECT FROM slotsync.exceptions`).toHaveLength(0);
  });
});

it('a batch planned before an exception leaves the record out, and its run succeeds', async () => {
  const world = await open(rooms(), { synced: ['A', 'B'] });
  for (const code of ['A', 'B']) await rename(world, code, 'new');
  const { runId, queue } = await world.plan('rooms');
  await except(world, ['A']);
  const { run, errors } = await world.finish(runId, queue);
  expect([run.status, errors]).toEqual(['succeeded', []]);
  expect([nameAtService(world, 'A'), nameAtService(world, 'B')]).toEqual(['Room A', 'new']);
});

it('a batch that waits for its slot sees a new exception before it sends', async () => {
  const world = await open(rooms(), { synced: codes(3) });
  await world.sql`UPDATE rooms SET name = 'new'`;
  const { runId, queue } = await world.plan('rooms');
  const [first = 0] = queue;
  const { ended } = await world.applyHeld(first, { path: '/objects/find', hold: 'answer' });
  await except(world, ['r002']);
  world.passDays(1);
  world.sandbox.openGate();
  await expect(ended).rejects.toMatchObject({ code: 'run_stopped' });
  const { run } = await world.finish(runId, queue);
  expect(run.status).toBe('succeeded');
  expect(codes(3).map((code) => nameAtService(world, code))).toEqual(['new', 'new', 'Room r002']);
});

it('the claim of a killed process on an excepted record does not stop the rest of its batch', async () => {
  const world = await open(rooms(), { synced: codes(3) });
  await world.sql`UPDATE rooms SET name = 'new'`;
  const { runId, queue } = await world.plan('rooms');
  const [first = 0] = queue;
  await world.sql`UPDATE slotsync.records SET claimed_by = ${`killed batch ${first} token`}, claimed_until = now()`;
  await except(world, ['r002']);
  const { ended } = await world.applyHeld(first, { path: '/objects/find', hold: 'answer' });
  world.passDays(1);
  world.sandbox.openGate();
  await ended;
  const { run } = await world.finish(runId, []);
  expect(run.status).toBe('succeeded');
  expect(codes(3).map((code) => nameAtService(world, code))).toEqual(['new', 'new', 'Room r002']);
});

it('a batch planned before an exception makes no record of a new row', async () => {
  const world = await open(rooms());
  await addRooms(world, 'A');
  const { runId, queue } = await world.plan('rooms');
  await except(world, ['A']);
  const { run } = await world.finish(runId, queue);
  expect(run.status).toBe('succeeded');
  expect([world.sandbox.objects(), await world.statusesOf('rooms')]).toEqual([[], {}]);
});

it('a held record that becomes an exception leaves its gate, and no approval sends it', async () => {
  const world = await open(rooms({ limits: { update: { count: 1, percent: 0 } } }), { synced: codes(3) });
  await world.sql`UPDATE rooms SET name = 'new'`;
  const { run } = await world.sync();
  expect(run.status).toBe('held');
  await except(world, ['r001']);
  expect(await world.sql`SELECT count FROM slotsync.gates`).toEqual([{ count: 2 }]);
  await world.approve(run.id, {});
  expect(codes(3).map((code) => nameAtService(world, code))).toEqual(['new', 'Room r001', 'new']);
  await expectNothingToSend(world);
});

it('an excepted record keeps its object although another row has the external id', async () => {
  const world = await open(rooms({ key: 'number', externalId: 'room_{code}' }));
  await world.sql`INSERT INTO rooms (code, name, number) VALUES ('A', 'Room A', '1')`;
  await world.sync();
  await except(world, ['1']);
  await world.sql`UPDATE rooms SET number = '2', name = 'new'`;
  await world.sync();
  expect(nameAtService(world, 'A')).toBe('Room A');
  const { 2: taking } = await world.recordsOf('rooms');
  expect(taking?.error_message).toContain("that of rooms '1', which an exception protects");
  await end(world, '1');
  await world.drainInbox();
  await world.sync();
  expect(nameAtService(world, 'A')).toBe('new');
});

it('an excepted record whose external id changed keeps its object, even if asked to retire it', async () => {
  const world = await open(rooms({ ...RETIRING.streams['rooms'], externalId: 'room_{number}' }));
  await world.sql`INSERT INTO rooms (code, name, number) VALUES ('A', 'Room A', '1')`;
  await world.sync();
  await world.sql`UPDATE rooms SET number = '2'`;
  await world.sync();
  await except(world, ['A']);
  const chosen = { stream: 'rooms', keys: ['A'] };
  expect(await retryRecords(world.state.db, chosen)).toEqual([]);
  expect(await retireFormer(world.state.db, { ...chosen, streams: ['rooms'] })).toEqual([]);
  await world.sync();
  expect(isActive(world, 'room_1')).toBe(true);
  expect(await world.recordsOf('rooms')).toMatchObject({ A: { external_id: 'room_1' } });
  await end(world, 'A');
  expect(await retireFormer(world.state.db, { ...chosen, streams: ['rooms'] })).toMatchObject([
    { externalIds: ['room_1'] },
  ]);
});

it('a record that waits for an excepted record names the exception', async () => {
  const world = await open(roomsAndCourses());
  await addRooms(world, 'A');
  await world.sql`INSERT INTO courses VALUES ('DB', 'Databases', 'A')`;
  await except(world, ['A']);
  await world.sync();
  const facts = await readFailuresFacts(world.state.db, {}, {});
  expect(facts.causes).toMatchObject([{ stream: 'rooms', status: 'excepted', records: 1, waiting: 1 }]);
  const said = printable(failuresDocument(facts, { most: 5, now: new Date() }));
  expect(said).toContain("rooms 'A' is left as it is by an exception → 1 record of courses waits for it");
  expect(said).toContain('slotsync except rooms A --end');
  await end(world, 'A');
  await world.drainInbox();
  expect(await world.statusesOf('courses')).toEqual({ DB: 'synced' });
});

it('a failed record that is an exception postpones no deactivation', async () => {
  const world = await open(RETIRING, { synced: ['A', 'B'] });
  await world.sql`UPDATE slotsync.records SET status = 'dead', refused_hash = source_hash WHERE local_key = 'A'`;
  await except(world, ['A']);
  await world.sql`DELETE FROM rooms WHERE code = 'B'`;
  await world.sync();
  expect(isActive(world, 'room_B')).toBe(false);
});
