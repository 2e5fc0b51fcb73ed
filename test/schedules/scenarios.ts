// Scenarios of processes and events around one object. Each scenario is small enough that every schedule with two preemptions
// can be played.
import type { Actor } from './actor.js';
import type { Cast, Scenario } from './explore.js';
import type { Room, StreamShape, Table, ThingRow } from './room.js';

export type Body = (cast: Cast, actor: Actor) => Promise<void>;

/** External ids that follow from the key alone. */
export const OWNED: StreamShape = { table: 'one', identifiedBy: 'id', prefix: 'x_' };
/** External ids of another column than the key: a row may come back under another key. */
const CODED: StreamShape = { table: 'one', identifiedBy: 'code', prefix: 'y_' };
const NOTED: StreamShape = { ...CODED, hasNotes: true };
/** Never touched, so that no source is empty. Of each table another one. */
const beside = (table: Table): ThingRow => ({ id: `9${table}`, code: `beside ${table}`, name: 'beside' });

export const row = (id: string, name: string, more: Partial<ThingRow> = {}): ThingRow => ({
  id,
  code: `c${id}`,
  name,
  ...more,
});
export const quiet = (rows: readonly ThingRow[], gone: readonly string[] = []) => ({
  rows,
  gone,
  push: false,
});

/** Syncs rows, changes them, and plans a sync of the change. */
async function plannedSync(
  room: Room,
  before: readonly ThingRow[],
  { rows = [], gone = [] }: { rows?: readonly ThingRow[]; gone?: readonly string[] },
): Promise<Record<string, number>> {
  await syncRows(room, 'one', before);
  if (room.shapes.length > 1) await syncRows(room, 'two', []);
  await room.change('one', quiet(rows, gone));
  const updates = rows.length > 0 ? [{ table: 'one', keys: rows.map(({ id }) => id) } as const] : [];
  const retirements = gone.length > 0 ? [{ table: 'one', keys: gone, operation: 'retire' } as const] : [];
  return { run: await room.queueSync(...updates, ...retirements) };
}

/** Brings these rows, and one row more, into the mirror and to the service. */
export async function syncRows(room: Room, table: Table, rows: readonly ThingRow[]): Promise<void> {
  const all = [beside(table), ...rows];
  await room.change(table, quiet(all));
  await room.plain.work(await room.queueSync({ table, keys: all.map(({ id }) => id) }), true);
}

/** Works the run that is planned. */
export const workRun: Body = ({ process, known }) => process.work(known['run'] ?? 0, true);
/** Takes from the inbox each time that one of these actors has changed the mirror. */
const workInboxAfter =
  (...names: string[]): Body =>
  async ({ process, actorOf }, actor) => {
    for (const name of names) {
      await actor.step({ label: 'hears of a change', when: () => !actorOf(name).isAlive() }, () => undefined);
      await process.takeFromInbox();
    }
  };
export const workInbox = workInboxAfter('M');
/** Makes a transaction in the mirror after the actor `name` has ended. */
const transactionAfter =
  (name: string | undefined, ...change: Parameters<Room['change']>): Body =>
  async ({ room, actorOf, mirrorChanged }, actor) => {
    const when = () => name === undefined || !actorOf(name).isAlive();
    await actor.step({ label: 'a transaction in the mirror', when }, async () => {
      await room.change(...change);
      await mirrorChanged();
    });
  };
export const transaction = (...change: Parameters<Room['change']>) => transactionAfter(undefined, ...change);

/** Kills the process. A write that it has sent may still be carried out. */
const kill =
  (name: string): Body =>
  async ({ actorOf, interrupted }, actor) => {
    const target = actorOf(name);
    let request: ReturnType<Actor['next']>;
    await actor.step({ label: `${name} is killed`, when: target.isAlive }, () => {
      request = target.next();
      interrupted();
      target.kill();
    });
    const sent = request?.request;
    if (sent?.place === 'request' && sent.isWrite)
      await actor.step({ label: `the write of ${name} is carried out` }, () => sent.process());
  };

/** Breaks the connection during a write, which the service may carry out much later. */
const loseAnswer =
  (name: string): Body =>
  async ({ actorOf, interrupted }, actor) => {
    const target = actorOf(name);
    let sent: NonNullable<ReturnType<Actor['next']>>['request'];
    const isWriting = () => target.next()?.request?.isWrite === true;
    await actor.step({ label: `the connection of ${name} breaks`, when: isWriting }, () => {
      sent = target.next()?.request;
      interrupted();
      sent?.lose();
    });
    if (sent?.place === 'request')
      await actor.step({ label: `the write of ${name} is carried out late` }, () => sent?.process());
  };

/** Lets a minute pass while every process stands still, so that claims expire. */
const minute: Body = async ({ room, isWorking, interrupted }, actor) => {
  await actor.step({ label: 'a minute passes', when: isWorking }, async () => {
    interrupted();
    await room.passTime();
  });
};

/** Enters a note in the object of the code A, as a person. */
const editNote: Body = async ({ room, edit }, actor) => {
  await actor.step({ label: 'a person enters a note' }, () => edit(`${NOTED.prefix}${room.name}_A`));
};
const noted = (id: string, name: string, note = 'first') => row(id, name, { code: 'A', note });
/** Plans the update of a noted row. */
const notedUpdate = (to: ThingRow) => (room: Room) => plannedSync(room, [noted('1', 'old')], { rows: [to] });
/** Makes a scenario of a batch that writes an object, and a person who edits the object. `change` changes its row once more. */
const edited = (
  name: string,
  to: ThingRow,
  change?: Parameters<Room['change']>[1],
  events: Scenario['events'] = {},
): Scenario => ({
  name: `edited-${name}`,
  streams: [NOTED],
  prepare: notedUpdate(to),
  processes: { A: workRun },
  events: { ...(change && { M: transaction('one', change) }), E: editNote, ...events },
});
/** Adds another process, which works the inbox. */
const besideInbox = (scenario: Scenario): Scenario => ({
  ...scenario,
  processes: { ...scenario.processes, B: workInbox },
});
const RENAMED = noted('1', 'new');
const RENOTED = noted('1', 'old', 'second');

const NEW_KEY = transaction('one', { gone: ['1'], rows: [row('2', 'new', { code: 'c1' })] });
const NEWER = transaction('one', { rows: [row('1', 'newer')] });
const TAKEN_OVER = transaction('one', {
  rows: [row('1', 'new', { code: 'C' }), row('2', 'newest', { code: 'A' })],
});
export const updateOf = (room: Room) => plannedSync(room, [row('1', 'old')], { rows: [row('1', 'new')] });
/** Plans updates of the rows with the codes A and B to these names. */
const exchange = (room: Room, [one, two]: readonly [string, string]) =>
  plannedSync(room, [row('1', 'one', { code: 'A' }), row('2', 'two', { code: 'B' })], {
    rows: [row('1', one, { code: 'A' }), row('2', two, { code: 'B' })],
  });

const CHILD_AND_PARENT: readonly StreamShape[] = [
  { ...OWNED, parent: 'two' },
  { ...CODED, table: 'two', prefix: 'bld_' },
];
/** Plans the update of a child whose parent `p` has the code A. */
async function childUpdate(room: Room): Promise<Record<string, number>> {
  await syncRows(room, 'two', [row('p', 'parent', { code: 'A' })]);
  await syncRows(room, 'one', [row('1', 'child', { parent: 'p' })]);
  await room.change('one', quiet([row('1', 'renamed child', { parent: 'p' })]));
  return { run: await room.queueSync({ table: 'one', keys: ['1'] }) };
}

/** Makes a scenario for both kinds of external ids: of the key, and of another column. */
function bothKinds(name: string, scenario: Omit<Scenario, 'name' | 'streams'>): Scenario[] {
  return [
    { ...scenario, name: `${name}-owned`, streams: [OWNED] },
    { ...scenario, name: `${name}-coded`, streams: [CODED] },
  ];
}

/** An object that somebody made by hand, and its external id. No other room has its name. */
const byHand = (room: Room) => ({ extId: `hand_${room.name}`, name: `hall ${room.name}` });
const addByHand = (room: Room) => {
  const { extId, name } = byHand(room);
  room.service.addObject({ extId, typeId: 'thing', fields: [{ fieldId: 'thing.name', values: [name] }] });
};
const named = (room: Room) => quiet([row('1', byHand(room).name)]);
const onlyOneLink = async (room: Room) => {
  const links = [...(await room.readLinks())];
  return links.length === 1 ? [] : [`guarantee 5: ${links.length} keys are linked to the object, not 1`];
};

/** Expects that the object belongs to its linked row, or else to the row whose template makes its external id. */
const eitherOwner = async (room: Room) => {
  const records = await room.sql<{ local_key: string; status: string }[]>`
    SELECT local_key, status FROM slotsync.records
    WHERE stream = ANY (${room.names}) AND local_key IN ('1', '2') ORDER BY local_key`;
  const { size } = await room.readLinks();
  const synced = records.flatMap(({ local_key, status }) => (status === 'synced' ? local_key : []));
  const expected = size === 1 ? '2' : '1,2';
  if (synced.join() === expected) return [];
  return [`guarantee 5: with ${size} links the records ${synced.join()} are synced, not ${expected}`];
};

/** Expects that a gate was approved exactly once, and that its held key was deactivated. */
const onlyOneAnswer = async (room: Room) => {
  const [found] = await room.sql<{ approvals: number; retired: number }[]>`
    SELECT (SELECT count(*)::int FROM slotsync.actions WHERE action = 'approve' AND starts_with(subject, ${`${room.name}_`})) AS approvals,
      (SELECT count(*)::int FROM slotsync.records WHERE stream = ANY (${room.names}) AND status = 'retired') AS retired`;
  const { approvals = 0, retired = 0 } = found ?? {};
  return approvals === 1 && retired === 1
    ? []
    : [`guarantee 6: ${approvals} approvals of a gate, ${retired} retired`];
};

export const SCENARIOS: readonly Scenario[] = [
  {
    name: 'answers',
    streams: [{ ...OWNED, limits: { retire: 0 } }],
    async prepare(room) {
      await syncRows(room, 'one', [row('1', 'held')]);
      await room.change('one', quiet([], ['1']));
      const run = await room.startSync();
      await room.plain.work(run);
      return { run };
    },
    processes: {
      A: ({ process, known }) => process.approve(known['run'] ?? 0),
      B: ({ process, known }) => process.approve(known['run'] ?? 0),
      R: async ({ process, known }) => void (await process.reject(known['run'] ?? 0)),
    },
    judge: onlyOneAnswer,
  },
  {
    name: 'match',
    streams: [
      { ...OWNED, match: true },
      { ...OWNED, table: 'two', prefix: 'z_', match: true },
    ],
    async prepare(room) {
      addByHand(room);
      await room.change('one', named(room));
      await room.change('two', named(room));
      return {
        one: await room.queueSync({ table: 'one', keys: ['1'] }),
        two: await room.queueSync({ table: 'two', keys: ['1'] }),
      };
    },
    processes: {
      A: ({ process, known }) => process.work(known['one'] ?? 0, true),
      B: ({ process, known }) => process.work(known['two'] ?? 0, true),
    },
    refused: ['match_ambiguous', 'external_id_shared'],
    judge: onlyOneLink,
  },
  ...bothKinds('match-crash', {
    async prepare(room) {
      addByHand(room);
      await room.change('one', named(room));
      return { run: await room.queueSync({ table: 'one', keys: ['1'] }) };
    },
    processes: { A: workRun, B: workInbox },
    events: {
      M: ({ room, ...cast }, actor) =>
        transaction('one', { rows: [row('3', `another of ${room.name}`)] })({ room, ...cast }, actor),
      K: kill('A'),
    },
    judge: onlyOneLink,
  }).map((scenario) => ({
    ...scenario,
    streams: scenario.streams.map((shape) => ({ ...shape, match: true as const })),
  })),
  ...bothKinds('link', {
    async prepare(room) {
      await syncRows(room, 'one', []);
      await room.change('one', quiet([row('1', 'owner'), row('2', 'linked')]));
      return { run: await room.queueSync({ table: 'one', keys: ['1'] }) };
    },
    processes: {
      A: workRun,
      async B({ process, room }) {
        const [shape] = room.shapes;
        if (!shape) return;
        const extId = room.extIdOf(shape, row('1', 'owner'));
        // As the command does, which links only to what it has just seen at the service.
        const there = room.service.object(extId);
        if (!there) room.service.putObject({ extId, typeId: 'thing' });
        await process.link('one', '2', extId);
        await process.takeFromInbox();
        await room.change('one', { rows: [row('2', 'linked, and changed')] });
        await process.takeFromInbox();
      },
    },
    refused: ['external_id_shared'],
    judge: eitherOwner,
  }),
  ...bothKinds('rename', {
    prepare: (room) => plannedSync(room, [row('1', 'old')], { gone: ['1'], rows: [row('2', 'new')] }),
    processes: {
      A: workRun,
      async B({ process, mirrorChanged }) {
        await process.rename('one', '1', '2');
        await mirrorChanged();
        await process.takeFromInbox();
      },
    },
  }),
  {
    name: 'new-key',
    streams: [CODED],
    prepare: updateOf,
    processes: { A: workRun, B: workInbox },
    events: { M: NEW_KEY },
  },
  {
    name: 'retirement',
    streams: [{ ...CODED, unlessReserved: true }],
    prepare: (room) => plannedSync(room, [row('1', 'old')], { gone: ['1'] }),
    processes: { A: workRun, B: workInbox },
    events: { M: transaction('one', { rows: [row('2', 'new', { code: 'c1' })] }) },
  },
  {
    name: 'planners',
    streams: [OWNED, { ...OWNED, table: 'two', prefix: 'z_' }],
    async prepare(room) {
      await room.change('one', quiet([row('1', 'one')]));
      await room.change('two', quiet([row('1', 'two')]));
      return { run: await room.startSync() };
    },
    sharesRun: true,
    processes: {
      A: ({ process, known }) => process.work(known['run'] ?? 0),
      B: ({ process, known }) => process.work(known['run'] ?? 0),
    },
  },
  ...bothKinds('late-write', {
    prepare: updateOf,
    processes: { A: workRun, B: workInbox },
    events: { M: NEWER, L: loseAnswer('A') },
  }),
  {
    name: 'other-stream',
    streams: [CODED, { ...CODED, table: 'two' }],
    prepare: updateOf,
    processes: { A: workRun, B: workInbox },
    events: {
      M: transaction('one', { gone: ['1'] }, { table: 'two', rows: [row('1', 'moved')] }),
    },
  },
  {
    name: 'other-stream-retirement',
    streams: [CODED, { ...CODED, table: 'two' }],
    prepare: (room) => plannedSync(room, [row('1', 'old')], { gone: ['1'] }),
    processes: { A: workRun, B: workInbox },
    events: { M: transaction('two', { rows: [row('1', 'moved')] }) },
  },
  ...bothKinds('crash', {
    prepare: (room) => plannedSync(room, [row('1', 'old')], { rows: [row('1', 'new'), row('3', 'created')] }),
    processes: { A: workRun, B: workInbox },
    events: { M: NEWER, K: kill('A') },
  }),
  {
    name: 'parent',
    streams: CHILD_AND_PARENT,
    prepare: childUpdate,
    processes: {
      A: workRun,
      async B(cast, actor) {
        await workInbox(cast, actor);
        await cast.process.retry('two', 'p');
        await cast.room.change('two', { rows: [row('p', 'parent', { code: 'B' })] });
        await cast.process.takeFromInbox();
      },
    },
    events: { M: transaction('two', { rows: [row('p', 'parent', { code: 'B' })] }) },
    left: (room) => [`bld_${room.name}_A`],
  },
  ...bothKinds('beside', {
    prepare: updateOf,
    processes: { A: workRun, B: workInbox },
    events: { M: NEWER },
  }),
  ...bothKinds('frozen', {
    prepare: updateOf,
    processes: { A: workRun, B: workInbox },
    events: { M: NEWER, T: minute },
  }),
  {
    name: 'frozen-new-key',
    streams: [CODED],
    prepare: updateOf,
    processes: { A: workRun, B: workInbox },
    events: { M: NEW_KEY, T: minute },
  },
  {
    name: 'created-meanwhile',
    streams: [OWNED],
    async prepare(room) {
      await syncRows(room, 'one', []);
      return {};
    },
    processes: { A: ({ process }) => process.sync(), B: workInbox },
    events: { M: transaction('one', { rows: [row('1', 'created')] }) },
  },
  ...bothKinds('set-back', {
    prepare: updateOf,
    processes: { A: workRun, B: workInbox },
    events: { M: transaction('one', { rows: [row('1', 'old')] }), L: loseAnswer('A') },
  }),
  {
    name: 'undo',
    streams: [CODED],
    prepare: (room) =>
      plannedSync(room, [row('1', 'first', { code: 'A' })], {
        rows: [row('1', 'first', { code: 'C' }), row('2', 'second', { code: 'A' })],
      }),
    processes: { A: workRun, B: workInbox },
    events: { M: transaction('one', { gone: ['2'], rows: [row('1', 'first', { code: 'A' })] }) },
  },
  {
    name: 'undo-retired',
    streams: [CODED],
    async prepare(room) {
      const [given, taken] = [row('1', 'first', { code: 'C' }), row('2', 'second', { code: 'A' })];
      await syncRows(room, 'one', [row('1', 'first', { code: 'A' })]);
      await room.change('one', quiet([given, taken]));
      await room.plain.work(await room.queueSync({ table: 'one', keys: ['1', '2'] }), true);
      await room.change('one', quiet([], ['2']));
      return { run: await room.queueSync({ table: 'one', keys: ['2'], operation: 'retire' }) };
    },
    processes: { A: workRun, B: workInbox },
    events: { M: transaction('one', { rows: [row('1', 'first', { code: 'A' })] }) },
  },
  {
    name: 'late-taken-over',
    streams: [CODED],
    prepare: (room) =>
      plannedSync(room, [row('1', 'old', { code: 'A' })], { rows: [row('1', 'new', { code: 'A' })] }),
    processes: { A: workRun, B: workInbox },
    events: { M: TAKEN_OVER, L: loseAnswer('A') },
  },
  {
    name: 'swap',
    streams: [CODED],
    prepare: (room) => exchange(room, ['new one', 'two']),
    processes: { A: workRun, B: workInbox },
    events: {
      M: transaction('one', { rows: [row('1', 'one', { code: 'B' }), row('2', 'two', { code: 'A' })] }),
    },
  },
  {
    name: 'chain',
    streams: [CODED],
    prepare: (room) => exchange(room, ['one', 'new two']),
    processes: { A: workRun, B: workInbox },
    events: {
      M: transaction('one', { rows: [row('1', 'one', { code: 'B' }), row('2', 'two', { code: 'C' })] }),
    },
  },
  edited('itself', RENOTED),
  besideInbox(edited('beside', RENAMED, { rows: [noted('1', 'newer')] })),
  edited('set-back', RENOTED, { rows: [noted('1', 'newer')] }),
  edited('new-key', RENAMED, { gone: ['1'], rows: [noted('2', 'newer')] }),
  edited('new-key-itself', RENAMED, { gone: ['1'], rows: [noted('2', 'newer', 'second')] }),
  edited('late', RENAMED, undefined, { L: loseAnswer('A') }),
  edited('late-set-back', RENOTED, { rows: [noted('1', 'newer')] }, { L: loseAnswer('A') }),
  edited('crash', RENOTED, { rows: [noted('1', 'newer')] }, { K: kill('A') }),
  {
    ...edited('retired', RENAMED, { rows: [noted('2', 'second')] }),
    prepare: (room) => plannedSync(room, [noted('1', 'old')], { gone: ['1'] }),
  },
  {
    name: 'there-and-back',
    streams: [CODED, { ...CODED, table: 'two' }],
    prepare: updateOf,
    processes: { A: workRun, B: workInboxAfter('M', 'N') },
    events: {
      M: transaction('one', { gone: ['1'] }, { table: 'two', rows: [row('1', 'moved')] }),
      N: transactionAfter('M', 'one', { rows: [row('1', 'old')] }, { table: 'two', gone: ['1'] }),
    },
  },
  {
    name: 'key-and-code',
    streams: [
      { ...OWNED, prefix: 'y_' },
      { ...CODED, table: 'two' },
    ],
    prepare: updateOf,
    processes: { A: workRun, B: workInboxAfter('M', 'N') },
    events: {
      M: transaction('one', { gone: ['1'] }, { table: 'two', rows: [row('7', 'moved', { code: '1' })] }),
      N: transactionAfter('M', 'one', { rows: [row('1', 'old')] }, { table: 'two', gone: ['7'] }),
    },
  },
  {
    name: 'retired-comes-back',
    streams: [CODED],
    async prepare(room) {
      await syncRows(room, 'one', [row('1', 'first', { code: 'A' })]);
      await room.change('one', quiet([], ['1']));
      const run = await room.queueSync({ table: 'one', keys: ['1'], operation: 'retire' });
      await room.plain.work(run, true);
      return {};
    },
    processes: { A: ({ process }) => process.sync(), B: workInboxAfter('M', 'N') },
    events: {
      M: transaction('one', { rows: [row('2', 'second', { code: 'A' })] }),
      N: transactionAfter('M', 'one', { gone: ['2'], rows: [row('1', 'first', { code: 'A' })] }),
    },
  },
  {
    name: 'retry-taken-over',
    streams: [CODED],
    async prepare(room) {
      await syncRows(room, 'one', [row('1', 'old', { code: 'A' })]);
      await room.change('one', quiet([row('1', 'old', { code: 'C' })]));
      await room.plain.work(await room.queueSync({ table: 'one', keys: ['1'] }), true);
      return {};
    },
    processes: {
      async A({ process }) {
        await process.retry('one', '1');
        await process.sync();
      },
      B: workInbox,
    },
    events: { M: transaction('one', { rows: [row('2', 'newest', { code: 'A' })] }) },
  },
  {
    name: 'parent-taken-over',
    streams: CHILD_AND_PARENT,
    prepare: childUpdate,
    processes: { A: workRun, B: workInbox },
    events: {
      M: transaction('two', {
        rows: [row('p', 'parent', { code: 'B' }), row('q', 'another parent', { code: 'A' })],
      }),
    },
  },
  {
    name: 'parent-forgotten',
    streams: CHILD_AND_PARENT,
    prepare: childUpdate,
    processes: { A: workRun, B: workInboxAfter('M', 'N') },
    events: {
      M: transaction('two', { gone: ['p'], rows: [row('q', 'another parent', { code: 'A' })] }),
      N: transactionAfter('M', 'two', { rows: [row('p', 'parent', { code: 'B' })] }),
    },
  },
];
