// Guarantees 2, 6
// Services with another protocol, each reached by a dialect alone: the two of examples/, and some wrong dialects.
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { checkConfiguration } from '../../src/config/config-file.js';
import { importFile } from '../../src/config/load-file.js';
import { defineDialect, type DialectDefinition, type DialectParts } from '../../src/dialect/dialect.js';
import type { SandboxOptions } from '../../src/sandbox/sandbox.js';
import { listWrites } from '../../src/state/history.js';
import { addChanges } from '../../src/state/inbox/add-changes.js';
import { startRun } from '../../src/state/runs/start-run.js';
import type { SlotsyncConfig } from '../../src/streams/config-schema.js';
import { applyLinks } from '../../src/sync/match/apply-links.js';
import { matchStreams, type MatchLine } from '../../src/sync/match/match-streams.js';
import { reconcile, reconcileModified } from '../../src/sync/reconcile/reconcile.js';
import { findRecordByName } from '../../src/sync/operator/explain.js';
import { probeAssumptions } from '../../src/sync/operator/probe-assumptions.js';
import { verify } from '../../src/sync/verify/verify.js';
import { COURSES, ROOMS, type Declaration } from '../support/campus.js';
import { keepWorlds } from '../support/worlds.js';

const open = keepWorlds();

/** Loads a file of examples/dialects as an operator's configuration does. */
const load = async (name: string): Promise<unknown> =>
  (await importFile(fileURLToPath(new URL(`../../examples/dialects/${name}`, import.meta.url)))).exported;
const keyedService = (await load('keyed-service.ts')) as DialectDefinition;
const playKeyed = (await load('keyed.sandbox.ts')) as SandboxOptions['speech'];
const patchingService = (await load('patching-service.ts')) as DialectDefinition;

const HOUR = 3600;
const NOW = Math.floor(Date.now() / 1000);

const OWN_ROOMS: Declaration = {
  ...ROOMS,
  fields: { 'room.name': 'name', 'room.seats': 'seats' },
  retire: 'deactivate',
  match: ['room.name'],
  limits: { retire: { count: 5, percent: 100 } },
};
const CONFIG: SlotsyncConfig = {
  streams: {
    rooms: OWN_ROOMS,
    courses: COURSES,
  },
  reservations: {
    from: 'bookings',
    key: 'id',
    externalId: 'res_{id}',
    begin: 'begins',
    end: 'ends',
    objects: [{ stream: 'rooms', key: 'room' }],
    fields: { 'res.title': 'title' },
  },
};
const SCHEMA = {
  types: [{ extId: 'room' }, { extId: 'course' }],
  fields: ['room.name', 'room.seats', 'room.note', 'course.name', 'course.room', 'res.title'].map(
    (extId) => ({
      extId,
    }),
  ),
};

interface Played {
  dialect: DialectDefinition;
  service: NonNullable<SlotsyncConfig['service']>;
  sandbox?: SandboxOptions;
}

const KEYED: Played = {
  dialect: keyedService,
  service: { prefix: '/v3', pageSize: 2 },
  sandbox: { speech: playKeyed },
};
const PATCHING: Played = { dialect: patchingService, service: { pageSize: 2 } };

async function campus({ dialect, service, sandbox = {} }: Played, config = CONFIG) {
  const world = await open({ ...config, service }, { dialect, sandbox: { schema: SCHEMA, ...sandbox } });
  await world.sql`CREATE TABLE rooms (code text PRIMARY KEY, name text, seats int)`;
  await world.sql`CREATE TABLE courses (code text PRIMARY KEY, name text, room text)`;
  await world.sql`
    CREATE TABLE bookings (id int, begins timestamptz, ends timestamptz, room text, title text)`;
  await world.sql`
    INSERT INTO rooms VALUES ('A', 'Aula', 40), ('B', 'Bridge', 12), ('C', 'Cellar', 8), ('D', 'Dome', 5),
      ('E', 'Eyrie', NULL)`;
  await world.sql`INSERT INTO courses VALUES ('X', 'Exams', 'A'), ('Y', 'Yoga', 'E')`;
  return world;
}

type Campus = Awaited<ReturnType<typeof campus>>;

const requestsOf = ({ sandbox }: Campus) =>
  sandbox.arrivals().map(({ method, path }) => `${method} ${path.replace('/v1', '').replace('/v3', '')}`);

describe.each([
  ['keyed-service', KEYED, '/items/bulk', '/search/items'],
  ['patching-service', PATCHING, '/objects/upsert', '/objects/find'],
] as const)('the dialect of examples/dialects/%s.ts', (_, played, written, found) => {
  it('creates, links, updates, deactivates and reactivates objects, each once', async () => {
    const world = await campus(played);
    const { sandbox, sql } = world;
    const byHand = sandbox.addObject({
      extId: 'typed-17',
      typeId: 'room',
      fields: [
        { fieldId: 'room.name', values: ['Bridge'] },
        { fieldId: 'room.note', values: ['by hand'] },
      ],
      properties: { members: ['ada'] },
    });
    expect((await world.sync()).run).toMatchObject({ status: 'succeeded' });
    expect(sandbox.object('room_A')).toMatchObject({ active: true, typeId: 'room' });
    expect(world.fieldsOf('course_X')).toEqual({ 'course.name': 'Exams', 'course.room': 'room_A' });
    expect(sandbox.object('room_B')).toBeUndefined();
    expect(sandbox.object('typed-17')).toMatchObject({ id: byHand.id, properties: { members: ['ada'] } });
    expect(world.fieldsOf('typed-17')).toEqual({
      'room.name': 'Bridge',
      'room.seats': '12',
      'room.note': 'by hand',
    });

    sandbox.clearArrivals();
    expect((await world.sync()).run).toMatchObject({ status: 'succeeded' });
    expect(requestsOf(world).filter((request) => request.includes(written))).toEqual([]);

    await sql`UPDATE rooms SET seats = NULL, name = 'Bridge 2' WHERE code = 'B'`;
    await sql`DELETE FROM rooms WHERE code = 'D'`;
    await world.sync();
    expect(world.fieldsOf('typed-17')).toEqual({ 'room.name': 'Bridge 2', 'room.note': 'by hand' });
    expect(sandbox.object('typed-17')?.properties).toEqual({ members: ['ada'] });
    expect(sandbox.object('room_D')).toMatchObject({ active: false });
    expect(world.fieldsOf('room_D')).toEqual({ 'room.name': 'Dome', 'room.seats': '5' });
    await sql`INSERT INTO rooms VALUES ('D', 'Dome', 5)`;
    await world.sync();
    expect(sandbox.object('room_D')).toMatchObject({ active: true });
  });

  it('sends an incremental change, and has other objects accepted beside a refused one', async () => {
    const world = await campus(played);
    await world.sync();
    world.sandbox.clearArrivals();
    await world.sql`UPDATE rooms SET seats = seats + 1`;
    world.sandbox.refuseObject('room_C', { status: 409, message: 'C is locked' });
    await addChanges(world.state.db, 'rooms', ['A', 'B', 'C']);
    await world.drainInbox();
    expect(world.fieldsOf('room_A')?.['room.seats']).toBe('41');
    expect(world.fieldsOf('room_D')?.['room.seats']).toBe('5');
    const { A, C } = await world.recordsOf('rooms');
    expect(A).toMatchObject({ status: 'synced', error_code: null });
    expect(C).toMatchObject({
      error_code: 'refused_409',
      error_message: expect.stringContaining('C is locked'),
    });
    const reads = requestsOf(world).filter((request) => request.includes(found));
    expect(reads.length > 0).toBe(played === KEYED);
  });

  it('compares bookings with reservations and cancellations', async () => {
    const world = await campus(played);
    const { sandbox, sql } = world;
    await world.sync();
    for (const id of [1, 2, 3, 4])
      await sql`
        INSERT INTO bookings VALUES (${id}, to_timestamp(${NOW + id * HOUR}::float8),
          to_timestamp(${NOW + id * HOUR + 600}::float8), 'A', ${`Title ${id}`})`;
    const book = (id: number, begin: number) =>
      sandbox.addReservation({
        extId: `res_${id}`,
        begin,
        end: begin + 600,
        objects: [{ typeId: 'room', objectId: 'room_A' }],
        fields: [{ fieldId: 'res.title', values: [`Title ${id}`] }],
      });
    book(1, NOW + HOUR);
    book(2, NOW + 5 * HOUR);
    book(3, NOW + 3 * HOUR);
    const window = { from: (NOW - 24 * HOUR) * 1000, to: (NOW + 24 * HOUR) * 1000 };
    await reconcile(world.reconciling(), window);
    sandbox.cancelReservation('res_3');
    await reconcile(world.reconciling(), window);
    const verdicts = async () =>
      Object.fromEntries(
        (await sql<{ key: string; verdict: string }[]>`SELECT key, verdict FROM slotsync.reservations`).map(
          ({ key, verdict }) => [key, verdict],
        ),
      );
    expect(await verdicts()).toEqual({
      1: 'agrees',
      2: 'differs',
      3: 'cancelled_there',
      4: 'missing_there',
    });
    book(4, NOW + 4 * HOUR);
    await reconcileModified(world.reconciling());
    expect((await verdicts())['4']).toBe('agrees');
  });

  it('keeps a booked object active', async () => {
    const world = await campus(played);
    await world.sync();
    world.sandbox.addReservation({
      begin: NOW + HOUR,
      end: NOW + 2 * HOUR,
      objects: [{ typeId: 'room', objectId: 'room_C' }],
    });
    await world.sql`DELETE FROM rooms WHERE code IN ('C', 'D')`;
    await world.sync('rooms');
    expect(world.sandbox.object('room_C')).toMatchObject({ active: true });
    expect(world.sandbox.object('room_D')).toMatchObject({ active: false });
  });

  it('finds drift, and repairs only the fields of the mapping', async () => {
    const world = await campus(played);
    await world.sync();
    world.sandbox.changeObject('room_A', {
      fields: [
        { fieldId: 'room.name', values: ['by hand'] },
        { fieldId: 'room.note', values: ['kept'] },
      ],
    });
    world.sandbox.removeObject('room_B');
    const drifts = async () =>
      (await world.sql<{ key: string }[]>`SELECT local_key AS key FROM slotsync.drift ORDER BY 1`).map(
        ({ key }) => key,
      );
    await verify(world.verifying());
    expect(await drifts()).toEqual(['A', 'B']);
    const request = { kind: 'repair', lane: 'verify', startedBy: 'command', streams: ['rooms'] } as const;
    const { run } = await startRun(world.state.db, request);
    const { queue } = await world.planRun(run.id);
    await world.finish(run.id, queue);
    expect(world.fieldsOf('room_A')).toEqual({
      'room.name': 'Aula',
      'room.seats': '40',
      'room.note': 'kept',
    });
    expect(world.sandbox.object('room_B')).toBeDefined();
  });

  it('matches rows and objects by values', async () => {
    const world = await campus(played);
    world.sandbox.addObject({
      extId: 'typed-1',
      typeId: 'room',
      fields: [{ fieldId: 'room.name', values: ['Cellar'] }],
    });
    const lines: MatchLine[] = [];
    await matchStreams(world.deps(), {
      names: ['rooms'],
      by: ['room.name'],
      samples: 3,
      write: async (some) => void lines.push(...some),
    });
    expect(lines.find(({ key }) => key === 'C')).toMatchObject({ class: 'match', externalId: 'typed-1' });
  });

  it('holds every assumption that check probes without writing', async () => {
    const world = await campus(played);
    await world.sync();
    world.sandbox.addReservation({
      begin: NOW,
      end: NOW + 60,
      objects: [{ typeId: 'room', objectId: 'room_A' }],
    });
    const all = await probeAssumptions(world.destination, await world.destination.authenticate());
    const unheld = all.filter(({ held }) => held !== 'yes').map(({ name }) => name);
    expect(unheld).toEqual(['write', 'replace', 'assign-external-ids']);
  });
});

it('UUIDs as numbers of the service are kept, linked by a file, explained and compared as texts', async () => {
  const world = await campus(KEYED);
  const { sandbox, sql } = world;
  const refOf = ({ id }: { id: number }) =>
    `${String(id).split('').reverse().join('').padEnd(8, '0')}-5afe-4b0b-8000-000000000000`;
  const byHand = sandbox.addObject({ extId: 'typed-3', typeId: 'room', fields: [] });
  const values = { class: 'match', stream: 'rooms', key: 'C', external_id: '', number: refOf(byHand) };
  expect((await applyLinks(world.deps(), [{ line: 2, values }])).linked).toMatchObject([
    { externalId: 'typed-3', number: refOf(byHand) },
  ]);
  await world.sync();
  expect(await world.recordsOf('rooms')).toMatchObject({
    A: { destination_id: refOf(sandbox.object('room_A') ?? byHand) },
    C: { destination_id: refOf(byHand), external_id: 'typed-3' },
  });
  const rooms = world.stream('rooms');
  const extra = sandbox.addObject({ extId: 'extra', typeId: 'room', fields: [] });
  for (const [name, found] of [
    [refOf(byHand), { key: 'C' }],
    [`#${refOf(byHand)}`, { key: 'C' }],
    [`#${refOf(extra)}`, { object: expect.objectContaining({ id: refOf(extra) }) }],
    [refOf(extra), undefined],
  ] as const)
    expect(await findRecordByName(world.deps(), rooms, [name])).toEqual(
      found && expect.objectContaining(found),
    );
  const alone = sandbox.addReservation({
    begin: NOW,
    end: NOW + HOUR,
    objects: [{ typeId: 'room', objectId: 'room_A' }],
  });
  await verify(world.verifying(), { extras: true });
  await reconcile(world.reconciling(), { from: (NOW - HOUR) * 1000, to: (NOW + HOUR) * 1000 });
  expect(await sql`SELECT local_key FROM slotsync.drift`).toEqual([{ local_key: `#${refOf(extra)}` }]);
  expect(await sql`SELECT key, verdict FROM slotsync.reservations`).toEqual([
    { key: `#${refOf(alone)}`, verdict: 'unknown_here' },
  ]);
});

it('an answer to a write that is empty or names only failures is completed from the request', async () => {
  const speech: SandboxOptions['speech'] = (native) => (request) => {
    const answer = native(request);
    if (request.method !== 'PUT' || answer.status >= 300) return answer;
    const { results } = answer.body as { results: { extId: string; status: number; message?: string }[] };
    const failed = results.filter(({ status }) => status !== 200);
    return failed.length === 0 ? { status: 204 } : { status: 207, body: { failed } };
  };
  const dialect = defineDialect({
    write: {
      read(body, sent, status) {
        const { failed = [] } = (body ?? {}) as { failed?: { extId: string; message: string }[] };
        if (body === undefined && status !== 204) throw new Error('no body');
        const reasons = new Map(failed.map(({ extId, message }) => [extId, message]));
        return sent.map(({ extId }) => {
          const reason = reasons.get(extId);
          return { extId, status: reason === undefined ? 200 : 400, reason };
        });
      },
    },
  });
  const world = await campus({ dialect, service: {}, sandbox: { speech } });
  await world.sync();
  expect(await world.statusesOf('rooms')).toMatchObject({ A: 'synced', B: 'synced' });
  world.sandbox.refuseObject('room_B', { status: 409, message: 'B is locked' });
  await world.sql`UPDATE rooms SET seats = 1`;
  await world.sync();
  const { A, B } = await world.recordsOf('rooms');
  // The answer names no number; the find before the write did.
  const number = world.sandbox.object('room_A')?.id;
  expect(A).toMatchObject({ status: 'synced', error_code: null, destination_id: String(number) });
  expect(B?.error_message).toContain('B is locked');
  expect(world.fieldsOf('room_A')?.['room.seats']).toBe('1');
});

it('a dialect is asked for no find that the work does not need', async () => {
  const dialect = defineDialect((base) => ({
    find: {
      ask(question) {
        const { kind, filter } = question;
        const isSeldom = filter.by === 'none' || filter.by === 'fields' || filter.by === 'modified';
        if (isSeldom && !['types', 'fields'].includes(kind)) throw new Error(`no such find: ${filter.by}`);
        return base.find.ask(question);
      },
    },
  }));
  const world = await campus({ dialect, service: { searchByFields: false } });
  await world.sync();
  await world.sql`DELETE FROM rooms WHERE code = 'D'`;
  expect((await world.sync('rooms')).run).toMatchObject({ status: 'succeeded' });
  await verify(world.verifying());
  await reconcile(world.reconciling(), { from: (NOW - HOUR) * 1000, to: (NOW + HOUR) * 1000 });
  expect(world.sandbox.object('room_D')).toMatchObject({ active: false });
});

it('owns: object beside a patching dialect is a fault of the configuration', () => {
  const rooms = { ...OWN_ROOMS, owns: 'object' } as const;
  const modules = { files: ['/etc/slotsync/own.ts'], hash: '' };
  const check = () =>
    checkConfiguration({ streams: { rooms } }, 'sync.config.ts', {
      dialect: { exported: patchingService, modules },
    });
  expect(check).toThrow(expect.objectContaining({ faults: [expect.stringContaining('streams.rooms.owns')] }));
});

it('a patching dialect sends only mapped fields in an update, and no field in a deactivation', async () => {
  const bodies: { objects: object[] }[] = [];
  const dialect = defineDialect((base) => {
    const parts = (patchingService as (given: typeof base) => DialectParts)(base);
    const body: typeof base.write.body = (objects) => {
      const written = parts.write?.body?.(objects);
      bodies.push(written as { objects: object[] });
      return written;
    };
    return { ...parts, write: { ...parts.write, body } };
  });
  const world = await campus({ ...PATCHING, dialect });
  await world.sync('rooms');
  world.sandbox.changeObject('room_B', { fields: [{ fieldId: 'room.note', values: ['by hand'] }] });
  world.sandbox.clearArrivals();
  bodies.length = 0;
  await world.sql`UPDATE rooms SET seats = NULL WHERE code = 'B'`;
  await world.sync('rooms');
  expect(bodies.flatMap(({ objects }) => objects)).toEqual([
    {
      extId: 'room_B',
      typeId: 'room',
      active: true,
      fields: [
        { fieldId: 'room.name', values: ['Bridge'] },
        { fieldId: 'room.seats', values: [] },
      ],
    },
  ]);
  const aboutObjects = requestsOf(world).filter((request) => request.includes('/objects'));
  expect(aboutObjects).toEqual(['POST /objects/upsert']);
  bodies.length = 0;
  await world.sql`DELETE FROM rooms WHERE code = 'B'`;
  await world.sync('rooms');
  expect(bodies.flatMap(({ objects }) => objects)).toMatchObject([{ active: false, fields: [] }]);
  expect(world.fieldsOf('room_B')).toEqual({ 'room.name': 'Bridge', 'room.note': 'by hand' });
});

it('a patching dialect sends the fields of a deactivation, and empties them when the row is back', async () => {
  const fields = { 'room.name': 'closed', 'room.note': 'closed' };
  const retiring = { ...OWN_ROOMS, retire: { deactivate: true, fields } } as const;
  const world = await campus(PATCHING, { ...CONFIG, streams: { rooms: retiring } });
  await world.sync();
  const [row] = await world.sql`DELETE FROM rooms WHERE code = 'B' RETURNING *`;
  await world.sync();
  const closed = world.fieldsOf('room_B');
  expect(closed).toMatchObject(fields);
  await world.sql`INSERT INTO rooms ${world.sql(row ?? {})}`;
  await world.sync();
  expect(world.sandbox.object('room_B')).toMatchObject({ active: true });
  expect(world.fieldsOf('room_B')).toEqual({ ...closed, 'room.name': 'Bridge', 'room.note': undefined });
  await world.sql`UPDATE rooms SET seats = NULL WHERE code = 'B'`;
  await world.sync();
  const writes = await listWrites(world.state.db, { stream: 'rooms', localKey: 'B' }, 10);
  // The last write was not preceded by a reading.
  expect(writes.map(({ operation, fields: written }) => [operation, ...written])).toEqual([
    ['update', 'room.name', 'room.seats'],
    ['update', 'active', 'room.name', 'room.note'],
    ['retire', 'active', 'room.name', 'room.note'],
    ['create', 'room.name', 'room.seats'],
  ]);
});

describe('a wrong dialect', () => {
  const ROOMS_ALONE = { ...CONFIG, streams: { rooms: OWN_ROOMS } };

  /** Rooms that are synced by the default dialect, and then by this one, beside a change and a removal. */
  async function change(parts: DialectDefinition) {
    const isWrong = { now: false };
    const dialect = defineDialect((base) => {
      const given = typeof parts === 'function' ? parts(base) : parts;
      return Object.fromEntries(
        Object.entries(given).map(([section, part]) => [
          section,
          Object.fromEntries(
            Object.entries(part as object).map(([name, wrong]) => {
              const right = (base as never)[section][name] as (...of: unknown[]) => unknown;
              return [name, (...of: unknown[]) => (isWrong.now ? wrong : right)(...of)];
            }),
          ),
        ]),
      ) as DialectParts;
    });
    const world = await campus({ dialect, service: { pageSize: 2, requestTimeoutMs: 2000 } }, ROOMS_ALONE);
    await world.sync();
    const before = await world.recordsOf('rooms');
    const byHand = { 'room.name': 'Aula', 'room.seats': '40', 'room.note': 'by hand' };
    world.sandbox.changeObject('room_A', {
      fields: Object.entries(byHand).map(([fieldId, value]) => ({ fieldId, values: [value] })),
    });
    await world.sql`UPDATE rooms SET seats = 99 WHERE code IN ('A', 'E')`;
    await world.sql`DELETE FROM rooms WHERE code = 'D'`;
    isWrong.now = true;
    const { errors, run } = await world.sync();
    const after = await world.recordsOf('rooms');
    expect(world.sandbox.object('room_D')).toMatchObject({ active: true });
    expect(after['A']?.object_hash).toBe(before['A']?.object_hash);
    expect(world.fieldsOf('room_A')).toMatchObject({ 'room.note': 'by hand' });
    isWrong.now = false;
    await world.passLateWrites();
    await world.sync();
    await world.drainInbox();
    await world.sync();
    expect(world.fieldsOf('room_A')?.['room.seats']).toBe('99');
    expect(world.sandbox.object('room_D')).toMatchObject({ active: false });
    return { errors: errors as { message: string; remedy: string }[], after, run };
  }

  type Read = ReturnType<
    Parameters<Extract<DialectDefinition, (...of: never[]) => unknown>>[0]['object']['read']
  >;
  const reads =
    (change: (read: Read) => object): DialectDefinition =>
    (base) => ({
      object: {
        read(found, carries) {
          const read = base.object.read(found, carries);
          return { ...read, ...change(read) };
        },
      },
    });
  const pages =
    (change: object): DialectDefinition =>
    (base) => ({
      find: { read: (body, question) => ({ results: base.find.read(body, question).results, ...change }) },
    });
  const ofRoomA = (extId: string | null) => (read: Read) => (read.extId === 'room_A' ? { extId } : {});
  const OTHER_ID = 'object.read of service-dialect.ts returns an object without the requested external id';

  // prettier-ignore
  const WRONG: [what: string, parts: DialectDefinition, says: string][] = [
    ['throws when it reads a find', { find: { read: () => JSON.parse('{') as never } }, 'find.read of service-dialect.ts throws'],
    ['fails by its own fault when it reads a write', { write: { read: () => (undefined as never)['results'] } }, 'write.read of service-dialect.ts throws'],
    ['returns nothing of a find', { find: { read: () => undefined as never } }, 'find.read of service-dialect.ts returns nothing'],
    ['reads the external id of another object', reads(() => ({ extId: 'another' })), OTHER_ID],
    ['drops the external id', reads(() => ({ extId: undefined })), OTHER_ID],
    ['reads the external id of one object as that of another', reads(ofRoomA('room_E')), OTHER_ID],
    ['reads the external id of one object as null', reads(ofRoomA(null)), OTHER_ID],
    ['repeats a cursor', pages({ next: 'again' }), 'repeats the cursor of an earlier page'],
    ['does not say whether there is more', pages({}), 'neither `next` (null after the last page) nor `totalPages`'],
    ['is async when it reads a write', { write: { read: (async () => []) as never } }, 'write.read of service-dialect.ts returns a promise'],
    ['asks with something else than a request', { find: { ask: () => ({ path: 'objects' }) as never } }, 'find.ask of service-dialect.ts returns something else than is expected'],
    ['throws when it writes', { write: { body: () => JSON.parse('{') as never } }, 'write.body of service-dialect.ts throws'],
  ];
  it.each(WRONG)(
    'causes one clear error, changes nothing, and recovers once it is right: it %s',
    async (_, parts, says) => {
      const { errors, after, run } = await change(parts);
      const texts = [
        ...errors.map(({ message, remedy }) => `${message} → ${remedy}`),
        JSON.stringify(run),
        ...Object.values(after).map(({ error_message }) => error_message ?? ''),
      ];
      expect(texts.join('\n')).toContain(says);
    },
  );
});
