// Short random histories around a few objects: rows change values, codes, keys and tables, change back, and two processes
// work beside them, step by step; they are killed, lose answers, and their writes are carried out late. Values come from
// small sets, so that they return. Everything is drawn from the seed; in every second one nothing is interrupted.
import { createRandom } from '../../src/sandbox/request-steps.js';
import { messageOf } from '../../src/errors/errors.js';
import { createActor, type Actor, type PendingRequest } from './actor.js';
import type { ExploredWorld } from './explored-world.js';
import { bringToRest, createWatch, findFaults, readPresent } from './judge.js';
import { createRoom, type StreamShape, type Table, type ThingRow } from './room.js';
import { settleActor } from './scheduler.js';

const CODED: StreamShape = { table: 'one', identifiedBy: 'code', prefix: 'y_' };
const WORLDS: readonly (readonly StreamShape[])[] = [
  [CODED],
  [{ ...CODED, retire: 'keep' }],
  [CODED, { ...CODED, table: 'two', owns: 'object' }],
  // Keys of the one are codes of the other.
  [
    { ...CODED, identifiedBy: 'id' },
    { ...CODED, table: 'two' },
  ],
  [
    { table: 'one', identifiedBy: 'id', prefix: 'x_', parent: 'two' },
    { ...CODED, table: 'two' },
  ],
];
const NAMES = ['u', 'v', 'w'];
const CODES = ['A', 'B', 'C'];
const KEYS = ['1', '2', '3', '4'];
/** Keys that children refer to. */
const PARENTS = KEYS.slice(0, 2);
const STEPS_MOST = 3000;
/** Number of operations after which everything comes to rest and is judged, so that no later change hides a fault. */
const JUDGED_EVERY = 6;
/** Processes at work at the same time. */
const WORKERS = ['A', 'B'];

/** Rows that come and go, by table and key. */
type Rows = Readonly<Record<Table, ReadonlyMap<string, ThingRow>>>;

export interface HistoryOutcome {
  faults: string[];
  trace: string[];
}

/** Plays the first `operations` of a seed's history in a room of its own, lets everything come to rest, and judges it. */
export async function playHistory(
  world: ExploredWorld,
  seed: number,
  operations: number,
): Promise<HistoryOutcome> {
  const random = createRandom(seed);
  const pick = <T>(from: readonly T[]): T | undefined => from[Math.floor(random() * from.length)];
  const shapes = WORLDS[seed % WORLDS.length] ?? [];
  const isCalm = seed % 2 === 0;
  const room = createRoom(world, world.newName(), shapes);
  const watch = createWatch();
  const trace: string[] = [];
  const faults: string[] = [];
  const tables = shapes.map(({ table }) => table);
  let rows: Rows = { one: new Map(), two: new Map() };
  const former: Rows[] = [rows];
  let actors: Actor[] = [];
  /** Writes without an answer, which the service may still carry out. */
  let late: PendingRequest[] = [];

  /** Whether no two rows would give one external id. */
  const isValid = (next: Rows) => {
    const ids = shapes.flatMap((shape) =>
      [...next[shape.table].values()].map((row) => room.extIdOf(shape, row)),
    );
    return new Set(ids).size === ids.length;
  };
  const parentTable = shapes.find(({ parent }) => parent)?.parent;
  const keysOf = (table: Table) =>
    shapes.find((shape) => shape.table === table)?.identifiedBy === 'id' && !parentTable ? CODES : KEYS;

  async function change(next: Rows, what: string): Promise<void> {
    const parts = tables.map((table) => ({
      table,
      gone: [...rows[table].keys()].filter((id) => !next[table].has(id)),
      rows: [...next[table].values()].filter((row) => {
        const was = rows[table].get(row.id);
        return was?.code !== row.code || was.name !== row.name || was.parent !== row.parent;
      }),
    }));
    const [first, second] = parts;
    if (!first) return;
    const push = random() < 0.8;
    await room.change(first.table, { gone: first.gone, rows: first.rows, push }, second);
    former.push(next);
    rows = next;
    watch.mirrorChanged(await readPresent(room));
    const shown = tables.map((table) =>
      [...next[table].values()].map(({ id, code, name, parent }) =>
        [id, code, name, parent].filter(Boolean).join(' '),
      ),
    );
    trace.push(`${what}${push ? '' : ', not pushed'}: ${shown.map((one) => one.join(', ')).join(' | ')}`);
  }

  /** The rows with one of them set or taken away. */
  const put = (from: Rows, table: Table, row: ThingRow): Rows => ({
    ...from,
    [table]: new Map(from[table]).set(row.id, row),
  });
  const without = (from: Rows, table: Table, id: string): Rows => ({
    ...from,
    [table]: new Map([...from[table]].filter(([key]) => key !== id)),
  });

  /** The next event in the mirror; undefined: the drawn one is not possible. */
  function draw(): [what: string, next: Rows] | undefined {
    const table = pick(tables) ?? 'one';
    const all = tables.flatMap((of) => [...rows[of].values()].map((row) => ({ table: of, row })));
    const [some, another] = [pick(all), pick(all)];
    const [code, name, id] = [pick(CODES) ?? '', pick(NAMES) ?? '', pick(keysOf(table)) ?? ''];
    const parent = parentTable && table !== parentTable ? { parent: pick(PARENTS) ?? '1' } : {};
    const kind = random();
    if (kind < 0.12 || !some) {
      if (rows[table].has(id)) return undefined;
      return ['insert', put(rows, table, { id, code, name, ...parent })];
    }
    const { row } = some;
    if (kind < 0.24) return ['update', put(rows, some.table, { ...row, name })];
    if (kind < 0.32) return ['new code', put(rows, some.table, { ...row, code })];
    if (kind < 0.4) return ['delete', without(rows, some.table, row.id)];
    const gone = without(rows, some.table, row.id);
    if (kind < 0.52) {
      if (gone[table].has(id)) return undefined;
      // The object stays where the key of one table is the code of another.
      const stays = keysOf(table) === CODES ? row.code : id;
      return ['new key', put(gone, table, { ...row, id: stays, name: pick([name, row.name]) ?? name })];
    }
    if (kind < 0.68) {
      const taken = put(rows, some.table, { ...row, code });
      return taken[table].has(id) ? undefined : ['taken over', put(taken, table, { ...row, id, name })];
    }
    if (kind < 0.76) {
      if (!another || another.row === row) return undefined;
      const swapped = put(rows, some.table, { ...row, code: another.row.code });
      return ['swap', put(swapped, another.table, { ...another.row, code: row.code })];
    }
    const before = [...former].reverse().filter((one) => one !== rows);
    return ['undo', before[Math.floor(random() * random() * Math.min(4, before.length))] ?? rows];
  }

  /** Parents that rows refer to come; where no code is left for one, its children go. */
  function withParents(from: Rows, table: Table): Rows {
    const other = table === 'one' ? 'two' : 'one';
    return PARENTS.reduce((next, id) => {
      if (next[table].has(id)) return next;
      const complete = CODES.map((code) => put(next, table, { id, code, name: 'u' })).find(isValid);
      const children = [...next[other].values()].filter(({ parent }) => parent === id);
      return complete ?? children.reduce((left, child) => without(left, other, child.id), next);
    }, from);
  }

  const living = () => actors.filter((actor) => actor.isAlive());
  const attend = () => world.service.attend(actors, watch.observer);
  const settle = (actor: Actor) => settleActor(actor, world.isBlocked, () => trace.join('\n'));

  async function start(): Promise<void> {
    const name = WORKERS.find((one) => living().every((actor) => actor.name !== one));
    if (name === undefined) return;
    const open = living().length === 0 ? await room.listOpenRuns() : [];
    const actor = createActor(name);
    actors = [...living(), actor];
    attend();
    const process = room.process(actor, false, { onRead: () => watch.read(actor) });
    const [what, work] =
      open.length > 0
        ? ([
            'finishes runs',
            async () => {
              for (const { id, status } of open) await process.work(id, status !== 'planning');
            },
          ] as const)
        : random() < 0.6
          ? (['takes from the inbox', process.takeFromInbox] as const)
          : (['syncs', process.sync] as const);
    trace.push(`${name} ${what}`);
    actor.start(work);
    await settle(actor);
  }

  async function go(actor: Actor): Promise<void> {
    const step = actor.next();
    room.clock.steps++;
    actor.go();
    await settle(actor);
    for (const other of living()) await settle(other);
    trace.push(`  ${actor.name} ${step?.label ?? ''}`);
    if (actor.failure() !== undefined) {
      faults.push(`${actor.name} threw ${messageOf(actor.failure())}`);
    }
  }

  /** Lets processes take so many steps. Returns false when none of them can. */
  async function advance(steps: number): Promise<boolean> {
    for (let step = 0; step < steps; step++) {
      const actor = pick(living().filter((one) => one.isEnabled()));
      if (!actor) return step > 0;
      // The same actor continues for a while: order matters most where another one is about to write.
      const most = 1 + Math.floor(random() * 12);
      for (let more = 0; more < most && actor.isEnabled(); more++) await go(actor);
    }
    return true;
  }

  async function carryOut(): Promise<void> {
    const requests = late;
    late = [];
    for (const request of requests) {
      if (random() < 0.2) continue;
      trace.push('a write without an answer is carried out');
      await request.process();
    }
  }

  function loseAnswer(): void {
    const actor = living().find((one) => one.next()?.request?.isWrite);
    const request = actor?.next()?.request;
    if (!actor || !request) return;
    watch.interrupted();
    if (request.place === 'request') late.push(request);
    trace.push(`the connection of ${actor.name} breaks: ${actor.next()?.label}`);
    request.lose();
  }

  function kill(): void {
    const actor = pick(living());
    if (!actor) return;
    watch.interrupted();
    const request = actor.next()?.request;
    if (request?.place === 'request' && request.isWrite) late.push(request);
    trace.push(`${actor.name} is killed: ${actor.next()?.label}`);
    actor.kill();
  }

  /** No write of before is still to be carried out after it. */
  async function passTime(): Promise<void> {
    await carryOut();
    for (const actor of living()) while (actor.isEnabled() && actor.next()?.request?.isWrite) await go(actor);
    watch.interrupted();
    await room.passTime();
    trace.push('a minute passes');
  }

  /** Every process goes on until it ends. */
  async function finish(): Promise<void> {
    for (let step = 0; living().length > 0 && step < STEPS_MOST; step++) {
      if (random() < 0.05) await carryOut();
      if (!(await advance(1))) await passTime();
    }
  }

  async function changeMirror(): Promise<void> {
    for (let tries = 0; tries < 10; tries++) {
      const drawn = draw();
      if (drawn && isValid(drawn[1])) return change(drawn[1], drawn[0]);
    }
  }

  /** In sequence: nothing is interrupted. */
  async function operateCalmly(): Promise<void> {
    const chance = random();
    if (chance < 0.55) await changeMirror();
    else if (chance < 0.75) {
      trace.push('the inbox is worked');
      await room.plain.takeFromInbox();
    } else if (chance < 0.95) {
      trace.push('a sync');
      await room.plain.sync();
    } else await retry();
  }

  async function retry(): Promise<void> {
    const retried = await room.retryChangedIds();
    trace.push(`an operator retries ${retried.map(({ localKey }) => localKey).join()}`);
  }

  /** Everything comes to rest, and what stands then is judged. */
  async function rest(): Promise<void> {
    await finish();
    await carryOut();
    if (parentTable) await change(withParents(rows, parentTable), 'every parent is there');
    for (const actor of living()) {
      faults.push(`${actor.name} did not end: it waits for ${actor.next()?.label}`);
      actor.kill();
    }
    trace.push('quiet');
    faults.push(...watch.faults, ...(await bringToRest(room)));
    const objects = world.service.objects().map(({ extId }) => extId);
    const sent = new Set(objects.filter((extId) => extId.includes(`_${room.name}_`)));
    const left = shapes.some((shape) => shape.retire === 'keep') ? [...sent] : [];
    faults.push(...(await findFaults(room, sent, { left })));
  }

  async function operate(): Promise<void> {
    const chance = random();
    if (chance < 0.4) await changeMirror();
    else if (chance < 0.6) {
      await start();
      await advance(1 + Math.floor(random() * 3));
    } else if (chance < 0.8) {
      await start();
      await finish();
    } else if (chance < 0.87) {
      await toWrite();
      loseAnswer();
    } else if (chance < 0.9) kill();
    else if (chance < 0.94) await carryOut();
    else if (chance < 0.96) await passTime();
    else await retry();
  }

  /** Lets a process go on until it is about to write, or ends. */
  async function toWrite(): Promise<void> {
    if (living().length === 0) await start();
    const actor = pick(living());
    for (let step = 0; actor?.isEnabled() && !actor.next()?.request?.isWrite && step < 200; step++)
      await go(actor);
  }

  for (const table of tables)
    await room.change(table, {
      rows: [{ id: `9${table}`, code: `beside ${table}`, name: 'beside' }],
      push: false,
    });
  for (let rowsAtFirst = 0; rowsAtFirst < 2; rowsAtFirst++) await changeMirror();
  await room.plain.sync();
  trace.push('everything is synced');
  for (let operation = 1; operation <= operations && faults.length === 0; operation++) {
    await (isCalm ? operateCalmly() : operate());
    if (operation % JUDGED_EVERY === 0 || operation === operations) await rest();
  }
  await world.closeMirrors();
  return { faults, trace };
}
