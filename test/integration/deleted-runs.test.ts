// Guarantees 6, 11
// Finished runs decide nothing: the same is sent, held and due after each step of a history, with or without them.
import { expect, it } from 'vitest';
import { addChanges } from '../../src/state/inbox/add-changes.js';
import { readGates } from '../../src/state/gates/gates.js';
import { unfreezeStreams } from '../../src/state/freezes.js';
import { retryRecords } from '../../src/state/records/retry-records.js';
import { cancelRun } from '../../src/state/runs/end-run.js';
import { verify } from '../../src/sync/verify/verify.js';
import {
  backfill,
  deleteFinishedRuns,
  FEW,
  freeze,
  gatesOf,
  nextDay,
  passFreezes,
  reject,
  runOf,
  startRunOf,
  workDue,
} from '../support/gated-rooms.js';
import { addRooms, codes, keepRoomWorlds, rename, rooms } from '../support/room-worlds.js';
import type { World } from '../support/world.js';

const open = keepRoomWorlds();
const LIMITED = rooms({
  retire: 'deactivate',
  limits: { update: FEW, create: FEW, retire: FEW, repair: FEW, refused: { count: 2, percent: 20 } },
  batchSize: 2,
});

const renameAll = (world: World, some: readonly string[], name: string) =>
  world.sql`UPDATE rooms SET name = ${name} WHERE code = ANY (${[...some]})`;
const push = async (world: World, ...keys: string[]) => {
  await addChanges(world.state.db, 'rooms', keys);
  await world.drainInbox();
};
/** Returns the run that met the gate last, as `status` names it. */
async function runOfGate({ state }: World, operation: string): Promise<number> {
  const gate = (await readGates(state.db)).find((one) => one.operation === operation);
  if (!gate) throw new Error(`no gate of ${operation} is closed`);
  return gate.runId;
}
const approveGate = async (world: World, operation: string) =>
  world.approve(await runOfGate(world, operation), operation === '*' ? {} : { operation });

/** Lets the service accept every object again, and retries all records. */
async function allowAll(world: World): Promise<void> {
  for (const code of codes(8)) world.sandbox.allowObject(`room_${code}`);
  await retryRecords(world.state.db, { stream: 'rooms', keys: [] });
  await world.sync();
}

type Step = readonly [name: string, (world: World) => Promise<unknown>];

const HISTORY: readonly Step[] = [
  ['first filling', (world) => addRooms(world, ...codes(20)).then(() => world.sync())],
  [
    'updates beyond the limit',
    async (world) => [await nextDay(world), await renameAll(world, codes(3), 'a'), await world.sync()],
  ],
  ['a change beside them', async (world) => [await rename(world, 'r004', 'a'), await push(world, 'r004')]],
  ['they are rejected', async (world) => reject(world, await runOfGate(world, 'update'))],
  ['a nightly sync', (world) => world.sync()],
  ['they are approved', (world) => approveGate(world, 'update')],
  [
    'a freeze, and a sync',
    async (world) => [
      await nextDay(world),
      await freeze(world),
      await rename(world, 'r005', 'b'),
      await world.sync(),
    ],
  ],
  [
    'a backfill of a key in the freeze',
    async (world) => [await rename(world, 'r006', 'b'), await backfill(world, { keys: ['r006'] })],
  ],
  [
    'the freeze ends by its time, and a part is sent',
    async (world) => [await passFreezes(world), await push(world, 'r005')],
  ],
  ['a worker', (world) => workDue(world)],
  ['a forced backfill', (world) => backfill(world, { force: true })],
  ['a sync after it', (world) => world.sync()],
  ['a sync with --limit', (world) => runOf(world, { range: { limit: 1 } })],
  ['a run is cancelled', async (world) => cancelRun(world.state.db, (await world.plan()).runId)],
  [
    'a forced backfill is cancelled',
    async (world) => {
      const runId = await startRunOf(world, { kind: 'backfill', lane: 'backfill', range: { force: true } });
      await world.planRun(runId);
      await cancelRun(world.state.db, runId);
    },
  ],
  ['a sync after that', (world) => world.sync()],
  [
    'creates and retirements beyond their limits',
    async (world) => {
      await nextDay(world);
      await addRooms(world, 'x1', 'x2', 'x3');
      await world.sql`DELETE FROM rooms WHERE code IN ('r010', 'r011', 'r012')`;
      await world.sync();
    },
  ],
  ['the retirements are approved first', (world) => approveGate(world, 'retire')],
  ['the creates are approved', (world) => approveGate(world, 'create')],
  ['a nightly sync', (world) => world.sync()],
  [
    'objects drift, and are repaired beyond the limit',
    async (world) => {
      await world.sql`UPDATE slotsync.records SET updated_at = now() - interval '1 hour'`;
      for (const code of codes(3))
        world.sandbox.changeObject(`room_${code}`, {
          fields: [{ fieldId: 'room.name', values: ['by hand'] }],
        });
      await verify(world.verifying());
      await runOf(world, { kind: 'repair', lane: 'verify' });
    },
  ],
  ['a nightly sync', (world) => world.sync()],
  [
    'the service refuses many',
    async (world) => {
      await nextDay(world);
      world.configure(
        rooms({ retire: 'deactivate', batchSize: 2, limits: { refused: { count: 2, percent: 20 } } }),
      );
      for (const code of codes(8)) world.sandbox.refuseObject(`room_${code}`, { status: 400, message: 'no' });
      await renameAll(world, codes(10), 'c');
      await world.sync();
    },
  ],
  ['a change beside it', async (world) => [await rename(world, 'r015', 'c'), await push(world, 'r015')]],
  ['the rest is rejected', async (world) => reject(world, await runOfGate(world, '*'))],
  ['a nightly sync', (world) => world.sync()],
  ['the rest is approved', (world) => approveGate(world, '*')],
  ['the refused are tried again', allowAll],
  [
    'the service refuses all that there is to send',
    async (world) => {
      for (const code of codes(3)) world.sandbox.refuseObject(`room_${code}`, { status: 400, message: 'no' });
      await renameAll(world, codes(3), 'e');
      await world.sync();
    },
  ],
  ['a change after it', async (world) => [await rename(world, 'r015', 'e'), await push(world, 'r015')]],
  ['the refused are tried again', allowAll],
  [
    'a freeze of all, ended by an operator',
    async (world) => {
      await freeze(world, null);
      await rename(world, 'r016', 'd');
      await world.sync();
      await unfreezeStreams(world.state.db, ['rooms']);
      await world.sync();
    },
  ],
];

/** Returns everything that is sent, held and due, without times and numbers of runs. */
async function stand(world: World) {
  const { sql, sandbox } = world;
  return {
    objects: Object.fromEntries(
      sandbox
        .objects()
        .map(({ extId, active }) => [extId, [active, world.fieldsOf(extId ?? '')?.['room.name']]]),
    ),
    held: [...(await sql`SELECT local_key, operation, gate, reason FROM slotsync.held ORDER BY local_key`)],
    gates: await gatesOf(world),
    facts: (await readGates(world.state.db)).map(({ facts, samples, firstKeys }) => ({
      facts,
      samples,
      firstKeys,
    })),
    due: [
      ...(await sql`SELECT stream, due_since IS NOT NULL AS is_due, due_reason, problem->>'code' AS problem,
      synced_at IS NOT NULL AS is_synced FROM slotsync.streams`),
    ],
    records: [
      ...(await sql`SELECT local_key, status, error_code, in_doubt, resend, counted_as FROM slotsync.records ORDER BY local_key`),
    ],
    waiting: [...(await sql`SELECT local_key FROM slotsync.changes ORDER BY local_key`)],
    writes: world.writes().map(({ objects }) => objects),
  };
}

/** Returns the state after each step. `isDeleted`: whether finished runs are deleted after the step. */
async function play(isDeleted: (step: number) => boolean) {
  const world = await open(LIMITED);
  const stands: unknown[] = [];
  for (const [at, [name, step]] of HISTORY.entries()) {
    await step(world);
    if (isDeleted(at)) await deleteFinishedRuns(world);
    stands.push({ name, ...(await stand(world)) });
  }
  return stands;
}

it('deleting finished runs changes nothing of what is sent, held and due', async () => {
  const kept = await play(() => false);
  // The history has what it is about.
  const gates = new Set(
    (kept as { gates: string[] }[]).flatMap((one) => one.gates.map((gate) => gate.replace(/ \d+.*/, ''))),
  );
  expect([...gates].toSorted()).toEqual([
    'rooms * frozen',
    'rooms * refused',
    'rooms create limit',
    'rooms repair limit',
    'rooms retire limit',
    'rooms update limit',
  ]);
  expect(await play(() => true)).toEqual(kept);
  expect(await play((step) => step % 2 === 0)).toEqual(kept);
  expect(await play((step) => step % 3 === 1)).toEqual(kept);
});
