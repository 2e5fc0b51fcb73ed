// Scenarios of gates: freezes, approvals and cancellations beside batches and plans, and whole plans beside changes that arrive
// too late for them.
import { cancelRun } from '../../src/state/runs/end-run.js';
import { registerSchedule } from '../../src/state/schedules.js';
import { startRun } from '../../src/state/runs/start-run.js';
import { freezeStreams, unfreezeStreams } from '../../src/state/freezes.js';
import { writeDrift } from '../../src/state/drift.js';
import { markDue } from '../../src/state/streams.js';
import { startDue, startScheduled } from '../../src/sync/run/start-due-syncs.js';
import type { Scenario } from './explore.js';
import type { Room, StreamShape } from './room.js';
import {
  OWNED,
  quiet,
  row,
  syncRows,
  transaction,
  updateOf,
  workInbox,
  workRun,
  type Body,
} from './scenarios.js';

const HOUR = 60 * 60 * 1000;
/** Freezes all streams. */
const freeze: Body = async ({ room, freeze: note }, actor) => {
  await actor.step({ label: 'the streams are frozen' }, async () => {
    const endsAt = new Date(Date.now() + HOUR);
    await freezeStreams(room.plain.state.db, { streams: room.names, endsAt, reason: 'exams', by: 'ada' });
    note(true);
  });
};
const unfreezeAfter =
  (name: string): Body =>
  async ({ room, actorOf, freeze: note }, actor) => {
    await actor.step({ label: 'the freeze ends', when: () => !actorOf(name).isAlive() }, async () => {
      note(false);
      await room.plain.state.db.transaction(async (tx) => {
        await unfreezeStreams(tx, room.names);
        await markDue(tx, room.names, 'frozen');
      });
    });
  };
/** Lets a worker begin the due syncs after this actor has ended. */
const workDueAfter =
  (name: string): Body =>
  async ({ process, actorOf }, actor) => {
    await actor.step({ label: 'looks what is due', when: () => !actorOf(name).isAlive() }, () => undefined);
    for (const { id } of await startDue(process.deps)) await process.work(id);
  };
/** Deletes every finished run, as retention does. */
const prune: Body = async ({ room }, actor) => {
  await actor.step({ label: 'finished runs are deleted' }, async () => {
    await room.sql`DELETE FROM slotsync.runs WHERE finished_at IS NOT NULL AND streams && ${room.names}`;
  });
};
/** Requests a sync while another sync is at work, which makes the streams due. */
const syncOrDue: Body = async ({ process, room, actorOf }, actor) => {
  await actor.step({ label: 'asks for a sync', when: () => !actorOf('M').isAlive() }, () => undefined);
  const { db } = process.state;
  const request = { kind: 'sync', lane: 'sync', startedBy: 'command', streams: room.names } as const;
  const { run, started } = await startRun(db, request);
  if (started) await process.work(run.id);
  else await markDue(db, room.names, 'busy');
};
/** Lets a schedule of the streams come due. */
const syncOnSchedule: Body = async ({ process, room, actorOf }, actor) => {
  const name = `nightly_${room.name}`;
  await actor.step({ label: 'the schedule comes due', when: () => !actorOf('M').isAlive() }, async () => {
    await registerSchedule(room.plain.state.db, name, {
      pattern: '* * * * *',
      timezone: 'UTC',
      streams: room.names,
    });
    await room.sql`UPDATE slotsync.schedules SET registered_at = now() - interval '1 hour' WHERE name = ${name}`;
  });
  for (const { id } of await startScheduled(process.deps)) await process.work(id);
  await room.sql`DELETE FROM slotsync.schedules WHERE name = ${name}`;
};

const NO_UPDATES: StreamShape = { ...OWNED, limits: { create: 0, update: 0 } };
/** Prepares a gate that holds an update of row 1. */
async function heldUpdate(room: Room): Promise<Record<string, number>> {
  await syncRows(room, 'one', [row('1', 'old'), row('2', 'old')]);
  await forgetSent(room);
  await room.change('one', quiet([row('1', 'held')]));
  const run = await room.startSync();
  await room.plain.work(run);
  return { run };
}
/** Forgets what was sent, as after a day. */
const forgetSent = async (room: Room) => {
  await room.sql`DELETE FROM slotsync.sent WHERE stream = ANY (${room.names})`;
  await room.sql`UPDATE slotsync.records SET counted_as = NULL WHERE stream = ANY (${room.names})`;
};
/** Finds approvals that outlive their run. */
const noStrayApproval = async (room: Room) => {
  const stray = await room.sql<{ operation: string }[]>`
    SELECT operation FROM slotsync.gates AS g WHERE stream = ANY (${room.names}) AND allowed IS NOT NULL
      AND NOT EXISTS (SELECT FROM slotsync.runs AS r WHERE r.id = g.approved_run AND r.finished_at IS NULL)`;
  return stray.map(({ operation }) => `guarantee 6: an approval of ${operation} is left without its run`);
};
/** Expects the held update at the service if and only if an operator has approved it. */
const approvedIsSent = async (room: Room) => {
  const [found] = await room.sql<{ approvals: number }[]>`
    SELECT count(*)::int AS approvals FROM slotsync.actions WHERE action = 'approve' AND starts_with(subject, ${`${room.name}_`})`;
  const approvals = found?.approvals ?? 0;
  const [shape] = room.shapes;
  const object = shape && room.service.object(room.extIdOf(shape, row('1', '')));
  const name = object?.fields.find(({ fieldId }) => fieldId === 'thing.name')?.values.join();
  return (name === 'held') === approvals > 0
    ? []
    : [`guarantee 6: ${approvals} approvals, and the object is '${name}'`];
};

/** Approves the gates that are left, so that everything arrives. */
const approveAll = async (room: Room) => {
  for (let rounds = 0; rounds < 4; rounds++) {
    const [gate] = await room.sql<{ run: number }[]>`
      SELECT run_id::int AS run FROM slotsync.gates WHERE stream = ANY (${room.names}) LIMIT 1`;
    if (gate) await room.plain.approve(gate.run);
  }
  return [];
};

/** Changes the object of row 1 at the service, and records the drift as a verify does. */
async function changeByHand(room: Room): Promise<void> {
  const [shape] = room.shapes;
  const externalId = shape ? room.extIdOf(shape, row('1', '')) : '';
  room.service.putObject({
    extId: externalId,
    typeId: 'thing',
    fields: [{ fieldId: 'thing.name', values: ['by hand'] }],
  });
  await writeDrift(room.plain.state.db, { runId: 0, stream: room.nameOf('one') }, [
    { localKey: '1', externalId, kind: 'changed', fields: undefined, writtenAt: undefined },
  ]);
}

/** Makes a scenario of a whole sync, and a change that arrives in the middle of it. */
function besideWhole(
  name: string,
  changed: Parameters<Room['change']>[1],
  before: 'gate' | 'no gate',
): Scenario {
  return {
    name: `whole-${name}`,
    streams: [NO_UPDATES],
    async prepare(room) {
      if (before === 'gate') return heldUpdate(room);
      await syncRows(room, 'one', [row('1', 'old'), row('2', 'old')]);
      await forgetSent(room);
      return {};
    },
    processes: { A: ({ process }) => process.sync(), B: workInbox },
    events: { M: transaction('one', changed) },
    showsUnsent: true,
    judgeAtOnce: approveAll,
  };
}

export const GATE_SCENARIOS: readonly Scenario[] = [
  {
    name: 'freeze-batch',
    streams: [OWNED],
    prepare: updateOf,
    processes: { A: workRun, B: workDueAfter('U') },
    events: { F: freeze, U: unfreezeAfter('F') },
    showsUnsent: true,
  },
  {
    name: 'freeze-plan',
    streams: [OWNED],
    async prepare(room) {
      await syncRows(room, 'one', [row('1', 'old'), row('2', 'gone')]);
      await room.change('one', quiet([row('1', 'new')], ['2']));
      return {};
    },
    processes: { A: ({ process }) => process.sync(), B: workDueAfter('U') },
    events: { F: freeze, U: unfreezeAfter('F') },
    showsUnsent: true,
  },
  {
    name: 'approve-plan',
    streams: [NO_UPDATES],
    prepare: heldUpdate,
    processes: {
      A: ({ process, known }) => process.approve(known['run'] ?? 0),
      B: ({ process }) => process.sync(),
    },
    events: { D: prune },
    showsUnsent: true,
    judgeAtOnce: async (room) => [
      ...(await approvedIsSent(room)),
      ...(await noStrayApproval(room)),
      ...(await approveAll(room)),
    ],
  },
  {
    name: 'approve-cancel',
    streams: [NO_UPDATES],
    prepare: heldUpdate,
    processes: {
      A: ({ process, known }) => process.approve(known['run'] ?? 0),
      async C({ process, room }) {
        const [run] = await room.listOpenRuns();
        if (run) await cancelRun(process.state.db, run.id);
      },
    },
    events: { D: prune },
    showsUnsent: true,
    judgeAtOnce: async (room) => [...(await noStrayApproval(room)), ...(await approveAll(room))],
  },
  {
    name: 'repair-changed',
    streams: [OWNED],
    async prepare(room) {
      await syncRows(room, 'one', [row('1', 'old')]);
      await changeByHand(room);
      return {};
    },
    processes: { A: ({ process }) => process.run({ kind: 'repair', lane: 'verify' }), B: workInbox },
    events: { M: transaction('one', { rows: [row('1', 'newer')] }) },
    showsUnsent: true,
  },
  {
    name: 'repair-gone',
    streams: [OWNED],
    async prepare(room) {
      await syncRows(room, 'one', [row('1', 'old')]);
      await changeByHand(room);
      return {};
    },
    processes: { A: ({ process }) => process.run({ kind: 'repair', lane: 'verify' }), B: workInbox },
    events: { M: transaction('one', { gone: ['1'] }) },
    showsUnsent: true,
  },
  {
    name: 'backfill-retirement',
    streams: [{ ...OWNED, limits: { retire: 0 } }],
    async prepare(room) {
      await syncRows(room, 'one', [row('1', 'held')]);
      await room.change('one', quiet([], ['1']));
      await room.plain.sync();
      return {};
    },
    processes: {
      A: ({ process }) => process.run({ kind: 'backfill', lane: 'backfill', range: { keys: ['1'] } }),
    },
    showsUnsent: true,
    judgeAtOnce: approveAll,
  },
  besideWhole('updated', { rows: [row('1', 'newer')] }, 'no gate'),
  besideWhole('updated-gate', { rows: [row('2', 'newer')] }, 'gate'),
  besideWhole('updated-again', { rows: [row('1', 'newer')] }, 'gate'),
  besideWhole('created', { rows: [row('3', 'created')] }, 'gate'),
  besideWhole('gone', { gone: ['2'] }, 'no gate'),
  {
    ...besideWhole('pruned', { rows: [row('2', 'newer')] }, 'gate'),
    events: { M: transaction('one', { rows: [row('2', 'newer')] }), D: prune },
  },
  ...(['whole-busy', 'whole-schedule'] as const).map((name): Scenario => ({
    name,
    streams: [OWNED],
    async prepare(room) {
      await syncRows(room, 'one', [row('1', 'old')]);
      return {};
    },
    processes: {
      A: ({ process }) => process.sync(),
      B: name === 'whole-busy' ? syncOrDue : syncOnSchedule,
    },
    events: { M: transaction('one', quiet([row('1', 'new')])) },
    showsUnsent: true,
  })),
];
