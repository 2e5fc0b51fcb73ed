// Guarantee 7
// A stream that refers to itself: a department below another department. One run sends parents before children, and sends one
// department of a circle twice.
import { describe, expect, it } from 'vitest';
import { cancelRun } from '../../src/state/runs/end-run.js';
import type { SlotsyncConfig } from '../../src/streams/config-schema.js';
import { verify } from '../../src/sync/verify/verify.js';
import type { Declaration } from '../support/campus.js';
import { expectNothingToSend } from '../support/room-worlds.js';
import type { World, WorldOptions } from '../support/world.js';
import { keepWorlds } from '../support/worlds.js';

const DEPARTMENTS: Declaration = {
  from: 'departments',
  key: 'code',
  type: 'department',
  externalId: 'dep_{code}',
  fields: { 'department.name': 'name' },
  references: { 'department.parent': { stream: 'departments', key: 'parent' } },
};
const departments = (changes: Partial<Declaration> = {}): SlotsyncConfig => ({
  streams: { departments: { ...DEPARTMENTS, ...changes } },
});

/** A service that refuses a reference to an object that was not stored before the call. */
const STRICT: WorldOptions = {
  sandbox: {
    references: 'stored',
    schema: {
      types: [{ extId: 'department' }],
      fields: [
        { extId: 'department.name', type: 'department' },
        { extId: 'department.parent', type: 'department', reference: 'department' },
        { extId: 'department.deputy', type: 'department', reference: 'department' },
      ],
    },
  },
};

/** The same service with finds that show each write at once. */
const CURRENT: WorldOptions = { ...STRICT, dialect: { findLagSeconds: 0 } };

const keep = keepWorlds();
async function open(config = departments(), options = STRICT): Promise<World> {
  const world = await keep(config, options);
  await world.sql`CREATE TABLE departments (code text PRIMARY KEY, name text, parent text, deputy text)`;
  return world;
}
/** Adds departments by code, each with the code of its parent. */
const add = (world: World, parents: Record<string, string | null>) =>
  world.sql`INSERT INTO departments SELECT key, 'Department ' || key, value FROM jsonb_each_text(${world.sql.json(parents)})`;
const parentOf = (world: World, code: string) => world.fieldsOf(`dep_${code}`)?.['department.parent'];

it('a tree of departments is sent by one run with parents before children, whatever the order of its keys', async () => {
  const world = await open(departments({ batchSize: 4, owns: 'object' }));
  // Each child's key is before that of its parent.
  const codes = Array.from({ length: 127 }, (_, at) => String(999 - at));
  await add(world, Object.fromEntries(codes.map((code, at) => [code, codes[Math.ceil(at / 2) - 1] ?? null])));
  const { run, errors } = await world.sync();
  expect(errors).toEqual([]);
  expect(run).toMatchObject({ status: 'succeeded', errorCode: null });
  expect(run.counts['departments']).toEqual({ synced: 127, unchanged: 0, deferred: 0, failed: 0, dead: 0 });
  expect(run.accepted?.['departments']).toEqual({ create: 127, update: 0, retire: 0 });
  for (const [at, code] of codes.entries())
    expect(parentOf(world, code)).toBe(at === 0 ? undefined : `dep_${codes[Math.ceil(at / 2) - 1]}`);
  expect(await world.drainInbox()).toEqual([]);
  await expectNothingToSend(world);
});

it('a circle of departments is sent by one run, with one of its departments sent twice', async () => {
  const world = await open();
  // A circle of one, of two, and of three with departments below it.
  const parents: Record<string, string> = {
    A: 'A',
    B: 'C',
    C: 'B',
    D: 'F',
    E: 'D',
    F: 'E',
    G: 'F',
    H: 'G',
  };
  await add(world, parents);
  const { run, errors } = await world.sync();
  expect(errors).toEqual([]);
  expect(run).toMatchObject({ status: 'succeeded', errorCode: null });
  expect(run.counts['departments']).toMatchObject({ synced: 8, deferred: 0 });
  expect(run.accepted?.['departments']).toEqual({ create: 8, update: 3, retire: 0 });
  for (const [code, parent] of Object.entries(parents)) expect(parentOf(world, code)).toBe(`dep_${parent}`);
  for (const record of Object.values(await world.recordsOf('departments')))
    expect(record).toMatchObject({ status: 'synced', waits_for: null, error_code: null });
  expect(await world.drainInbox()).toEqual([]);
  await expectNothingToSend(world);
  expect((await verify(world.verifying())).drifting).toBe(0);
});

/** Works `batches` batches of a sync, and then lets its process die. `lost`: the number of the batch whose answer is lost. */
async function crashAfter(world: World, batches: number, lost?: number): Promise<void> {
  const { runId, queue } = await world.plan();
  let [next = 0] = queue;
  for (let batch = 1; batch <= batches; batch++) {
    if (batch === lost) world.sandbox.failNext({ method: 'PUT', path: '/objects', fault: 'late' });
    const applying = world.apply(next);
    [next = 0] =
      batch === lost
        ? await applying.then(
            () => [],
            () => [],
          )
        : (await applying).queue;
  }
  await cancelRun(world.state.db, runId);
}

describe('an incomplete circle of departments', () => {
  // Guarantee 3
  it('is no drift after a crash, and is sent in full, whatever batch the crash follows', async () => {
    const world = await open();
    const crashes: [batches: number, lost?: number][] = [
      [1], // before the first write
      [2], // the wish for the second write is kept
      [3], // before the second write
      [2, 2], // the answer to the first write is lost
      [3, 3], // the answer to the second department is lost
      [4, 4], // the answer to the second write is lost
    ];
    for (const [at, [batches, lost]] of crashes.entries()) {
      await add(world, { [`A${at}`]: `B${at}`, [`B${at}`]: `A${at}` });
      await crashAfter(world, batches, lost);
      if (lost === undefined) expect((await verify(world.verifying())).drifting).toBe(0);
      if (lost === undefined && batches === 2) {
        const waits = (error_code: string, key: string) => ({
          status: 'deferred',
          error_code,
          waits_for: `["departments","${key}"]`,
        });
        const [A1, B1] = [waits('reference_circle', 'B1'), waits('reference_missing', 'A1')];
        expect(await world.recordsOf('departments')).toMatchObject({ A1, B1 });
        expect([world.sandbox.object('dep_A1')?.active, parentOf(world, 'A1')]).toEqual([true, undefined]);
      }
      await world.passLateWrites();
      world.sandbox.resetLate();
      await world.sync();
      const found = [`A${at}`, `B${at}`].map((code) => parentOf(world, code));
      expect([at, ...found]).toEqual([at, `dep_B${at}`, `dep_A${at}`]);
      expect(new Set(Object.values(await world.statusesOf('departments')))).toEqual(new Set(['synced']));
      await expectNothingToSend(world);
    }
  });

  it('waits for a department that is refused, and has all other departments sent', async () => {
    const world = await open();
    await add(world, { A: 'B', B: 'A', C: null });
    world.sandbox.refuseObject('dep_B', { status: 400, message: 'no' });
    await world.sync();
    expect(await world.statusesOf('departments')).toEqual({ A: 'deferred', B: 'failed', C: 'synced' });
    world.sandbox.allowObject('dep_B');
    await world.sync();
    expect(await world.statusesOf('departments')).toEqual({ A: 'synced', B: 'synced', C: 'synced' });
    expect(parentOf(world, 'A')).toBe('dep_B');
  });

  it('is broken in an incremental run when one of its departments has waited before', async () => {
    const world = await open();
    await add(world, { A: 'B' });
    await world.sync();
    expect(await world.statusesOf('departments')).toEqual({ A: 'deferred' });
    await add(world, { B: 'A' });
    const { runId, queue } = await world.planChanges('departments', 'B');
    await world.finish(runId, queue);
    await world.drainInbox();
    expect([parentOf(world, 'A'), parentOf(world, 'B')]).toEqual(['dep_B', 'dep_A']);
    // Or when it was given up before the other department came.
    await add(world, { C: 'D' });
    await world.sync();
    await world.sql`UPDATE slotsync.records SET waits_since = now() - interval '1 year' WHERE local_key = 'C'`;
    await world.sync();
    expect(await world.statusesOf('departments')).toMatchObject({ C: 'dead' });
    await add(world, { D: 'C' });
    await world.sync();
    await world.drainInbox();
    expect([parentOf(world, 'C'), parentOf(world, 'D')]).toEqual(['dep_D', 'dep_C']);
    expect(new Set(Object.values(await world.statusesOf('departments')))).toEqual(new Set(['synced']));
    await expectNothingToSend(world);
  });

  it('counts each of its departments once towards the limits', async () => {
    const world = await open(
      departments({ limits: { create: { count: 3, percent: 0 }, update: { count: 0, percent: 0 } } }),
    );
    await add(world, { 0: null });
    await world.sync();
    await add(world, { A: 'B', B: 'A' });
    expect((await world.sync()).run.status).toBe('succeeded');
    const [sent] =
      await world.sql`SELECT sum(records)::int AS records FROM slotsync.sent WHERE operation = 'create'`;
    expect(sent).toEqual({ records: 2 });
    await add(world, { C: 'C' });
    const { runId, queue } = await world.plan();
    const [again = 0] = (await world.apply(queue[0] ?? 0)).queue;
    await cancelRun(world.state.db, runId);
    expect(again).toBeGreaterThan(0);
    expect(await world.statusesOf('departments')).toMatchObject({ C: 'deferred' });
    // Its second write is no update, of which none may be sent.
    expect((await world.sync()).run).toMatchObject({ status: 'succeeded', holds: {} });
    expect(parentOf(world, 'C')).toBe('dep_C');
  });

  it('gets its omitted reference by the second write, with write: onCreate', async () => {
    const world = await open(departments({ write: 'onCreate' }), CURRENT);
    await add(world, { A: 'B', B: 'A', C: 'C' });
    await world.sync();
    expect(['A', 'B', 'C'].map((code) => parentOf(world, code))).toEqual(['dep_B', 'dep_A', 'dep_C']);
    world.sandbox.changeObject('dep_A', { fields: [{ fieldId: 'department.parent', values: ['dep_C'] }] });
    await world.sql`UPDATE departments SET name = 'new'`;
    await world.sync();
    expect(parentOf(world, 'A')).toBe('dep_C');
    await expectNothingToSend(world);
  });

  it('gets its omitted reference after a lost answer, with write: onCreate', async () => {
    const world = await open(departments({ write: 'onCreate' }), CURRENT);
    await add(world, { A: 'B', B: 'A' });
    await crashAfter(world, 2, 2);
    await world.passLateWrites();
    world.sandbox.resetLate();
    await world.sync();
    expect([parentOf(world, 'A'), parentOf(world, 'B')]).toEqual(['dep_B', 'dep_A']);
  });

  it('keeps the reference of an existing object, with write: onCreate', async () => {
    const world = await open(departments({ write: 'onCreate' }));
    await add(world, { X: null });
    await world.sync();
    const fields = [{ fieldId: 'department.parent', values: ['dep_X'] }];
    world.sandbox.addObject({ extId: 'dep_A', typeId: 'department', fields });
    await add(world, { A: 'B', B: 'A' });
    await world.sync();
    expect([parentOf(world, 'A'), parentOf(world, 'B')]).toEqual(['dep_X', 'dep_A']);
    await expectNothingToSend(world);
  });

  it('gets only its omitted reference by the second write, if its stream has create only', async () => {
    const world = await open(departments({ operations: ['create'] }));
    await add(world, { A: 'B', B: 'A', C: 'C' });
    world.sandbox.refuseObject('dep_B', { status: 400, message: 'no' });
    await world.sync();
    expect([parentOf(world, 'A'), parentOf(world, 'C')]).toEqual([undefined, 'dep_C']);
    world.sandbox.changeObject('dep_A', { fields: [{ fieldId: 'department.name', values: ['by hand'] }] });
    world.sandbox.allowObject('dep_B');
    await world.sync();
    expect(world.fieldsOf('dep_A')).toEqual({ 'department.name': 'by hand', 'department.parent': 'dep_B' });
    expect(await world.statusesOf('departments')).toEqual({ A: 'synced', B: 'synced', C: 'synced' });
    await expectNothingToSend(world);
  });
});

describe('a department', () => {
  it('waits for a parent that has no row, like the departments below it', async () => {
    const world = await open();
    await add(world, { A: 'none', B: 'A', C: 'B', D: null });
    const { run } = await world.sync();
    expect(run.counts['departments']).toMatchObject({ synced: 1, deferred: 3 });
    expect(await world.recordsOf('departments')).toMatchObject({
      A: { status: 'deferred', error_code: 'reference_missing', waits_for: '["departments","none"]' },
      C: { status: 'deferred', error_code: 'reference_missing', waits_for: '["departments","B"]' },
    });
    await add(world, { none: null });
    await world.sync();
    expect(Object.values(await world.statusesOf('departments'))).toEqual(
      Array.from({ length: 5 }, () => 'synced'),
    );
    expect(parentOf(world, 'C')).toBe('dep_B');
  });

  it('goes into the inbox when its incremental run is cancelled after its parent has arrived', async () => {
    const world = await open(departments({ batchSize: 2 }));
    await add(world, { A: 'B', B: null, C: null });
    const { runId, queue } = await world.planChanges('departments', 'A', 'B', 'C');
    await world.apply(queue[0] ?? 0);
    expect(await world.statusesOf('departments')).toMatchObject({ A: 'deferred', B: 'synced' });
    await cancelRun(world.state.db, runId);
    await world.drainInbox();
    expect(parentOf(world, 'A')).toBe('dep_B');
  });

  it('joins a circle of accepted departments by an ordinary update', async () => {
    const world = await open();
    await add(world, { A: null, B: 'A' });
    await world.sync();
    await world.sql`UPDATE departments SET parent = 'B' WHERE code = 'A'`;
    const { run } = await world.sync();
    expect(run.accepted?.['departments']).toMatchObject({ update: 1 });
    expect(parentOf(world, 'A')).toBe('dep_B');
    await expectNothingToSend(world);
  });

  it('is sent in a circle without its missing references first, and with all of them then', async () => {
    const reference = { stream: 'departments', key: 'deputy' };
    const world = await open(
      departments({ references: { ...DEPARTMENTS.references, 'department.deputy': reference } }),
    );
    await add(world, { A: 'B', B: 'A', C: 'A' });
    await world.sql`UPDATE departments SET deputy = 'C' WHERE code = 'A'`;
    const { run, errors } = await world.sync();
    expect(errors).toEqual([]);
    expect(run).toMatchObject({ status: 'succeeded', errorCode: null });
    expect(world.fieldsOf('dep_A')).toMatchObject({
      'department.parent': 'dep_B',
      'department.deputy': 'dep_C',
    });
    await expectNothingToSend(world);
  });

  it('is retired although other departments refer to it', async () => {
    const world = await open(departments({ retire: 'deactivate' }));
    await add(world, { A: null, B: 'A' });
    await world.sync();
    await world.sql`DELETE FROM departments WHERE code = 'A'`;
    await world.sync();
    expect(world.sandbox.object('dep_A')?.active).toBe(false);
    expect(parentOf(world, 'B')).toBe('dep_A');
    await expectNothingToSend(world);
  });
});

it('a circle whose reference has a rule gets its omitted reference', async () => {
  const world = await open();
  for (const write of ['changed', 'onCreate', 'whenEmpty'] as const) {
    const reference = { stream: 'departments', key: 'parent', write };
    world.configure(departments({ references: { 'department.parent': reference } }));
    const [a, b, c] = ['A', 'B', 'C'].map((code) => `${code} ${write}`) as [string, string, string];
    await add(world, { [a]: b, [b]: a, [c]: c });
    await world.sync();
    expect([a, b, c].map((code) => parentOf(world, code))).toEqual(
      [b, a, c].map((parent) => `dep_${parent}`),
    );
    await expectNothingToSend(world);
  }
});
