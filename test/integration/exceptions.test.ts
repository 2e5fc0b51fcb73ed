// Exceptions: no run writes a record that somebody administers by hand.
import { beforeEach, describe, expect, it } from 'vitest';
import { recordDocument } from '../../src/documents/record.js';
import { failuresDocument } from '../../src/documents/failures.js';
import type { Document } from '../../src/documents/document.js';
import { documentToText } from '../../src/render/text.js';
import { readFailuresFacts } from '../../src/situation/failures.js';
import { endExceptions, exceptRecords, listExceptions } from '../../src/state/exceptions.js';
import { forgetKey } from '../../src/state/records/forget-key.js';
import { readKnown } from '../../src/state/records/read/record-details.js';
import { retireFormer, retryRecords } from '../../src/state/records/retry-records.js';
import { renameStream } from '../../src/state/rename-stream.js';
import { pruneRuns } from '../../src/state/retention.js';
import { renameKey } from '../../src/sync/operator/rename-key.js';
import { codes, keepRooms, rooms, roomsAndCourses, type RoomWorld } from '../support/steps.js';

const open = keepRooms();
const RETIRING = rooms({ retire: 'deactivate', limits: { retire: { count: 10, percent: 100 } } });

const MADE = { reason: 'the caretaker names it', by: 'anna' };
const except = (
  { state }: RoomWorld,
  keys: string[],
  { until = null as Date | null, stream = 'rooms' } = {},
) => state.db.transaction((tx) => exceptRecords(tx, { stream, keys, until, ...MADE }));
const end = ({ state }: RoomWorld, ...keys: string[]) =>
  state.db.transaction((tx) => endExceptions(tx, 'rooms', keys));
const exceptedKeys = async ({ state }: RoomWorld) =>
  (await listExceptions(state.db)).map(({ stream, localKey }) => `${stream} ${localKey}`);

const printable = (document: Document) => documentToText(document, { timeZone: 'UTC', columns: Infinity });

const planOf = ({ run }: { run: { plan: Record<string, object> } }) => run.plan['rooms'];

describe('an excepted record', () => {
  let world: RoomWorld;
  beforeEach(async () => {
    world = await open(RETIRING, { synced: ['A', 'B'] });
    await except(world, ['A']);
    await world.rename('A', 'new');
  });

  it('is left out of plans, counted apart, and counted in no limit', async () => {
    world.configure(rooms({ limits: { update: { count: 0, percent: 0 } } }));
    const { counts, holds } = await world.preview();
    expect(counts).toMatchObject({ update: 0, unchanged: 1, excepted: 1 });
    expect(holds).toEqual({});
    const result = await world.sync();
    expect(result.run).toMatchObject({ status: 'succeeded', holds: {} });
    expect(planOf(result)).toMatchObject({ update: 0, excepted: 1 });
    expect(world.nameOf('A')).toBe('Room A');
  });

  it('is written by no run', async () => {
    const ways: Record<string, () => Promise<unknown>> = {
      'a change of the inbox': () => world.push('rooms', 'A'),
      'a forced backfill': () => world.backfill({ force: true }),
      'a forced backfill of its key': () => world.backfill({ keys: ['A'], force: true }),
      'a retry': async () => {
        await world.sql`UPDATE slotsync.records SET status = 'dead', refused_hash = source_hash WHERE local_key = 'A'`;
        await world.retry('A');
        await world.drainInbox();
        await world.sync();
      },
      'a sync that finds its row gone': async () => [await world.remove('A'), await world.sync()],
    };
    for (const [name, act] of Object.entries(ways)) {
      await world.rename('B', name);
      await act();
      expect([name, world.nameOf('A'), world.isActive('room_A')]).toEqual([name, 'Room A', true]);
    }
  });

  it('is sent by the next plan when its exception has expired, and the exception is pruned', async () => {
    await except(world, ['A'], { until: new Date(Date.now() + 60_000) });
    await world.sync();
    expect(world.nameOf('A')).toBe('Room A');
    await world.sql`UPDATE slotsync.exceptions SET until = now()`;
    expect(await exceptedKeys(world)).toEqual([]);
    await world.sync();
    expect(world.nameOf('A')).toBe('new');
    await pruneRuns(world.state.db);
    expect(await world.sql`SELECT FROM slotsync.exceptions`).toHaveLength(0);
  });

  it('is put into the inbox by a worker, by the pruning of runs or by an operator when its exception ends', async () => {
    for (const by of ['worker', 'pruning', 'operator']) {
      await except(world, ['A'], { until: new Date(Date.now() + 60_000) });
      await world.rename('A', by);
      await world.push('rooms', 'A');
      expect(world.nameOf('A')).not.toBe(by);
      if (by === 'operator') expect(await end(world, 'A', 'B')).toEqual(['A']);
      else await world.sql`UPDATE slotsync.exceptions SET until = now()`;
      if (by === 'pruning') await pruneRuns(world.state.db);
      expect(await exceptedKeys(world)).toEqual([]);
      await world.drainInbox();
      expect(world.nameOf('A')).toBe(by);
      expect(await world.sql`SELECT FROM slotsync.exceptions`).toHaveLength(0);
    }
  });

  it('is neither compared by verify nor repaired', async () => {
    await end(world, 'A');
    await world.drainInbox();
    for (const extId of ['room_A', 'room_B']) world.edit(extId, { 'room.name': 'by hand' });
    const before = await world.verify();
    expect(before.streams).toMatchObject([{ changed: 2 }]);
    await except(world, ['A']);
    const after = await world.verify();
    expect(after).toMatchObject({ drifting: 1, notComparedAgain: 0 });
    expect(after.streams).toMatchObject([{ changed: 1, excepted: 1 }]);
    // A repair that was started before the exception still finds the drift.
    await world.sql`INSERT INTO slotsync.drift (stream, local_key, kind, seen_at) VALUES ('rooms', 'A', 'changed', now())`;
    expect(planOf(await world.repair())).toMatchObject({ repair: 1, excepted: 1 });
    expect([world.nameOf('A'), world.nameOf('B')]).toEqual(['by hand', 'Room B']);
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
    expect(world.nameOf('A')).toBe('Room A');
    await world.state.db.transaction((tx) => renameStream(tx, { from: 'rooms', to: 'halls' }, []));
    expect(await exceptedKeys(world)).toEqual(['halls Z']);
    await forgetKey(world.state.db, { stream: 'halls', localKey: 'Z' });
    expect(await world.sql`SELECT FROM slotsync.exceptions`).toHaveLength(0);
  });
});

it('a batch planned before an exception leaves the record out, and its run succeeds', async () => {
  const world = await open(rooms(), { synced: ['A', 'B'] });
  for (const code of ['A', 'B']) await world.rename(code, 'new');
  await world.addRooms('C');
  const { runId, queue } = await world.plan('rooms');
  await except(world, ['A', 'C']);
  const { run, errors } = await world.finish(runId, queue);
  expect([run.status, errors]).toEqual(['succeeded', []]);
  expect([world.nameOf('A'), world.nameOf('B')]).toEqual(['Room A', 'new']);
  expect([world.ids(), await world.statusesOf('rooms')]).toEqual([
    ['room_A', 'room_B'],
    { A: 'synced', B: 'synced' },
  ]);
});

it('a batch that waits for its slot sees a new exception before it sends', async () => {
  const world = await open(rooms(), { synced: codes(3) });
  await world.renameAll('new');
  const { runId, queue } = await world.plan('rooms');
  const [first = 0] = queue;
  const { ended } = await world.applyHeld(first, { path: '/objects/find', hold: 'answer' });
  await except(world, ['r002']);
  world.passDays(1);
  world.sandbox.openGate();
  await expect(ended).rejects.toMatchObject({ code: 'run_stopped' });
  const { run } = await world.finish(runId, queue);
  expect(run.status).toBe('succeeded');
  expect(world.namesOf(codes(3))).toEqual(['new', 'new', 'Room r002']);
});

it('the claim of a killed process on an excepted record does not stop the rest of its batch', async () => {
  const world = await open(rooms(), { synced: codes(3) });
  await world.renameAll('new');
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
  expect(world.namesOf(codes(3))).toEqual(['new', 'new', 'Room r002']);
});

it('a held record that becomes an exception leaves its gate, and no approval sends it', async () => {
  const world = await open(rooms({ limits: { update: { count: 1, percent: 0 } } }), { synced: codes(3) });
  await world.renameAll('new');
  const { run } = await world.sync();
  expect(run.status).toBe('held');
  await except(world, ['r001']);
  expect(await world.sql`SELECT count FROM slotsync.gates`).toEqual([{ count: 2 }]);
  await world.approve(run.id, {});
  expect(world.namesOf(codes(3))).toEqual(['new', 'Room r001', 'new']);
  await world.expectNothingToSend();
});

it('an excepted record keeps its object although another row has the external id', async () => {
  const world = await open(rooms({ key: 'number', externalId: 'room_{code}' }));
  await world.sql`INSERT INTO rooms (code, name, number) VALUES ('A', 'Room A', '1')`;
  await world.sync();
  await except(world, ['1']);
  await world.sql`UPDATE rooms SET number = '2', name = 'new'`;
  await world.sync();
  expect(world.nameOf('A')).toBe('Room A');
  const { 2: taking } = await world.recordsOf('rooms');
  expect(taking?.error_message).toContain("that of rooms '1', which an exception protects");
  await end(world, '1');
  await world.drainInbox();
  await world.sync();
  expect(world.nameOf('A')).toBe('new');
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
  expect(world.isActive('room_1')).toBe(true);
  expect(await world.recordsOf('rooms')).toMatchObject({ A: { external_id: 'room_1' } });
  await end(world, 'A');
  expect(await retireFormer(world.state.db, { ...chosen, streams: ['rooms'] })).toMatchObject([
    { externalIds: ['room_1'] },
  ]);
});

it('a record that waits for an excepted record names the exception', async () => {
  const world = await open(roomsAndCourses());
  await world.addRooms('A');
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
  await world.remove('B');
  await world.sync();
  expect(world.isActive('room_B')).toBe(false);
});
