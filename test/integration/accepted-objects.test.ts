// Guarantees 2, 11
// Synced means accepted: the state of a record after every kind of answer, and after no answer.
import { describe, expect, it } from 'vitest';
import { reportDocument } from '../../src/documents/report.js';
import { readReport } from '../../src/situation/report.js';
import { sumByStream } from '../../src/state/runs/count-runs.js';
import { transferObjects } from '../../src/state/records/transfer-objects.js';
import { claimRecords } from '../../src/state/records/claims.js';
import { createObject } from '../../src/streams/destination-object.js';
import { codes, keepRooms, rooms, until, type RoomWorld } from '../support/steps.js';

const open = keepRooms();

// Guarantee 2
describe('a written record', () => {
  it('is synced although another object of its request is refused', async () => {
    const world = await open(rooms());
    await world.addRooms('A', 'B', 'C');
    world.sandbox.refuseObject('room_B', { status: 409, message: 'room_B is locked' });
    const { run } = await world.sync();

    expect(run).toMatchObject({ status: 'partial', counts: { rooms: { synced: 2, dead: 1 } } });
    expect(world.ids()).toEqual(['room_A', 'room_C']);
    expect(await world.recordsOf('rooms')).toMatchObject({
      A: { status: 'synced', external_id: 'room_A', error_code: null, object_hash: expect.any(String) },
      B: { status: 'dead', error_code: 'refused_409', error_message: 'room_B is locked', object_hash: null },
      C: { status: 'synced' },
    });
    expect(world.writes()).toHaveLength(1);
  });

  it('keeps what was accepted before, there and in the state, when its update is refused', async () => {
    const world = await open(rooms(), { synced: ['A', 'B'] });
    const before = (await world.recordsOf('rooms'))['A'];
    await world.rename('A', 'Aula');
    await world.rename('B', 'Bar');
    world.refuse('room_A');
    await world.sync();
    expect(world.nameOf('A')).toBe('Room A');
    expect(await world.recordsOf('rooms')).toMatchObject({
      A: { status: 'dead', object_hash: before?.object_hash },
    });
    // Back to what was accepted: nothing to send, and nothing wrong any more.
    await world.rename('A', 'Room A');
    await world.expectNothingToSend();
    expect(await world.statusesOf('rooms')).toEqual({ A: 'synced', B: 'synced' });
  });

  it('stays in doubt when a refusal follows an update whose answer was lost', async () => {
    const world = await open(rooms(), { synced: ['A', 'B'] });
    await world.rename('A', 'Aula');
    await world.rename('B', 'Other');
    const { runId, queue } = await world.plan();
    world.sandbox.failNext({ path: '/objects', fault: 'loseAnswer' });
    await expect(world.apply(queue[0] ?? 0)).rejects.toMatchObject({ code: 'answer_lost' });
    world.refuse('room_A');
    await world.rename('B', 'Another');
    await world.finish(runId, queue);
    expect(await world.recordsOf('rooms')).toMatchObject({ A: { status: 'dead', in_doubt: true } });
    expect(world.nameOf('A')).toBe('Aula');

    // Back to what was accepted last, which is not what stands there.
    world.sandbox.allowObject('room_A');
    await world.rename('A', 'Room A');
    await world.sync();
    await world.expectInSync();
  });

  it.each([
    [['reset', 'loseAnswer', 'brokenJson', 'status'], 30_000],
    [['hang'], 1000],
  ] as const)(
    'is sent again after the faults %j until an answer arrives',
    async (faults, requestTimeoutMs) => {
      const world = await open({ ...rooms(), service: { requestTimeoutMs } });
      for (const fault of faults) {
        await world.addRooms(`${fault} A`, `${fault} B`);
        world.sandbox.clearArrivals();
        world.sandbox.failNext({ path: '/objects', fault });
        const { run, errors } = await world.sync();
        expect([fault, errors.length, run.status]).toEqual([fault, 1, 'succeeded']);
        // A failed batch is sent again in parts.
        expect(world.writes()).toHaveLength(3);
        await world.expectInSync();
        await world.expectNothingToSend();
      }
    },
  );

  it('never counts as accepted while every answer is lost or broken', async () => {
    const world = await open(rooms());
    for (const [code, fault] of [
      ['A', 'loseAnswer'],
      ['B', 'brokenJson'],
    ] as const) {
      await world.addRooms(code);
      world.sandbox.failNext({ path: '/objects', fault, times: 4 });
      const { run } = await world.sync();
      // It is there, but nobody said so.
      expect(world.sandbox.object(`room_${code}`)).toBeDefined();
      expect(run).toMatchObject({ status: 'failed', counts: { rooms: { synced: 0, failed: 1 } } });
      expect(await world.recordOf(code)).toMatchObject({
        status: 'failed',
        object_hash: null,
        in_doubt: true,
        error_code: expect.stringMatching(/^answer_/),
      });
      await world.sync();
      await world.expectInSync();
      await world.expectNothingToSend();
    }
  });

  it.each([429, 503])('is sent again alone when the answer has status %i for its object', async (status) => {
    const world = await open(rooms());
    await world.addRooms('A', 'B');
    world.sandbox.refuseObject('room_B', { status, message: 'later' });
    const { queue, runId } = await world.plan();
    const incomplete = { code: 'answer_incomplete', disposition: 'retry' };
    await expect(world.apply(queue[0] ?? 0)).rejects.toMatchObject(incomplete);
    expect(await world.statusesOf('rooms')).toEqual({ A: 'synced', B: 'pending' });
    world.sandbox.allowObject('room_B');
    await world.finish(runId, queue);
    expect(world.writes().map(({ objects }) => objects)).toEqual([2, 1]);
    await world.expectInSync();
  });

  it('is sent again when the answer does not mention its object', async () => {
    const world = await open(rooms());
    await world.addRooms('A', 'B');
    const results = [{ extId: 'room_A', id: 1, status: 200 }];
    world.sandbox.failNext({ path: '/objects', fault: 'status', status: 200, body: { results } });
    const { errors } = await world.sync();
    expect(errors).toMatchObject([{ code: 'answer_incomplete', disposition: 'retry' }]);
    expect(world.nameOf('B')).toBe('Room B');
    expect(await world.statusesOf('rooms')).toEqual({ A: 'synced', B: 'synced' });
  });

  describe('when its worker ended early', () => {
    /** Interrupts a batch at the moment its objects are stored there and before the answer is back. */
    async function interrupt(world: RoomWorld, batchId: number): Promise<void> {
      world.sandbox.closeGate({ method: 'PUT', hold: 'answer' });
      const stopping = new AbortController();
      const applying = world.apply(batchId, stopping.signal);
      await until(() => world.sandbox.gate().held, { describe: 'the service to store the object' });
      stopping.abort(new Error('stopped'));
      await expect(applying).rejects.toThrow('stopped');
      world.sandbox.openGate();
    }

    /** Does what a batch does up to its request, and then nothing more, as a process that was killed. */
    async function killAfterRequest(world: RoomWorld, code: string, name: string): Promise<void> {
      const claim = {
        token: 'killed',
        stream: 'rooms',
        keys: [code],
        runId: 1,
        seconds: 60,
        lateSeconds: 60,
        binding: world.destination.binding,
      };
      expect(await claimRecords(world.state.db, claim)).toHaveLength(1);
      const extId = `room_${code}`;
      const taking = { stream: 'rooms', localKey: code, externalId: extId };
      await transferObjects(world.state.db, [taking], claim);
      const object = createObject(extId, 'room', true, [['room.name', [name]]]);
      await world.destination.putObjects([object], { lane: 'sync' });
    }

    it('is in doubt and is sent again, also when its row goes back to the values accepted before', async () => {
      const world = await open(rooms());
      await world.addRooms('A');
      const created = await world.plan();
      await interrupt(world, created.queue[0] ?? 0);
      expect(world.sandbox.object('room_A')).toBeDefined();
      expect(await world.recordOf('A')).toMatchObject({
        status: 'pending',
        in_doubt: true,
        claimed_by: null,
      });
      await world.finish(created.runId, created.queue);
      expect(world.writes()).toHaveLength(2);
      expect(await world.recordOf('A')).toMatchObject({ status: 'synced', in_doubt: false });
      await world.passLateWrites();
      await world.rename('A', 'Aula');
      const { queue, runId } = await world.plan();
      await interrupt(world, queue[0] ?? 0);
      expect(world.nameOf('A')).toBe('Aula');
      await world.rename('A', 'Room A');
      await world.finish(runId, queue);
      await world.expectInSync();
    });

    it('has the name of its row at the service after kill -9 and a sync, whatever the row says then', async () => {
      const world = await open(rooms(), { synced: ['A', 'B', 'C', 'D'] });
      for (const code of ['A', 'B', 'C']) await killAfterRequest(world, code, 'Aula');
      await world.rename('B', 'Aula');
      await world.rename('C', 'Attic');
      await world.expireClaims();
      await world.sync();
      await world.expectInSync();
      await world.expectNothingToSend();
    });

    it('is retired after kill -9 at its creation, when its row is gone', async () => {
      const world = await open(rooms({ retire: 'deactivate' }));
      await world.addRooms('A', 'B');
      await killAfterRequest(world, 'A', 'Room A');
      await world.remove('A');
      await world.expireClaims();
      await world.sync();
      expect(world.isActive('room_A')).toBe(false);
      await world.expectNothingToSend();
    });
  });
});

it('the accepted operations of a run count no refused create and no equal object, in the run and in its report', async () => {
  const world = await open(rooms({ retire: 'deactivate' }));
  await world.addRooms(...codes(10));
  for (const code of codes(3)) world.refuse(`room_${code}`, 422);
  const sums = (runId: number) =>
    sumByStream(world.state.db, { from: new Date(0), to: new Date(), runId }).then(([first]) => first);
  const { run } = await world.sync();
  expect(await sums(run.id)).toMatchObject({
    planned: { create: 10 },
    accepted: { create: 7, update: 0, retire: 0 },
    outcomes: { synced: 7, dead: 3 },
  });
  const facts = await readReport(world.state.db, { run }, { requestsPerSecond: 20 });
  const changed = reportDocument(facts).sections.find(({ title }) => title === 'What changed');
  expect(changed?.table).toEqual({
    headings: ['stream', 'to create', 'created', 'given up'],
    rows: [['rooms', 10, 7, 3]],
  });
  // While any record of the stream is given up, nothing is retired.
  await world.remove(...codes(3), 'r009');
  await world.renameAll('new', codes(2, 3));
  const next = await world.sync();
  expect(await sums(next.run.id)).toMatchObject({
    accepted: { create: 0, update: 2, retire: 1 },
    outcomes: { synced: 3 },
  });
  await world.sql`UPDATE slotsync.records SET object_hash = NULL, in_doubt = true WHERE local_key = 'r003'`;
  const again = await world.sync();
  expect(await sums(again.run.id)).toMatchObject({
    accepted: { create: 0, update: 0, retire: 0 },
    outcomes: { synced: 0 },
  });
});
