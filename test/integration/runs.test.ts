// What a run reports when something in it fails, and what it completes all the same.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { readBatch } from '../../src/state/runs/batches.js';
import { failBatch } from '../../src/state/runs/finish-batch.js';
import {
  addRooms,
  codes,
  expectInSync,
  expectNothingToSend,
  keepRoomWorlds,
  rename,
  rooms,
  roomsAndCourses,
} from '../support/room-worlds.js';

const open = keepRoomWorlds();

describe('run: one', () => {
  it('with a type or field the service does not know ends before the first write, with the nearest names', async () => {
    const config = rooms({ type: 'rom', fields: { 'room.nam': 'name', 'room.seats': 'seats' } });
    const schema = { types: [{ extId: 'room' }], fields: [{ extId: 'room.name' }, { extId: 'room.seats' }] };
    const world = await open(config, { sandbox: { schema } });
    await addRooms(world, 'A');
    const { run, errors } = await world.sync();
    expect(errors).toEqual([]);
    expect(run).toMatchObject({ status: 'failed', errorCode: 'configuration' });
    expect(run.errorMessage).toMatch(/type 'rom' \(streams\.rooms\); did you mean 'room'\?/);
    expect(run.errorMessage).toMatch(/field 'room\.nam' \(streams\.rooms\); did you mean 'room\.name'\?/);
    expect(world.writes()).toEqual([]);
    expect(await world.recordsOf('rooms')).toEqual({});

    world.configure(rooms());
    await world.sync();
    await expectInSync(world);
  });

  it('with one broken source fails for it alone', async () => {
    const world = await open(roomsAndCourses({ from: 'lectures', references: {} }));
    await addRooms(world, 'A');
    const { run } = await world.sync();
    expect(run).toMatchObject({
      status: 'partial',
      errorCode: 'mirror_source',
      counts: { rooms: { synced: 1 } },
    });
    expect(run.errorMessage).toMatch(/^courses: .*lectures/);
    await expectInSync(world);
  });

  it('whose key is not unique sends nothing of that stream', async () => {
    const world = await open(roomsAndCourses({ key: 'name', externalId: 'course_{name}', references: {} }));
    await addRooms(world, 'A');
    await world.sql`INSERT INTO courses VALUES ('1', 'same'), ('2', 'same'), ('3', 'own')`;
    const { run } = await world.sync();
    expect(run).toMatchObject({ status: 'partial', errorCode: 'key_not_unique' });
    expect(run.errorMessage).toContain("'same'");
    expect(world.sandbox.objects().map(({ extId }) => extId)).toEqual(['room_A']);
    expect(await world.recordsOf('courses')).toEqual({});
  });

  it('with a key that was withdrawn ends with the reason, and its records go with the next', async () => {
    const world = await open(rooms());
    await addRooms(world, 'A');
    await world.sync();
    await rename(world, 'A', 'Aula');
    world.sandbox.failNext({ path: '/objects/find', fault: 'status', status: 403, times: 2 });
    const { run } = await world.sync();
    expect(run).toMatchObject({ status: 'failed', errorCode: 'unauthorized' });
    expect(await world.recordsOf('rooms')).toMatchObject({
      A: { status: 'failed', error_code: 'unauthorized' },
    });
    await world.sync();
    await expectInSync(world);
  });

  it('of several batches goes on past one that is given up', async () => {
    const world = await open(rooms({ batchSize: 2 }));
    await addRooms(world, 'A', 'B', 'C', 'D');
    const { runId, queue } = await world.plan();
    const [one = 0, ...rest] = queue;
    const batch = await readBatch(world.state.db, one);
    if (!batch) throw new Error('no batch');
    await failBatch(world.state, batch, { code: 'service_failed', message: 'answered 500' });
    const { run } = await world.finish(runId, rest);
    expect(run).toMatchObject({ status: 'partial', counts: { rooms: { synced: 2, failed: 2 } } });
    await world.sync();
    await expectInSync(world);
  });

  it('over failures of every kind ends with every object as its row says', async () => {
    const schedule = fc.record({
      status500: fc.double({ min: 0, max: 0.15, noNaN: true }),
      reset: fc.double({ min: 0, max: 0.15, noNaN: true }),
      loseAnswer: fc.double({ min: 0, max: 0.15, noNaN: true }),
      brokenJson: fc.double({ min: 0, max: 0.15, noNaN: true }),
    });
    const world = await open(
      rooms({ batchSize: 4, retire: 'deactivate', limits: { retire: { count: 100 } } }),
    );
    await fc.assert(
      fc.asyncProperty(
        schedule,
        fc.array(fc.array(fc.nat({ max: 14 }), { maxLength: 8 }), { maxLength: 4 }),
        async (faults, edits) => {
          await world.sql`DELETE FROM rooms`;
          await addRooms(world, ...codes(15));
          world.sandbox.setFaults(faults);
          for (const [step, touched] of edits.entries()) {
            await world.sync();
            for (const at of touched) {
              const code = codes(15)[at] ?? '';
              if (at % 5 === 4) await world.sql`DELETE FROM rooms WHERE code = ${code}`;
              else await rename(world, code, `step ${step}`);
            }
          }
          world.sandbox.setFaults({});
          await world.sync();
          await world.sync();
          const rows = await world.sql<
            { code: string; name: string }[]
          >`SELECT code, name FROM rooms ORDER BY code`;
          const there = world.sandbox
            .objects()
            .filter(({ active }) => active)
            .map(({ extId, fields }) => ({ code: extId.slice('room_'.length), name: fields[0]?.values[0] }));
          expect(there.toSorted((a, b) => (a.code < b.code ? -1 : 1))).toEqual(
            rows.map((row) => ({ ...row })),
          );
          await expectNothingToSend(world);
        },
      ),
      { numRuns: 8 },
    );
  });
});
