// Guarantee 2
// Synced means accepted: the state of a record after every kind of answer, and after no answer.
import { describe, expect, it } from 'vitest';
import { transferObjects } from '../../src/state/records/transfer-objects.js';
import { claimRecords } from '../../src/state/records/claims.js';
import { createObject } from '../../src/streams/destination-object.js';
import {
  addRooms,
  expectInSync,
  expectNothingToSend,
  isActive,
  keepRoomWorlds,
  nameAtService,
  rename,
  rooms,
} from '../support/room-worlds.js';
import { until } from '../support/wait.js';
import type { World } from '../support/world.js';

const open = keepRoomWorlds();

// Guarantee 2
describe('a written record', () => {
  it('is synced although another object of its request is refused', async () => {
    const world = await open(rooms());
    await addRooms(world, 'A', 'B', 'C');
    world.sandbox.refuseObject('room_B', { status: 409, message: 'room_B is locked' });
    const { run } = await world.sync();

    expect(run).toMatchObject({ status: 'partial', counts: { rooms: { synced: 2, dead: 1 } } });
    expect(world.sandbox.objects().map(({ extId }) => extId)).toEqual(['room_A', 'room_C']);
    expect(await world.recordsOf('rooms')).toMatchObject({
      A: { status: 'synced', external_id: 'room_A', error_code: null, object_hash: expect.any(String) },
      B: { status: 'dead', error_code: 'refused_409', error_message: 'room_B is locked', object_hash: null },
      C: { status: 'synced' },
    });
    expect(world.writes()).toHaveLength(1);
  });

  it('keeps what was accepted before, there and in the state, when its update is refused', async () => {
    const world = await open(rooms());
    await addRooms(world, 'A', 'B');
    await world.sync();
    const before = (await world.recordsOf('rooms'))['A'];
    await rename(world, 'A', 'Aula');
    await rename(world, 'B', 'Bar');
    world.sandbox.refuseObject('room_A', { status: 400, message: 'no' });
    await world.sync();
    expect(nameAtService(world, 'A')).toBe('Room A');
    expect(await world.recordsOf('rooms')).toMatchObject({
      A: { status: 'dead', object_hash: before?.object_hash },
    });
    // Back to what was accepted: nothing to send, and nothing wrong any more.
    await rename(world, 'A', 'Room A');
    await expectNothingToSend(world);
    expect(await world.statusesOf('rooms')).toEqual({ A: 'synced', B: 'synced' });
  });

  it('stays in doubt when a refusal follows an update whose answer was lost', async () => {
    const world = await open(rooms());
    await addRooms(world, 'A', 'B');
    await world.sync();
    await rename(world, 'A', 'Aula');
    await rename(world, 'B', 'Other');
    const { runId, queue } = await world.plan();
    world.sandbox.failNext({ path: '/objects', fault: 'loseAnswer' });
    await expect(world.apply(queue[0] ?? 0)).rejects.toMatchObject({ code: 'answer_lost' });
    world.sandbox.refuseObject('room_A', { status: 400, message: 'no' });
    await rename(world, 'B', 'Another');
    await world.finish(runId, queue);
    expect(await world.recordsOf('rooms')).toMatchObject({ A: { status: 'dead', in_doubt: true } });
    expect(nameAtService(world, 'A')).toBe('Aula');

    // Back to what was accepted last, which is not what stands there.
    world.sandbox.allowObject('room_A');
    await rename(world, 'A', 'Room A');
    await world.sync();
    await expectInSync(world);
  });

  it.each(['reset', 'loseAnswer', 'brokenJson', 'hang', 'status'] as const)(
    'is sent again after the fault %s until an answer arrives',
    async (fault) => {
      const world = await open({
        ...rooms(),
        service: { requestTimeoutMs: fault === 'hang' ? 1000 : 30_000 },
      });
      await addRooms(world, 'A', 'B');
      world.sandbox.failNext({ path: '/objects', fault });
      const { run, errors } = await world.sync();
      expect(errors).toHaveLength(1);
      expect(run.status).toBe('succeeded');
      // A failed batch is sent again in parts.
      expect(world.writes()).toHaveLength(3);
      await expectInSync(world);
      await expectNothingToSend(world);
    },
  );

  it.each(['loseAnswer', 'brokenJson'] as const)(
    'never counts as accepted while every answer has the fault %s',
    async (fault) => {
      const world = await open(rooms());
      await addRooms(world, 'A');
      world.sandbox.failNext({ path: '/objects', fault, times: 4 });
      const { run } = await world.sync();
      // It is there, but nobody said so.
      expect(world.sandbox.object('room_A')).toBeDefined();
      expect(run).toMatchObject({ status: 'failed', counts: { rooms: { synced: 0, failed: 1 } } });
      expect(await world.recordsOf('rooms')).toMatchObject({
        A: {
          status: 'failed',
          object_hash: null,
          in_doubt: true,
          error_code: expect.stringMatching(/^answer_/),
        },
      });
      await world.sync();
      await expectInSync(world);
      await expectNothingToSend(world);
    },
  );

  it.each([429, 503])('is sent again alone when the answer has status %i for its object', async (status) => {
    const world = await open(rooms());
    await addRooms(world, 'A', 'B');
    world.sandbox.refuseObject('room_B', { status, message: 'later' });
    const { queue, runId } = await world.plan();
    await expect(world.apply(queue[0] ?? 0)).rejects.toMatchObject({
      code: 'answer_incomplete',
      disposition: 'retry',
    });
    expect(await world.statusesOf('rooms')).toEqual({ A: 'synced', B: 'pending' });
    world.sandbox.allowObject('room_B');
    await world.finish(runId, queue);
    expect(world.writes().map(({ objects }) => objects)).toEqual([2, 1]);
    await expectInSync(world);
  });

  it('is sent again when the answer does not mention its object', async () => {
    const world = await open(rooms());
    await addRooms(world, 'A', 'B');
    const results = [{ extId: 'room_A', id: 1, status: 200 }];
    world.sandbox.failNext({ path: '/objects', fault: 'status', status: 200, body: { results } });
    const { errors } = await world.sync();
    expect(errors).toMatchObject([{ code: 'answer_incomplete', disposition: 'retry' }]);
    expect(nameAtService(world, 'B')).toBe('Room B');
    expect(await world.statusesOf('rooms')).toEqual({ A: 'synced', B: 'synced' });
  });

  describe('when its worker ended early', () => {
    /** Interrupts a batch at the moment its objects are stored there and before the answer is back. */
    async function interrupt(world: World, batchId: number): Promise<void> {
      world.sandbox.closeGate({ method: 'PUT', hold: 'answer' });
      const stopping = new AbortController();
      const applying = world.apply(batchId, stopping.signal);
      await until(() => world.sandbox.gate().held, { describe: 'the service to store the object' });
      stopping.abort(new Error('stopped'));
      await expect(applying).rejects.toThrow('stopped');
      world.sandbox.openGate();
    }

    /** Does what a batch does up to its request, and then nothing more, as a process that was killed. */
    async function killAfterRequest(world: World, code: string, name: string): Promise<void> {
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
    const expireClaims = (world: World) =>
      world.sql`UPDATE slotsync.records SET claimed_until = now() - interval '1 second'`;

    it('is in doubt and is sent again', async () => {
      const world = await open(rooms());
      await addRooms(world, 'A');
      const { queue, runId } = await world.plan();
      await interrupt(world, queue[0] ?? 0);
      expect(world.sandbox.object('room_A')).toBeDefined();
      expect(await world.recordsOf('rooms')).toMatchObject({
        A: { status: 'pending', in_doubt: true, claimed_by: null },
      });
      await world.finish(runId, queue);
      expect(world.writes()).toHaveLength(2);
      expect(await world.recordsOf('rooms')).toMatchObject({ A: { status: 'synced', in_doubt: false } });
    });

    it('is sent again when its row goes back to the values accepted before', async () => {
      const world = await open(rooms());
      await addRooms(world, 'A');
      await world.sync();
      await rename(world, 'A', 'Aula');
      const { queue, runId } = await world.plan();
      await interrupt(world, queue[0] ?? 0);
      expect(nameAtService(world, 'A')).toBe('Aula');
      await rename(world, 'A', 'Room A');
      await world.finish(runId, queue);
      await expectInSync(world);
    });

    it.each(['Room A', 'Aula', 'Attic'])(
      'has the name %s of its row at the service after kill -9 and a sync',
      async (name) => {
        const world = await open(rooms());
        await addRooms(world, 'A', 'B');
        await world.sync();
        await killAfterRequest(world, 'A', 'Aula');
        await rename(world, 'A', name);
        await expireClaims(world);
        await world.sync();
        await expectInSync(world);
        await expectNothingToSend(world);
      },
    );

    it('is retired after kill -9 at its creation, when its row is gone', async () => {
      const world = await open(rooms({ retire: 'deactivate' }));
      await addRooms(world, 'A', 'B');
      await killAfterRequest(world, 'A', 'Room A');
      await world.sql`DELETE FROM rooms WHERE code = 'A'`;
      await expireClaims(world);
      await world.sync();
      expect(isActive(world, 'room_A')).toBe(false);
      await expectNothingToSend(world);
    });
  });
});
