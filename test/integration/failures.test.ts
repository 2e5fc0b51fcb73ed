// Guarantees 10, 11
// Every failure names its next step and a command: it is retried, it waits, or a person must act.
import { describe, expect, it } from 'vitest';
import { nextStep } from '../../src/documents/causes.js';
import { failureToPoint } from '../../src/documents/failures.js';
import { runDocument } from '../../src/documents/runs.js';
import { answerToText, contentToText } from '../../src/render/text.js';
import { readRunFacts } from '../../src/situation/run-facts.js';
import type { Disposition } from '../../src/errors/error-catalogue.js';
import { dispositionOf } from '../../src/errors/errors.js';
import { listFailures, type Failure } from '../../src/state/records/read/failures.js';
import { readBatch } from '../../src/state/runs/batches.js';
import { failBatch } from '../../src/state/runs/finish-batch.js';
import type { Run } from '../../src/state/runs/read-runs.js';
import type { SlotsyncConfig } from '../../src/streams/config-schema.js';
import { ROOMS } from '../support/campus.js';
import { expectNextStep } from '../support/next-step.js';
import { type World } from '../support/world.js';
import { keepWorlds } from '../support/worlds.js';

const openWorld = keepWorlds();

const CONFIG: SlotsyncConfig = {
  streams: { rooms: { ...ROOMS, externalId: 'room_{number}', retire: 'deactivate' } },
};

async function open(): Promise<World> {
  const world = await openWorld(CONFIG);
  await world.sql`CREATE TABLE rooms (code text PRIMARY KEY, name text, number text)`;
  await world.sql`INSERT INTO rooms VALUES ('A', 'a', '1'), ('B', 'b', '2')`;
  return world;
}

/** Returns the only failure, as `slotsync failures` reads it. */
async function failureIn(world: World, stream: string): Promise<Failure> {
  const failures = await listFailures(world.state.db, { stream, limit: 10 });
  expect(failures).toHaveLength(1);
  const [failure] = failures;
  if (!failure) throw new Error('no failure');
  return failure;
}

/** Returns the output of `slotsync sync` and `slotsync runs <run>`. */
async function printed(world: World, run: Run): Promise<string> {
  const document = runDocument(await readRunFacts(world.state.db, run), new Date());
  return answerToText(document, { timeZone: 'UTC', columns: Infinity });
}

const describeFailure = (failure: Failure) =>
  contentToText({ points: [failureToPoint(failure)] }, { timeZone: 'UTC', columns: Infinity }).join('\n');

describe('a record whose object is booked', () => {
  it('waits for the end of its bookings, and names them', async () => {
    const world = await open();
    await world.sync();
    const begin = Math.floor(Date.now() / 1000) + 3600;
    world.sandbox.addReservation({
      extId: 'res_1',
      begin,
      end: begin + 3600,
      objects: [{ typeId: 'room', objectId: 'room_1' }],
    });
    await world.sql`DELETE FROM rooms WHERE code = 'A'`;
    await world.sync();
    const failure = await failureIn(world, 'rooms');
    expect(failure).toMatchObject({ localKey: 'A', status: 'deferred', errorCode: 'still_reserved' });
    expectNextStep(nextStep(failure), 'wait');
    expect(describeFailure(failure)).toMatch(
      /rooms 'A' \(room_1\): deferred, the row was deleted, but its object is booked: res_1 at \d{4}-\d\d-\d\d \d\d:\d\d UTC\n {4}→ No action needed/,
    );
  });
});

describe('a batch that is given up', () => {
  it('notes its code and its message in its records', async () => {
    const world = await open();
    const { queue } = await world.plan();
    const batch = await readBatch(world.state.db, queue[0] ?? 0);
    if (!batch) throw new Error('no batch');
    await failBatch(world.state, batch, { code: 'service_failed', message: 'PUT /v1/objects answered 503' });
    const failures = await listFailures(world.state.db, { limit: 10 });
    expect(failures).toMatchObject([
      {
        localKey: 'A',
        status: 'failed',
        errorCode: 'service_failed',
        errorMessage: 'PUT /v1/objects answered 503',
      },
      { localKey: 'B', status: 'failed', errorCode: 'service_failed' },
    ]);
  });

  it('ends the waiting of its records for other records', async () => {
    const world = await open();
    const { queue } = await world.plan();
    await world.sql`INSERT INTO slotsync.records (stream, local_key, status, waits_for, waits_since)
      VALUES ('rooms', 'A', 'deferred', '["floors","1"]', now())`;
    const batch = await readBatch(world.state.db, queue[0] ?? 0);
    if (!batch) throw new Error('no batch');
    await failBatch(world.state, batch, { code: 'service_failed', message: 'PUT /v1/objects answered 503' });
    const [first] = await listFailures(world.state.db, { limit: 10 });
    expect(first).toMatchObject({ localKey: 'A', errorCode: 'service_failed', waitsFor: null });
  });

  it('leaves its records as they are if it has ended meanwhile', async () => {
    const world = await open();
    const { queue } = await world.plan();
    const batch = await readBatch(world.state.db, queue[0] ?? 0);
    if (!batch) throw new Error('no batch');
    await world.apply(batch.id);
    await failBatch(world.state, batch, { code: 'service_failed', message: 'PUT /v1/objects answered 503' });
    expect(await listFailures(world.state.db, { limit: 10 })).toEqual([]);
    expect(await readBatch(world.state.db, batch.id)).toMatchObject({ state: 'done' });
  });
});

describe('a run', () => {
  const situations: [code: string, disposition: Disposition, arrange: (world: World) => unknown][] = [
    [
      'configuration',
      'dead',
      (world) => world.sandbox.defineSchema({ types: [{ extId: 'rom' }], fields: [] }),
    ],
    [
      'key_null',
      'dead',
      (world) =>
        world.sql`ALTER TABLE rooms DROP CONSTRAINT rooms_pkey`
          .then(() => world.sql`ALTER TABLE rooms ALTER code DROP NOT NULL`)
          .then(() => world.sql`UPDATE rooms SET code = NULL`),
    ],
    ['service_unreachable', 'retry', ({ sandbox }) => sandbox.close()],
  ];

  it.each(situations)(
    'prints the reason and the next step when it fails for %s',
    async (code, disposition, arrange) => {
      const world = await open();
      await arrange(world);
      const { run, errors } = await world.sync();
      expect(run).toMatchObject({ status: 'failed', errorCode: code });
      for (const error of errors) expect(dispositionOf(error)).toBe(disposition);
      const text = await printed(world, run);
      expect(text).toContain(`Failed: ${run.errorMessage}`);
      expectNextStep(text, disposition === 'dead' ? 'person' : 'retry');
    },
  );

  it('names the causes of records out of sync, and the command that shows all causes', async () => {
    const world = await open();
    for (let at = 0; at < 9; at++) {
      await world.sql`INSERT INTO rooms VALUES (${`X${at}`}, 'x', ${`x${at}`})`;
      world.sandbox.refuseObject(`room_x${at}`, { status: 400, message: `no ${at}` });
    }
    const { run } = await world.sync();
    const text = await printed(world, run);
    expect(text).toMatch(/^- 9 records of rooms given up \(refused_400\), since /m);
    expect(text).toContain("rooms 'X0', rooms 'X1', rooms 'X2', rooms 'X3', rooms 'X4', …");
    expect(text).toContain("9 different reasons; that of 'X0': no 0");
    expectNextStep(text, 'person');
    expect(text).toMatch(/9 records are not in sync: slotsync failures/);
  });

  it('names the reason of held deactivations, and that a person must act', async () => {
    const world = await open();
    await world.sync();
    await world.sql`DELETE FROM rooms`;
    const { run } = await world.sync();
    expect(run.status).toBe('held');
    const text = await printed(world, run);
    expect(text).toMatch(
      /2 deactivations of rooms, held in run \d+\n {4}2 of 2 records would be deactivated, but the source is empty/,
    );
    expectNextStep(text, 'person');
  });
});
