// Random histories of what operators, schedules and partial runs do to a few rows with tight limits: freezes, approvals,
// rejections, retries, repairs; and every finished run may be deleted between any two steps. A history is a list of
// operations, each with choices of its own, so that any part of the list can be played.
import { createRandom } from '../../src/sandbox/request-steps.js';
import { codeOf, messageOf } from '../../src/errors/errors.js';
import { addChanges } from '../../src/state/inbox/add-changes.js';

import { endExceptions, exceptRecords, listExceptions } from '../../src/state/exceptions.js';
import type { RecordKey } from '../../src/state/records/outcome-types.js';
import { endFreezes, freezeStreams, listFrozen, unfreezeStreams } from '../../src/state/freezes.js';
import { readGates, waitsForOperator, isApprovable, type Gate } from '../../src/state/gates/gates.js';
import { retryRecords } from '../../src/state/records/retry-records.js';
import { cancelRun } from '../../src/state/runs/end-run.js';
import { registerSchedule } from '../../src/state/schedules.js';
import { markDue } from '../../src/state/streams.js';
import { writeDrift } from '../../src/state/drift.js';
import { startDue, startScheduled } from '../../src/sync/run/start-due-syncs.js';
import { createActor, type Actor } from './actor.js';
import type { ExploredWorld } from './explored-world.js';
import { bringToRest, findFaults } from './judge.js';
import { createRoom, type Process, type StreamShape, type Table, type ThingRow } from './room.js';
import { settleActor } from './scheduler.js';
import type { SentObject } from './service.js';
import { findUnshown } from './unshown.js';

const OWNED: StreamShape = { table: 'one', identifiedBy: 'id', prefix: 'x_' };
const CODED: StreamShape = { table: 'one', identifiedBy: 'code', prefix: 'y_' };
const WORLDS: readonly (readonly StreamShape[])[] = [
  [{ ...OWNED, limits: { create: 1, update: 1, retire: 0 } }],
  [
    { ...CODED, limits: { update: 0, retire: 1 } },
    { ...OWNED, table: 'two', prefix: 'z_', limits: { create: 0 } },
  ],
  [
    { ...OWNED, parent: 'two', limits: { update: 0, repair: 0 } },
    { ...CODED, table: 'two', limits: { create: 0, retire: 0 } },
  ],
  [
    { ...OWNED, limits: { retire: 0 } },
    { ...CODED, table: 'two' },
  ],
];
const NAMES = ['u', 'v', 'w'];
const CODES = ['A', 'B', 'C'];
const KEYS = ['1', '2', '3'];
/** Name that a person has given to an object at the service. */
const BY_HAND = 'by hand';
const WORKERS = ['A', 'B'];
const STEPS_MOST = 4000;
const HOUR = 60 * 60 * 1000;

/** Relative frequency of each operation. */
const WEIGHTS = {
  change: 30,
  sync: 9,
  limited: 4,
  backfill: 5,
  push: 2,
  inbox: 10,
  retry: 4,
  repair: 4,
  freeze: 8,
  unfreeze: 6,
  thaw: 2,
  approve: 12,
  reject: 4,
  cancel: 2,
  schedule: 4,
  due: 6,
  refuse: 3,
  fail: 2,
  forbid: 1,
  pass: 2,
  prune: 7,
  advance: 12,
  except: 5,
  except_end: 4,
} as const;
type Kind = keyof typeof WEIGHTS;

export interface Operation {
  kind: Kind;
  /** Seed of its choices. */
  seed: number;
}

/** Draws the history of a seed. */
export function drawHistory(seed: number, length: number): Operation[] {
  const random = createRandom(seed);
  const kinds = (Object.keys(WEIGHTS) as Kind[]).flatMap((kind) =>
    Array.from({ length: WEIGHTS[kind] }, () => kind),
  );
  return Array.from({ length }, () => ({
    kind: kinds[Math.floor(random() * kinds.length)] ?? 'change',
    seed: Math.floor(random() * 2 ** 31),
  }));
}

export interface GateHistory {
  /** Chooses the streams, and whether processes stand still in the middle of their work. */
  seed: number;
  operations: readonly Operation[];
  /** True if finished runs are deleted after each operation. */
  prunesAlways?: boolean;
}

export interface GateOutcome {
  faults: string[];
  trace: string[];
  /** Objects at the service and everything that is shown, after each operation. */
  states: string[];
  steps: number;
}

/** Plays a history in a room of its own, and lets everything come to rest. Stops at the first fault. */
export async function playGateHistory(
  world: ExploredWorld,
  { seed, operations, prunesAlways = false }: GateHistory,
): Promise<GateOutcome> {
  const shapes = WORLDS[seed % WORLDS.length] ?? [];
  const isCalm = Math.floor(seed / WORLDS.length) % 2 === 0;
  const room = createRoom(world, world.newName(), shapes);
  const { sql, service } = room;
  const { db } = world.plain.state;
  const tables = shapes.map(({ table }) => table);
  const trace: string[] = [];
  const faults: string[] = [];
  const states: string[] = [];
  /** `stream key` of changes that no trigger told of, and when. */
  const unnoticed = new Map<string, string>();
  const processes = new Map<Actor, Process>();
  /** Per actor, what stood when it began its batch. */
  const begun = new Map<Actor, Standing>();
  const arrivals: { actor: Actor; extId: string; isActive: boolean }[] = [];
  /** Operations of sent objects, as they arrived. `accepted`: those that the service has carried out. */
  const arrivedFor = new Map<SentObject, string>();
  const accepted: { extId: string; operation: string }[] = [];
  /** By `stream operation`, the objects that were sent for it, of streams whose external ids are their keys. */
  const sentFor = new Map<string, Set<string>>();
  let areLimitsJudged = true;
  let actors: Actor[] = [];
  let steps = 0;
  let random = createRandom(seed);
  const pick = <T>(from: readonly T[]): T | undefined => from[Math.floor(random() * from.length)];
  const living = () => actors.filter((actor) => actor.isAlive());
  const note = (text: string) => void trace.push(text);
  const short = (text: string) => text.replaceAll(`${room.name}_`, '');

  interface Standing {
    /** `stream key`, since before the plan of the batch ended. */
    held: string[];
    frozen: string[];
    /** External ids of accepted records that an exception leaves as they are. */
    excepted: string[];
    /** Streams with a create or update that is held, failed or given up. */
    unsent: string[];
  }

  async function readStanding(batch?: number): Promise<Standing> {
    const [found] = await sql<Omit<Standing, 'frozen'>[]>`
      SELECT ARRAY(SELECT stream || ' ' || local_key FROM slotsync.held WHERE stream = ANY (${room.names})
          AND coalesce(planned_at < (SELECT r.started_at FROM slotsync.batches AS b JOIN slotsync.runs AS r ON r.id = b.run_id
            WHERE b.id = ${batch ?? null}::bigint), true)) AS held,
        ARRAY(SELECT stream || ' ' || local_key FROM slotsync.held
          WHERE stream = ANY (${room.names}) AND coalesce(operation IN ('create', 'update', 'overwrite'), true)
            AND NOT EXISTS (SELECT FROM slotsync.exceptions AS e WHERE e.stream = held.stream AND e.local_key = held.local_key)
          UNION SELECT stream || ' ' || local_key FROM slotsync.records WHERE stream = ANY (${room.names})
            AND status IN ('failed', 'dead') AND gone_since IS NULL AND former_key IS NULL
            AND (stream, local_key) NOT IN (SELECT stream, local_key FROM slotsync.exceptions)) AS unsent,
        ARRAY(SELECT external_id FROM slotsync.exceptions JOIN slotsync.records USING (stream, local_key)
          WHERE stream = ANY (${room.names}) AND object_hash IS NOT NULL AND external_id IS NOT NULL) AS excepted`;
    const frozen = await listFrozen(db, room.names);
    return {
      held: found?.held ?? [],
      unsent: found?.unsent ?? [],
      excepted: found?.excepted ?? [],
      frozen: frozen.map(({ stream }) => stream),
    };
  }

  /** Keys whose rows or records have an external id, as `stream key`. */
  async function keysOf(extId: string): Promise<string[]> {
    const names = new Set<string>();
    for (const shape of shapes)
      for (const row of await room.rowsOf(shape.table))
        if (room.extIdOf(shape, row) === extId) names.add(`${room.nameOf(shape.table)} ${row.id}`);
    const owners = await sql<{ name: string }[]>`
      SELECT stream || ' ' || local_key AS name FROM slotsync.records WHERE external_id = ${extId}`;
    return [...names, ...owners.map(({ name }) => name)];
  }

  /** A write has arrived: no gate kept it back, and it takes nothing away beside an unsent write. */
  async function judgeArrivals(): Promise<void> {
    for (const { extId, operation } of accepted.splice(0))
      if (areLimitsJudged) await judgeLimit(extId, operation);
    for (const { actor, extId, isActive } of arrivals.splice(0)) {
      const [now, before] = [await readStanding(), begun.get(actor)];
      if (!before) continue;
      const keys = await keysOf(extId);
      const streams = new Set(keys.map((key) => key.split(' ')[0] ?? ''));
      const both = (list: 'held' | 'frozen' | 'unsent' | 'excepted') =>
        now[list].filter((one) => before[list].includes(one));
      const held = both('held').filter((key) => keys.includes(key));
      if (held.length > 0) faults.push(`${actor.name} sends ${extId}, and ${held.join()} is held`);
      const frozen = both('frozen').filter((stream) => streams.has(stream));
      if (frozen.length > 0 && frozen.length === streams.size)
        faults.push(`${actor.name} sends ${extId}, and ${frozen.join()} is frozen`);
      if (both('excepted').includes(extId)) faults.push(`${actor.name} sends ${extId}, which is excepted`);
      const unsent = both('unsent').filter((key) => streams.has(key.split(' ')[0] ?? ''));
      if (!isActive && unsent.length > 0)
        faults.push(`${actor.name} retires ${extId}, and ${unsent.join()} is not sent`);
    }
  }

  /** No more is accepted than the limit of the day and what operators have approved. */
  async function judgeLimit(extId: string, operation: string): Promise<void> {
    const shape = shapes.find((one) => extId.startsWith(`${one.prefix}${room.name}_`));
    const limit = shape?.limits?.[operation as 'create' | 'update' | 'retire'];
    if (!shape || limit === undefined || shape.identifiedBy !== 'id') return;
    const stream = room.nameOf(shape.table);
    const name = `${stream} ${operation}`;
    const sent = (sentFor.get(name) ?? new Set()).add(extId);
    sentFor.set(name, sent);
    if (sent.size <= limit) return;
    const approvals = await sql<{ subject: string }[]>`
      SELECT subject FROM slotsync.actions WHERE action = 'approve' AND subject LIKE ${`%${stream}: %`}`;
    const allowed = approvals
      .flatMap(({ subject }) => subject.split(', '))
      .filter((part) => part.startsWith(`${stream}: ${operation} `) || part.startsWith(`${stream}: refused `))
      .reduce((sum, part) => sum + Number(part.split(' ').at(-1)), 0);
    if (sent.size > limit + allowed)
      faults.push(`${sent.size} of ${name} are sent, ${limit} may be and ${allowed} are approved: ${extId}`);
  }

  const operationOf = ({ extId, active = true, fields = [] }: SentObject): string => {
    const object = service.object(extId);
    if (!object) return 'create';
    if (!active) return object.active ? 'retire' : 'none';
    const nameIn = (of: NonNullable<SentObject['fields']>) =>
      of.find(({ fieldId }) => fieldId === 'thing.name')?.values.join();
    const isByHand = nameIn(object.fields) === BY_HAND;
    return !isByHand && (!object.active || nameIn(object.fields) !== nameIn(fields)) ? 'update' : 'none';
  };

  const attend = () =>
    service.attend(actors, {
      arrived: (actor, objects) =>
        objects.forEach((object) => {
          arrivals.push({ actor, extId: object.extId, isActive: object.active ?? true });
          arrivedFor.set(object, operationOf(object));
        }),
      // A write that the service refuses changes nothing, and counts for no limit.
      processed: (_, objects) =>
        objects.forEach((object) => {
          const operation = arrivedFor.get(object);
          if (operation !== undefined && operationOf(object) === 'none')
            accepted.push({ extId: object.extId, operation });
        }),
    });

  const settle = (actor: Actor) => settleActor(actor, world.isBlocked, () => trace.join('\n'));

  async function go(actor: Actor): Promise<void> {
    const step = actor.next();
    room.clock.steps++;
    steps++;
    actor.go();
    await settle(actor);
    for (const other of living()) await settle(other);
    if (!isCalm) note(`    ${actor.name} ${short(step?.label ?? '')}`);
    await judgeArrivals();
  }

  /** Lets this actor go on until it ends, and others only where it waits for them. */
  async function finish(actor: Actor): Promise<void> {
    for (let step = 0; actor.isAlive() && step < STEPS_MOST; step++) {
      const next = actor.isEnabled() ? actor : living().find((one) => one.isEnabled());
      if (next) await go(next);
      else await passTime();
    }
    if (actor.isAlive()) {
      faults.push(`${actor.name} did not end: it waits for ${actor.next()?.label}`);
      actor.kill();
    }
    if (actor.failure() !== undefined && codeOf(actor.failure()) !== 'usage')
      faults.push(`${actor.name} threw ${messageOf(actor.failure())}`);
  }

  async function finishAll(): Promise<void> {
    for (const actor of living()) await finish(actor);
  }

  /** A process begins this work; it may stand still in the middle of it. */
  async function begin(what: string, work: (process: Process) => Promise<unknown>): Promise<void> {
    const name = WORKERS.find((one) => living().every((actor) => actor.name !== one));
    if (name === undefined) return note(`${what}: nobody is free`);
    const actor = createActor(name);
    actors = [...living(), actor];
    attend();
    const process = room.process(actor, false, {
      onBatch: async (id) => void begun.set(actor, await readStanding(id)),
    });
    processes.set(actor, process);
    note(`${name} ${what}`);
    actor.start(async () => void (await work(process)));
    await settle(actor);
    if (isCalm || random() < 0.5) return finish(actor);
    const most = Math.floor(random() * 60);
    for (let step = 0; step < most && actor.isEnabled(); step++) await go(actor);
    if (!actor.isAlive()) await finish(actor);
  }

  async function passTime(): Promise<void> {
    for (const actor of living()) while (actor.isEnabled() && actor.next()?.request?.isWrite) await go(actor);
    await room.passTime();
    note('  a minute passes');
  }

  async function readRows() {
    const rows = new Map<Table, Map<string, ThingRow>>();
    for (const table of tables)
      rows.set(table, new Map((await room.rowsOf(table)).map((row) => [row.id, row])));
    return rows;
  }

  /** Some rows come, go or change. */
  async function change(): Promise<void> {
    const most = 1 + Math.floor(random() * 3);
    for (let changed = 0; changed < most; changed++) await changeRow();
  }

  async function changeRow(): Promise<void> {
    const rows = await readRows();
    const table = pick(tables) ?? 'one';
    const [id, code] = [pick(KEYS) ?? '1', pick(CODES) ?? 'A'];
    const isTold = random() < 0.75;
    const chance = random();
    const shape = shapes.find((one) => one.table === table);
    const parents = [...(rows.get('two')?.keys() ?? [])];
    const parent = shape?.parent ? { parent: pick(parents) ?? '9two' } : {};
    const row = rows.get(table)?.get(id);
    const name = pick(NAMES.filter((one) => one !== row?.name)) ?? 'u';
    const isReferredTo = shapes.some((one) => one.parent === table);
    let next: ThingRow | undefined;
    if (!row) next = { id, code, name, ...parent };
    else if (chance < 0.3 && !isReferredTo) next = undefined;
    else if (chance < 0.45) next = { ...row, code };
    else next = { ...row, name, ...(random() < 0.3 ? parent : {}) };
    const taken = [...(rows.get(table)?.values() ?? [])].some(
      (other) => other.id !== id && other.code === next?.code,
    );
    if (taken && shape?.identifiedBy === 'code') return note('no change');
    await room.change(table, { gone: next ? [] : [id], rows: next ? [next] : [], push: isTold });
    const [{ at } = { at: '' }] = await sql<{ at: string }[]>`SELECT clock_timestamp()::text AS at`;
    if (!isTold) unnoticed.set(`${room.nameOf(table)} ${id}`, at);
    note(
      `${table} ${id} ${next ? `is ${[next.code, next.name, next.parent].filter(Boolean).join(' ')}` : 'is gone'}${isTold ? '' : ', not pushed'}`,
    );
  }

  /** Whole syncs have noticed these changes: they began after them, and have planned. */
  async function notice(): Promise<void> {
    for (const [key, at] of unnoticed) {
      const [stream] = key.split(' ');
      const [found] = await sql`
        SELECT FROM slotsync.streams WHERE stream = ${stream ?? ''} AND attempted_at > ${at}::text::timestamptz
          AND planned_at > attempted_at`;
      if (found) unnoticed.delete(key);
    }
  }

  /** The gates of this room, in an order that no number of a run decides. */
  const gatesHere = async (): Promise<Gate[]> =>
    (await readGates(db))
      .filter(({ stream }) => room.names.includes(stream))
      .toSorted((a, b) =>
        `${a.stream} ${a.operation} ${a.reason}`.localeCompare(`${b.stream} ${b.operation} ${b.reason}`),
      );

  const some = (from: readonly string[]) => {
    const chosen = from.filter(() => random() < 0.5);
    return chosen.length > 0 ? chosen : [...from];
  };

  async function unfreeze(streams: readonly string[] | 'all'): Promise<void> {
    const before = await listFrozen(db, room.names);
    await db.transaction(async (tx) => {
      if (streams === 'all') await endFreezes(tx);
      else await unfreezeStreams(tx, streams);
      const still = new Set((await listFrozen(tx, room.names)).map(({ stream }) => stream));
      await markDue(
        tx,
        before.flatMap(({ stream }) => (still.has(stream) ? [] : stream)),
        'frozen',
      );
    });
  }

  const exceptionsHere = async () =>
    (await listExceptions(db)).filter(({ stream }) => room.names.includes(stream));

  const endException = ({ stream, localKey }: RecordKey) =>
    db.transaction((tx) => endExceptions(tx, stream, [localKey]));

  const refused = { path: '/objects', method: 'PUT', fault: 'status' } as const;
  const someExtId = async () => {
    const shape = pick(shapes);
    const row = shape && pick(await room.rowsOf(shape.table));
    return shape && row ? room.extIdOf(shape, row) : 'none';
  };

  const PLAY: Record<Kind, () => Promise<unknown>> = {
    change,
    sync: async () => {
      const streams = some(room.names);
      await begin(`syncs ${short(streams.join())}`, (process) => process.run({ streams }));
    },
    limited: () => begin('syncs at most 1', (process) => process.run({ range: { limit: 1 } })),
    backfill: async () => {
      const stream = pick(room.names) ?? '';
      const [keys, force] = [some(KEYS), random() < 0.5];
      await begin(`backfills ${short(stream)} ${keys.join()}${force ? ', forced' : ''}`, (process) =>
        process.run({
          kind: 'backfill',
          lane: 'backfill',
          streams: [stream],
          range: { keys, ...(force && { force }) },
        }),
      );
    },
    push: async () => {
      const stream = pick(room.names) ?? '';
      const keys = some(KEYS);
      note(`pushes ${short(stream)} ${keys.join()}`);
      await addChanges(db, stream, keys);
    },
    inbox: () => begin('takes from the inbox', (process) => process.takeFromInbox()),
    retry: async () => {
      note('retries');
      for (const stream of some(room.names)) await retryRecords(db, { stream, keys: [] });
    },
    /** Somebody changes an object at the service, a verify sees it, and a repair follows. */
    repair: async () => {
      const records = await sql<{ stream: string; local_key: string; external_id: string }[]>`
        SELECT stream, local_key, external_id FROM slotsync.records
        WHERE stream = ANY (${room.names}) AND status = 'synced' AND claimed_by IS NULL AND former_key IS NULL
        ORDER BY stream, local_key`;
      const found = pick(records);
      const object = found && service.object(found.external_id);
      if (found && object && random() < 0.8) {
        const { stream, local_key: localKey, external_id: externalId } = found;
        const fields = object.fields.map((field) =>
          field.fieldId === 'thing.name' ? { ...field, values: [BY_HAND] } : field,
        );
        service.putObject({ ...object, extId: externalId, fields });
        await writeDrift(db, { runId: 0, stream }, [
          { localKey, externalId, kind: 'changed', fields: undefined, writtenAt: undefined },
        ]);
        note(`${short(externalId)} is changed by hand`);
      }
      const streams = some(room.names);
      await begin(`repairs ${short(streams.join())}`, (process) =>
        process.run({ kind: 'repair', lane: 'verify', streams }),
      );
    },
    freeze: async () => {
      const streams = random() < 0.3 ? null : some(room.names);
      const hours = 1 + Math.floor(random() * 3);
      note(`freezes ${short(streams?.join() ?? 'all')} for ${hours} hours`);
      const endsAt = new Date(Date.now() + hours * HOUR);
      await freezeStreams(db, { streams, endsAt, reason: `for ${hours} hours`, by: 'ada' });
    },
    unfreeze: async () => {
      const streams = random() < 0.3 ? 'all' : some(room.names);
      note(`unfreezes ${short(String(streams))}`);
      await unfreeze(streams);
    },
    /** The first freeze reaches its end. */
    thaw: async () => {
      note('the first freeze ends');
      await sql`UPDATE slotsync.freezes SET ends_at = now() WHERE id = (
        SELECT id FROM slotsync.freezes WHERE ends_at > now() ORDER BY ends_at, id LIMIT 1)`;
    },
    except: async () => {
      const [stream, keys] = [pick(room.names) ?? '', [pick(KEYS) ?? '1']];
      note(`makes an exception of ${short(stream)} ${keys.join()}`);
      await db.transaction((tx) =>
        exceptRecords(tx, { stream, keys, until: null, reason: 'by hand', by: 'ada' }),
      );
    },
    except_end: async () => {
      const exception = pick(await exceptionsHere());
      if (!exception) return;
      note(`ends the exception of ${short(exception.stream)} ${exception.localKey}`);
      await endException(exception);
    },
    approve: async () => {
      const gate = pick(await gatesHere());
      if (!gate) return meetLimits();
      const choice = {
        ...(random() < 0.7 && {
          stream: gate.stream,
          ...(gate.operation === '*' ? { gate: gate.reason } : { operation: gate.operation }),
        }),
        exactly: random() < 0.2,
      };
      const what = `approves ${short(gate.stream)} ${gate.operation} ${gate.reason} ${gate.count}${choice.exactly ? ' exactly' : ''}${'stream' in choice ? '' : ' and all of the run'}`;
      await begin(what, (process) => process.approve(gate.runId, choice));
      if (random() < 0.3) await begin(`${what} again`, (process) => process.approve(gate.runId, choice));
    },
    reject: async () => {
      const gate = pick(await gatesHere());
      if (!gate) return meetLimits();
      note(`rejects ${short(gate.stream)} ${gate.operation} ${gate.reason}`);
      await room.plain.reject(gate.runId, { stream: gate.stream });
    },
    cancel: async () => {
      const run = pick(await room.listOpenRuns());
      if (!run) return;
      note('cancels a run');
      await cancelRun(db, run.id);
    },
    schedule: async () => {
      const streams = some(room.names);
      const name = `nightly_${room.name}`;
      await registerSchedule(db, name, { pattern: '* * * * *', timezone: 'UTC', streams });
      await sql`UPDATE slotsync.schedules SET registered_at = now() - interval '10 minutes', last_due = NULL WHERE name = ${name}`;
      await begin(`starts the schedule of ${short(streams.join())}`, async (process) => {
        for (const { id } of await startScheduled(process.deps)) await process.work(id);
      });
      await sql`DELETE FROM slotsync.schedules WHERE name = ${name}`;
    },
    due: () => begin('starts what is due', workDue),
    refuse: async () => {
      const extId = await someExtId();
      note(`the service refuses ${short(extId)}`);
      service.failNext({ ...refused, extId, status: 400, times: 4 });
    },
    fail: async () => {
      note('the service fails');
      service.failNext({ ...refused, status: 500, times: 1 + Math.floor(random() * 12) });
    },
    forbid: async () => {
      const extId = await someExtId();
      note(`the service forbids ${short(extId)}`);
      service.failNext({ ...refused, extId, status: 403, times: 3 });
    },
    pass: async () => {
      await passTime();
      await sql`
        UPDATE slotsync.streams SET due_since = due_since - interval '2 hours', attempted_at = attempted_at - interval '2 hours'
        WHERE stream = ANY (${room.names})`;
    },
    prune,
    advance: async () => {
      const actor = pick(living());
      if (!actor) return;
      note(`  ${actor.name} goes on`);
      const most = Math.floor(random() * 60);
      for (let step = 0; step < most && actor.isEnabled(); step++) await go(actor);
      if (!actor.isAlive()) await finish(actor);
    },
  };

  /** There is no gate to answer yet. */
  async function meetLimits(): Promise<void> {
    await change();
    await (random() < 0.5 ? PLAY.sync() : PLAY.inbox());
  }

  async function workDue(process: Process): Promise<void> {
    for (const { id } of await startDue(process.deps)) await process.work(id);
  }

  async function prune(): Promise<void> {
    const gone = await sql`
      DELETE FROM slotsync.runs WHERE finished_at IS NOT NULL AND streams && ${room.names} RETURNING id`;
    if (!prunesAlways) note(`${gone.length} finished runs are deleted`);
  }

  /** Objects at the service and everything that is shown, without times and numbers of runs. */
  async function readState(): Promise<string> {
    const objects = service
      .objects()
      .filter(({ extId }) => extId.includes(`_${room.name}_`))
      .map(({ extId, active, fields }) => `${extId} ${active} ${fields.map(({ values }) => values).join()}`)
      .toSorted();
    const [shown] = await sql`
      SELECT ARRAY(SELECT concat_ws(' ', stream, local_key, operation, gate, reason) FROM slotsync.held WHERE stream = ANY (${room.names}) ORDER BY 1) AS held,
        ARRAY(SELECT concat_ws(' ', stream, operation, reason, count, allowed, rejected_at IS NOT NULL) FROM slotsync.gates WHERE stream = ANY (${room.names}) ORDER BY 1) AS gates,
        ARRAY(SELECT concat_ws(' ', stream, due_reason, problem->>'code') FROM slotsync.streams WHERE stream = ANY (${room.names}) ORDER BY 1) AS streams,
        ARRAY(SELECT concat_ws(' ', stream, local_key, status, error_code, resend) FROM slotsync.records WHERE stream = ANY (${room.names}) ORDER BY 1) AS records,
        ARRAY(SELECT concat_ws(' ', stream, local_key, run_id IS NOT NULL) FROM slotsync.changes WHERE stream = ANY (${room.names}) ORDER BY 1) AS changes`;
    return short(JSON.stringify({ objects, ...shown }, null, 1));
  }

  /** Workers alone go on, until they have nothing to do. */
  async function workersComeToRest(): Promise<void> {
    await finishAll();
    for (let rounds = 0; rounds < 4; rounds++) {
      faults.push(...(await room.finish()));
      await sql`
        UPDATE slotsync.streams SET due_since = due_since - interval '2 hours', attempted_at = attempted_at - interval '2 hours'
        WHERE stream = ANY (${room.names})`;
      const started = await startDue(room.plain.deps);
      if (started.length === 0) return;
      for (const { id } of started) await room.plain.work(id);
    }
    faults.push('workers start syncs for ever');
  }

  async function judgeShown(when: string, isDueEnough: boolean): Promise<void> {
    await notice();
    const unshown = await findUnshown(room, { isDueEnough, unnoticed: new Set(unnoticed.keys()) });
    faults.push(...unshown.map((fault) => `${when}: ${short(fault)}`));
  }

  /** Freezes end, every gate is approved, what failed is retried: everything arrives. */
  async function rest(): Promise<void> {
    note('quiet');
    areLimitsJudged = false;
    await workersComeToRest();
    await judgeShown('while exceptions stand', false);
    for (const exception of await exceptionsHere()) await endException(exception);
    await workersComeToRest();
    await judgeShown('when workers have nothing to do', false);
    if (faults.length > 0) return;
    await unfreeze('all');
    await workersComeToRest();
    await judgeShown('when no stream is frozen', false);
    if (faults.length > 0) return;
    service.clearFailures();
    await room.plain.sync();
    for (let rounds = 0; rounds < 12; rounds++) {
      await workersComeToRest();
      const gates = await gatesHere();
      const gate = gates.find((one) => isApprovable(one));
      if (!gate) break;
      note(`approves ${short(gate.stream)} ${gate.operation} ${gate.reason} ${gate.count}`);
      await room.plain.approve(gate.runId, {
        stream: gate.stream,
        ...(gate.operation === '*' ? { gate: gate.reason } : { operation: gate.operation }),
      });
      await prune();
    }
    for (const stream of room.names) await retryRecords(db, { stream, keys: [] });
    for (let rounds = 0; rounds < 4; rounds++) {
      await room.plain.run({ kind: 'repair', lane: 'verify' });
      await room.plain.sync();
      await workersComeToRest();
      for (const gate of (await gatesHere()).filter(isApprovable))
        await room.plain.approve(gate.runId, { stream: gate.stream });
    }
    await sql`DELETE FROM slotsync.sent WHERE stream = ANY (${room.names})`;
    await sql`UPDATE slotsync.records SET counted_as = NULL WHERE stream = ANY (${room.names})`;
    const waiting = (await gatesHere()).filter(waitsForOperator);
    faults.push(
      ...waiting.map((gate) => `${short(gate.stream)} ${gate.operation} ${gate.reason} stays closed`),
    );
    faults.push(...(await bringToRest(room)));
    const sent = service.objects().flatMap(({ extId }) => (extId.includes(`_${room.name}_`) ? extId : []));
    faults.push(...(await findFaults(room, new Set(sent), {})));
  }

  for (const shape of shapes) {
    const { table } = shape;
    const parent = shape.parent ? { parent: '9two' } : {};
    await room.change(table, {
      rows: [
        {
          id: `9${table}`,
          code: `beside ${table}`,
          name: 'beside',
          ...(shape.parent ? { parent: '9two' } : {}),
        },
        { id: '1', code: 'A', name: 'u', ...parent },
        { id: '2', code: 'B', name: 'u', ...parent },
      ],
      push: false,
    });
  }
  await room.plain.sync();
  await sql`DELETE FROM slotsync.sent WHERE stream = ANY (${room.names})`;
  await sql`UPDATE slotsync.records SET counted_as = NULL WHERE stream = ANY (${room.names})`;
  note('everything is synced');
  try {
    for (const operation of operations) {
      random = createRandom(operation.seed);
      await PLAY[operation.kind]();
      if (prunesAlways) await prune();
      await judgeShown(`after ${operation.kind}`, true);
      if (faults.length > 0) break;
      states.push(await readState());
    }
    if (faults.length === 0) await rest();
  } finally {
    for (const actor of living()) actor.kill();
    service.clearFailures();
    await endFreezes(db);
    await sql`DELETE FROM slotsync.freezes`;
    await sql`DELETE FROM slotsync.exceptions WHERE stream = ANY (${room.names})`;
    await world.closeMirrors();
  }
  return { faults, trace, states, steps };
}
