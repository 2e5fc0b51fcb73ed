import { afterEach, describe, expect, it } from 'vitest';
import { createVisitor } from '../support/visitor.js';
import { startSandbox } from '../../src/sandbox/sandbox.js';
import type { Sandbox, SandboxOptions } from '../../src/sandbox/sandbox.js';

const SCHEMA = {
  types: [{ extId: 'room', name: 'Room' }, { extId: 'course' }],
  fields: [
    { extId: 'room.name', type: 'room', mandatory: true, maxLength: 10 },
    { extId: 'room.seats', type: 'room' },
    { extId: 'course.room', type: 'course', reference: 'room' },
    { extId: 'comment' },
  ],
};

interface Found {
  results: { extId: string | null; status?: string[] }[];
  totalResults: number;
}
interface Put {
  results: { extId: string; id?: number; status: number; message?: string }[];
}

let running: Sandbox[] = [];
afterEach(async () => {
  await Promise.all(running.map((sandbox) => sandbox.close()));
  running = [];
});

/** Starts a sandbox without a quota unless a rate is given, so that other tests need no pace. */
async function start(options: SandboxOptions = {}): Promise<Sandbox> {
  const sandbox = await startSandbox({ rate: 0, schema: SCHEMA, ...options });
  running.push(sandbox);
  return sandbox;
}

function authenticate(sandbox: Sandbox): Promise<Response> {
  return fetch(`${sandbox.url}/v1/organizations/demo/api-keys/authenticate`, {
    method: 'POST',
    headers: { authorization: 'Api-Key sandbox-key', 'x-region': 'EU_EES', accept: 'application/json' },
  });
}

async function connect(sandbox: Sandbox) {
  const { token } = (await (await authenticate(sandbox)).json()) as { token: string };
  const call = (method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<Response> =>
    fetch(sandbox.url + path, {
      method,
      headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      ...(signal === undefined ? {} : { signal }),
    });
  return {
    token,
    call,
    put: (objects: unknown[]) => call('PUT', '/v1/objects', { idFormat: 'EXTERNAL', objects }),
    find: async (noun: string, body: object = {}): Promise<Found> => {
      const answer = await call('POST', `/v1/${noun}/find`, { idFormat: 'EXTERNAL', ...body });
      expect(answer.status).toBe(200);
      return (await answer.json()) as Found;
    },
  };
}

function room(name: string, fields: Record<string, string> = {}) {
  const all = { 'room.name': name, ...fields };
  return {
    extId: `room_${name}`,
    typeId: 'room',
    active: true,
    fields: Object.entries(all).map(([fieldId, value]) => ({ fieldId, values: [value] })),
  };
}

async function messageOf(answer: Response): Promise<string> {
  return ((await answer.json()) as { message: string }).message;
}

it('the sandbox answers the right key, region and organization with a JWT that names its end', async () => {
  const { token } = await connect(await start({ tokenSeconds: 60 }));
  const claims = Buffer.from(token.split('.')[1] ?? '', 'base64url').toString();
  const endsInSeconds = (JSON.parse(claims) as { exp: number }).exp - Date.now() / 1000;
  expect(endsInSeconds).toBeGreaterThan(50);
  expect(endsInSeconds).toBeLessThanOrEqual(60);
});

describe('an invalid request to the sandbox', () => {
  it.each([
    ['objects', { typ: 'room' }, 'typ'],
    ['objects', { page: 0 }, 'page'],
    ['objects', { typeId: 'building' }, 'building'],
    ['objects', { typeId: 1 }, 'typeId'],
    ['objects', { idFormat: 'INTERNAL', typeId: 'room' }, 'idFormat'],
    ['reservations', { date: { startDate: 0, endDate: 1_700_000_000_000 } }, 'milliseconds'],
    ['reservations', { reservationStatus: ['ALL'] }, 'reservationStatus'],
  ])('is refused when it finds %s by %j, with a message about %s', async (noun, body, place) => {
    const { call } = await connect(await start());
    const answer = await call('POST', `/v1/${noun}/find`, { idFormat: 'EXTERNAL', ...body });
    expect(answer.status).toBe(400);
    expect(await messageOf(answer)).toContain(place);
  });
});

describe('PUT /objects of the sandbox', () => {
  it('refuses single items, and takes all other items', async () => {
    const sandbox = await start();
    sandbox.refuseObject('room_E', { status: 409, message: 'locked' });
    const { put } = await connect(sandbox);
    const answer = await put([
      room('A'),
      { ...room('B'), typeId: 'building' },
      { ...room('C'), fields: [] },
      room('D'.repeat(11)),
      room('E'),
      { ...room('F'), fields: [...room('F').fields, { fieldId: 'course.room', values: [] }] },
      room('G'),
    ]);
    expect(answer.status).toBe(207);
    const { results } = (await answer.json()) as Put;
    expect(results.map(({ status }) => status)).toEqual([200, 400, 400, 400, 409, 400, 200]);
    expect(results.map(({ message }) => message)).toEqual([
      undefined,
      expect.stringContaining('building'),
      expect.stringContaining('mandatory field room.name'),
      expect.stringContaining('10 characters'),
      'locked',
      expect.stringContaining('does not belong'),
      undefined,
    ]);
    expect(sandbox.objects().map(({ extId }) => extId)).toEqual(['room_A', 'room_G']);

    sandbox.allowObject('room_E');
    expect((await put([room('E')])).status).toBe(200);
  });

  it.each([
    ['a duplicate', [room('A'), room('B'), room('A')], 'twice'],
    ['an unknown field', [room('A'), room('B', { 'room.colour': 'red' })], 'room.colour'],
    ['integer references', [room('A'), { ...room('B'), typeId: 1 }], 'typeId'],
    [
      'a value that is no list',
      [{ ...room('A'), fields: [{ fieldId: 'room.name', values: 'A' }] }],
      'values',
    ],
    [
      'a value that is no text',
      [{ ...room('A'), fields: [{ fieldId: 'room.seats', values: [4] }] }],
      'values',
    ],
    ['a property that only the service maintains', [{ ...room('A'), modified: 1 }], 'modified'],
    ['a poisonous object', [room('A'), room('POISON')], 'poison'],
  ])('refuses the whole call for %s, and stores nothing', async (_, objects, place) => {
    const sandbox = await start();
    sandbox.refuseObject('room_POISON', { status: 400, message: 'poison', wholeCall: true });
    const { put } = await connect(sandbox);
    const answer = await put(objects);
    expect(answer.status).toBe(400);
    expect(await messageOf(answer)).toContain(place);
    expect(sandbox.objects()).toEqual([]);
  });

  const course = (extId: string, roomId: string) => ({
    extId,
    typeId: 'course',
    fields: [{ fieldId: 'course.room', values: [roomId] }],
  });

  it('refuses the whole call or only the object for an unknown reference, as configured', async () => {
    const whole = await start();
    const refused = await (await connect(whole)).put([room('A'), course('c1', 'room_Z')]);
    expect(refused.status).toBe(400);
    expect(whole.objects()).toEqual([]);

    const single = await start({ references: 'item' });
    single.putObject({ extId: 'c0', typeId: 'course' });
    const answer = await (
      await connect(single)
    ).put([
      room('A'),
      course('c1', 'room_Z'),
      course('c2', 'room_A'),
      course('c3', 'c0'),
      { ...room('B'), fields: [] },
      course('c4', 'room_B'),
    ]);
    const { results } = (await answer.json()) as Put;
    expect(results.map(({ status }) => status)).toEqual([200, 400, 200, 400, 400, 400]);
  });

  it('refuses a reference to an object of the same call with references: stored', async () => {
    const sandbox = await start({ references: 'stored' });
    const { put } = await connect(sandbox);
    const answer = (await (await put([room('A'), course('c1', 'room_A')])).json()) as Put;
    expect(answer.results.map(({ status }) => status)).toEqual([200, 400]);
    expect((await put([course('c1', 'room_A')])).status).toBe(200);
  });
});

describe('finds of objects, types and fields in the sandbox', () => {
  it('join ids and extIds with the other filters, if there are any', async () => {
    const sandbox = await start();
    const a = sandbox.putObject(room('A'));
    sandbox.putObject(room('B', { 'room.seats': '4' }));
    sandbox.putObject({ ...room('C'), active: false });
    const course = sandbox.putObject({ extId: 'course_1', typeId: 'course' });
    const { find } = await connect(sandbox);
    const extIds = async (body: object) => (await find('objects', body)).results.map(({ extId }) => extId);

    expect(await extIds({})).toEqual(['room_A', 'room_B', 'room_C', 'course_1']);
    expect(await extIds({ extIds: ['course_1', 'room_A', 'nobody'] })).toEqual(['room_A', 'course_1']);
    expect(await extIds({ ids: [course.id], extIds: ['room_A'] })).toEqual(['room_A', 'course_1']);
    expect(await extIds({ typeId: 'course' })).toEqual(['course_1']);
    expect(await extIds({ typeId: 'course', ids: [a.id] })).toEqual(['room_A', 'course_1']);
    const seats = { exactSearchFields: [{ fieldId: 'room.seats', values: ['4', '5'] }] };
    expect(await extIds({ typeId: 'room', fields: seats })).toEqual(['room_B']);
    const nowSeconds = Math.floor(Date.now() / 1000);
    const past = { startDate: 0, endDate: nowSeconds - 3600 };
    const recent = { startDate: nowSeconds - 3600, endDate: nowSeconds + 3600 };
    expect(await extIds({ typeId: 'room', modified: past })).toEqual([]);
    expect(await extIds({ typeId: 'course', modified: recent })).toEqual(['course_1']);
  });
});

describe('objects made by hand in the sandbox', () => {
  const named = (name: string) => [{ fieldId: 'room.name', values: [name] }];

  it('are found without an external id, by type, fields and number, and not by external id', async () => {
    const sandbox = await start();
    const unnamed = sandbox.addObject({ typeId: 'room', fields: named('A') });
    const other = sandbox.addObject({ typeId: 'room', extId: 'room_B', active: false });
    const { find } = await connect(sandbox);
    expect((await find('objects', { typeId: 'room' })).results).toMatchObject([unnamed, other]);
    expect(unnamed).toMatchObject({ extId: null, active: true });
    expect((await find('objects', { ids: [unnamed.id] })).results).toMatchObject([unnamed]);
    const byField = { fields: { exactSearchFields: [{ fieldId: 'room.name', values: ['A'] }] } };
    expect((await find('objects', byField)).results).toMatchObject([unnamed]);
    expect((await find('objects', { extIds: ['null', String(unnamed.id), ''] })).results).toEqual([]);
    expect([sandbox.objects(), sandbox.unnamedObjects()]).toEqual([[other], [unnamed]]);
    expect(() => sandbox.addObject({ typeId: 'room', extId: 'room_B' })).toThrow(/room_B exists/);
  });

  it.each<[string, object, RegExp]>([
    ['a number that does not exist', { id: 99, extId: 'room_C' }, /no object 99/],
    ['an object with another external id', { id: 1001, extId: 'room_C' }, /external id room_A/],
    ['an external id of another object', { id: 1002, extId: 'room_A' }, /object 1001/],
    ['another type', { id: 1002, extId: 'room_C', typeId: 'course', fields: [] }, /type/],
  ])('are refused alone with %s', async (_, changes, reason) => {
    const sandbox = await start({ assignsExternalIds: true });
    sandbox.putObject(room('A'));
    const unnamed = sandbox.addObject({ typeId: 'room', fields: named('B') });
    const { put } = await connect(sandbox);
    const answer = await put([{ ...room('C'), ...changes }, room('D')]);
    const [refused, accepted] = ((await answer.json()) as Put).results;
    expect([answer.status, refused?.status, accepted?.status]).toEqual([207, 400, 200]);
    expect(refused?.message).toMatch(reason);
    expect(sandbox.object(unnamed.id)).toEqual(unnamed);
  });

  it('are refused with a number if external ids are not assigned, and twice in one call', async () => {
    const sandbox = await start();
    const { id } = sandbox.addObject({ typeId: 'room' });
    const answer = await (await connect(sandbox)).put([{ ...room('A'), id }]);
    expect(((await answer.json()) as Put).results).toMatchObject([{ status: 400 }]);
    expect(sandbox.objects()).toEqual([]);
    const assigning = await start({ assignsExternalIds: true });
    const other = assigning.addObject({ typeId: 'room' });
    const { put } = await connect(assigning);
    const twice = [
      { ...room('A'), id: other.id },
      { ...room('B'), id: other.id },
    ];
    expect((await put(twice)).status).toBe(400);
    expect(assigning.objects()).toEqual([]);
  });
});

describe('unreliable finds of the sandbox', () => {
  it('refuse a search by fields where it is switched off, and no other find', async () => {
    const sandbox = await start({ searchesFields: false });
    sandbox.putObject(room('A'));
    const { call, find } = await connect(sandbox);
    const fields = { exactSearchFields: [{ fieldId: 'room.name', values: ['A'] }] };
    expect((await call('POST', '/v1/objects/find', { idFormat: 'EXTERNAL', fields })).status).toBe(400);
    expect((await find('objects', { typeId: 'room' })).totalResults).toBe(1);
  });
});

describe('reservations and cancellations in the sandbox', () => {
  const HOUR = 3600;
  const NOON = 1_800_000_000;
  const booking = (extId: string, at = NOON) => ({
    extId,
    begin: at,
    end: at + HOUR,
    objects: [
      { typeId: 'room', objectId: 'room_A' },
      { typeId: 'course', objectId: 'course_1' },
    ],
  });
  const bookings = async ({ find }: Awaited<ReturnType<typeof connect>>, body: object = {}) =>
    (await find('reservations', body)).results.map(({ extId }) => extId);

  it('are found by overlap, in half-open periods', async () => {
    const sandbox = await start();
    for (const [extId, at] of [
      ['before', -HOUR],
      ['within', 0],
      ['after', HOUR],
    ] as const)
      sandbox.addReservation(booking(extId, NOON + at));
    const connection = await connect(sandbox);
    const date = { startDate: NOON, endDate: NOON + HOUR };
    expect(await bookings(connection, { date })).toEqual(['within']);
    const wider = { startDate: NOON - 1, endDate: NOON + HOUR + 1 };
    expect(await bookings(connection, { date: wider })).toHaveLength(3);
    expect(await bookings(connection, { date, extIds: ['after'] })).toEqual(['within', 'after']);
    expect(await bookings(connection, { extIds: ['after'] })).toEqual(['after']);
  });

  it('are hidden by a status that was not asked for, but not in a list', async () => {
    const sandbox = await start();
    sandbox.addReservation(booking('normal'));
    const preliminary = sandbox.addReservation({ ...booking('preliminary'), status: ['C_PRELIMINARY'] });
    sandbox.addReservation({ ...booking('incomplete'), status: ['B_INCOMPLETE', 'C_CONFIRMED'] });
    const connection = await connect(sandbox);
    const states = ['CONFIRMED', 'PRELIMINARY', 'PLANNED', 'REQUESTED', 'REJECTED'];
    const all = ['B_COMPLETE', 'B_INCOMPLETE', ...states.map((state) => `C_${state}`)];
    expect(await bookings(connection)).toEqual(['normal']);
    expect(await bookings(connection, { ids: [preliminary.id] })).toEqual(['preliminary']);
    expect(await bookings(connection, { reservationStatus: ['C_PRELIMINARY'] })).toEqual(['preliminary']);
    expect(await bookings(connection, { reservationStatus: all })).toHaveLength(3);
    expect((await connection.find('reservations')).results).toMatchObject([{ status: [] }]);
    sandbox.setReservationStatus('preliminary', []);
    expect(await bookings(connection)).toEqual(['normal', 'preliminary']);
  });

  it('are found by any object within a type, and by all types', async () => {
    const sandbox = await start();
    sandbox.addReservation(booking('both'));
    sandbox.addReservation({ ...booking('room only'), objects: [{ typeId: 'room', objectId: 'room_B' }] });
    const connection = await connect(sandbox);
    const rooms = ['room_A', 'room_B'].map((objectId) => ({ typeId: 'room', objectId }));
    const course = { typeId: 'course', objectId: 'course_1' };
    expect(await bookings(connection, { searchObjects: rooms })).toEqual(['both', 'room only']);
    expect(await bookings(connection, { searchObjects: [...rooms, course] })).toEqual(['both']);
  });
});

describe('the quota of the sandbox', () => {
  it('counts wrong requests, and tells when to come back', async () => {
    const sandbox = await start({ rate: 2 });
    const answers: Response[] = [];
    for (let i = 0; i < 3; i += 1) answers.push(await fetch(`${sandbox.url}/v1/nothing`));
    expect(answers.map(({ status }) => status)).toEqual([404, 404, 429]);
    expect(answers[2]?.headers.get('retry-after')).toBe('1');
    expect(sandbox.refused()).toBe(1);
  });
});

describe('faults of the sandbox', () => {
  it('answer an ordered status, body and headers without processing', async () => {
    const sandbox = await start();
    const { put } = await connect(sandbox);
    sandbox.failNext({
      path: '/objects',
      fault: 'status',
      status: 503,
      body: { message: 'down' },
      headers: { 'retry-after': '3' },
    });
    const answer = await put([room('A')]);
    expect([answer.status, answer.headers.get('retry-after')]).toEqual([503, '3']);
    expect(await messageOf(answer)).toBe('down');
    expect(sandbox.objects()).toEqual([]);
    expect((await put([room('A')])).status).toBe(200);
  });

  it('reset before processing, or lose the answer after it', async () => {
    const sandbox = await start();
    const { put } = await connect(sandbox);
    sandbox.failNext({ fault: 'reset' });
    await expect(put([room('A')])).rejects.toThrow();
    expect(sandbox.objects()).toEqual([]);

    sandbox.failNext({ fault: 'loseAnswer' });
    await expect(put([room('A')])).rejects.toThrow();
    expect(sandbox.object('room_A')).toBeDefined();
    expect(sandbox.arrivals().map(({ status }) => status)).toEqual([200, 0, 0]);
  });

  it('happen by seeded chance, the same way each time', async () => {
    const run = async (): Promise<number[]> => {
      const sandbox = await start({ seed: 42, faults: { status500: 0.5 } });
      const statuses: number[] = [];
      for (let i = 0; i < 20; i += 1) statuses.push((await authenticate(sandbox)).status);
      sandbox.setFaults({});
      expect((await authenticate(sandbox)).status).toBe(200);
      return statuses;
    };
    const statuses = await run();
    expect(new Set(statuses)).toEqual(new Set([200, 500]));
    expect(await run()).toEqual(statuses);
  });
});

describe('the gate of the sandbox', () => {
  it('holds nothing that the quota refuses, and counts each held request once', async () => {
    const sandbox = await start({ rate: 2, gate: { method: 'PUT' } });
    const { put } = await connect(sandbox);
    const held = put([room('A')]);
    await expect.poll(() => sandbox.gate().held).toBe(1);
    expect((await put([room('B')])).status).toBe(429);
    sandbox.openGate();
    expect((await held).status).toBe(200);
    expect(sandbox.arrivals()).toHaveLength(3);
  });

  it('carries out a held request although its client has gone, and drops it at the close', async () => {
    const sandbox = await start({ gate: {} });
    sandbox.openGate();
    const { call } = await connect(sandbox);
    sandbox.closeGate();
    const objects = { idFormat: 'EXTERNAL', objects: [room('A')] };
    const leaving = new AbortController();
    const left = call('PUT', '/v1/objects', objects, leaving.signal).catch((error: unknown) => error);
    await expect.poll(() => sandbox.gate().held).toBe(1);
    leaving.abort();
    await left;
    sandbox.openGate();
    await expect.poll(() => sandbox.object('room_A')).toBeDefined();

    sandbox.closeGate();
    const dropped = call('PUT', '/v1/objects', objects).catch((error: unknown) => error);
    await expect.poll(() => sandbox.gate().held).toBe(1);
    await sandbox.close();
    expect(await dropped).toBeInstanceOf(Error);
  });
});

describe('the summary of requests in the sandbox', () => {
  it('notes every request of the service, in order, and no control request', async () => {
    const sandbox = await start();
    const { put, find } = await connect(sandbox);
    await put([room('A'), room('B')]);
    await find('objects');
    await fetch(`${sandbox.url}/sandbox/summary`);
    const at = expect.any(Number);
    expect(sandbox.arrivals()).toEqual([
      { at, method: 'POST', path: '/v1/organizations/demo/api-keys/authenticate', status: 200 },
      { at, method: 'PUT', path: '/v1/objects', status: 200, objects: 2 },
      { at, method: 'POST', path: '/v1/objects/find', status: 200 },
    ]);
    sandbox.clearArrivals();
    expect([sandbox.arrivals(), sandbox.mostInAnySecond(), sandbox.refused()]).toEqual([[], 0, 0]);
  });
});

describe('the control interface of the sandbox', () => {
  async function control(sandbox: Sandbox, method: string, path: string, body?: unknown) {
    const answer = await fetch(`${sandbox.url}/sandbox/${path}`, {
      method,
      ...(body === undefined
        ? {}
        : { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } }),
    });
    const text = await answer.text();
    return { status: answer.status, body: (text === '' ? undefined : JSON.parse(text)) as unknown };
  }
  /** Sends these requests one after another, and expects each status, and what is named of each answer. */
  async function expectAnswers(
    sandbox: Sandbox,
    ...requests: [request: string, body: unknown, status: number, answer?: object | undefined][]
  ): Promise<void> {
    for (const [request, body, status, answer] of requests) {
      const [method = '', path = ''] = request.split(' ');
      const answered = await control(sandbox, method, path, body);
      expect({ request, ...answered }).toMatchObject({ request, status, ...(answer && { body: answer }) });
    }
  }

  it('takes JSON as `curl -d` sends it', async () => {
    const sandbox = await startSandbox();
    running.push(sandbox);
    const headers = { 'content-type': 'application/x-www-form-urlencoded' };
    const body = JSON.stringify({ extId: 'res_1', begin: 1_796_104_800, end: 1_796_112_000, objects: [] });
    const answer = await fetch(`${sandbox.url}/sandbox/reservations`, { method: 'POST', headers, body });
    expect(answer.status).toBe(200);
    expect(sandbox.reservations()).toMatchObject([{ extId: 'res_1', begin: 1_796_104_800 }]);
  });

  it.each<[string, Record<string, string>, number]>([
    ['a program of this machine', {}, 200],
    ['a page of this machine', { host: 'localhost:80', origin: 'http://localhost:8080' }, 200],
    ['a page of another site', { origin: 'https://elsewhere.example' }, 403],
    ['a page of a file or in a sandboxed frame', { origin: 'null' }, 403],
    [
      'a name that another site has rebound to this machine',
      { host: 'rebound.example', origin: 'http://rebound.example' },
      403,
    ],
    ['a rebound name, by GET', { host: '127.0.0.1.rebound.example' }, 403],
  ])('answers only programs and pages of this machine: %s', async (_, headers, status) => {
    const sandbox = await start();
    const { visit } = createVisitor(Number(new URL(sandbox.url).port));
    for (const method of ['GET', 'DELETE'])
      expect((await visit('/sandbox/arrivals', { method, headers })).status).toBe(
        status === 200 && method === 'DELETE' ? 204 : status,
      );
  });

  it('defines the schema, seeds objects and reports, without a token or the quota', async () => {
    const sandbox = await startSandbox({ rate: 1 });
    running.push(sandbox);
    await expectAnswers(
      sandbox,
      ['PUT schema', SCHEMA, 204],
      ['PUT objects', { ...room('A'), active: false }, 200],
      ['PUT objects', room('B'), 200],
    );
    for (const _ of ['first', 'second']) await authenticate(sandbox);
    expect((await control(sandbox, 'GET', 'summary')).body).toEqual({
      objects: { room: { active: 1, inactive: 1 } },
      reservations: 0,
      cancellations: 0,
      requests: 2,
      refused: 1,
      mostInAnySecond: 2,
      answers: { 'POST /v1/organizations/demo/api-keys/authenticate': { 200: 1, 429: 1 } },
    });
    const listed = { objects: sandbox.objects(), 'objects?typeId=course': [], arrivals: sandbox.arrivals() };
    for (const [path, body] of Object.entries(listed))
      expect((await control(sandbox, 'GET', path)).body).toEqual(body);
    await expectAnswers(sandbox, ['DELETE arrivals', undefined, 204]);
    expect(sandbox.arrivals()).toEqual([]);
  });

  it('makes, changes and removes objects by hand, and leaves out pages', async () => {
    const sandbox = await start();
    const made = await control(sandbox, 'POST', 'objects', { typeId: 'room' });
    const { id } = made.body as { id: number };
    expect(made).toMatchObject({ status: 200, body: { extId: null, typeId: 'room', active: true } });
    await expectAnswers(
      sandbox,
      ['GET objects?typeId=room', undefined, 200, [made.body]],
      [`PATCH objects/${id}`, { extId: 'room_A' }, 200, { id, extId: 'room_A' }],
      ['PATCH objects/room_A', { active: false }, 200],
      ['DELETE objects/room_A', undefined, 204],
      ['DELETE objects/room_A', undefined, 404],
      ['PATCH objects/1', { typeId: 'course' }, 400],
      ['POST objects', { typeId: 'room' }, 200],
      ['PUT pages', { missing: 1 }, 204],
    );
    expect((await (await connect(sandbox)).find('objects')).results).toEqual([]);
  });

  it('orders faults, refusals, latency and quota', async () => {
    const sandbox = await start();
    const { put } = await connect(sandbox);
    const latency = { latencyMs: 0, jitterMs: 0, latencyPerObjectMs: 0.3 };
    for (const [request, body, answers, objects] of [
      ['POST fail-next', { fault: 'status', status: 502, times: 2 }, [502, 502, 200]],
      ['PUT faults', { status500: 1 }, [500]],
      ['PUT faults', {}, [200]],
      ['PUT refusals/room_A', { status: 400, message: 'no' }, [207], [room('A')]],
      ['DELETE refusals/room_A', undefined, [200], [room('A')]],
      ['PUT quota', { rate: 1, window: 'bucket', retryAfter: false }, [200, 429]],
      ['PUT quota', { rate: 0 }, [200]],
      ['DELETE tokens', undefined, [401]],
      ['PUT latency', latency, [401]],
    ] as [string, unknown, number[], unknown[]?][]) {
      await expectAnswers(sandbox, [request, body, 204]);
      for (const status of answers) expect((await put(objects ?? [])).status, request).toBe(status);
    }
    await expectAnswers(sandbox, ['PUT latency', { ...latency, latencyPerObjectMs: -1 }, 400]);
  });

  it('orders pages of HTML and late requests, counts them, and carries them out', async () => {
    const sandbox = await start();
    const { put } = await connect(sandbox);
    const page = { path: 'objects', method: 'put', fault: 'html', status: 404, times: 'always' };
    await expectAnswers(sandbox, ['POST fail-next', page, 204]);
    expect([(await put([])).status, (await put([])).status]).toEqual([404, 404]);
    await expectAnswers(
      sandbox,
      ['DELETE fail-next', undefined, 204],
      ['POST fail-next', { method: 'put', fault: 'late', afterMs: 'asked' }, 204],
    );
    const lost = put([room('A')]).catch((error: unknown) => error);
    await expect.poll(async () => (await control(sandbox, 'GET', 'late')).body).toEqual({ waiting: 1 });
    await expectAnswers(sandbox, ['POST late/reset', undefined, 204]);
    expect(await lost).toBeInstanceOf(Error);
    await expectAnswers(
      sandbox,
      ['POST late/release', undefined, 204],
      ['GET late', undefined, 200, { waiting: 0 }],
      ['POST fail-next', { fault: 'late', delayMs: -1 }, 400],
    );
    expect(sandbox.object('room_A')).toBeDefined();
  });

  it('closes the gate, counts the held requests, and opens the gate', async () => {
    const sandbox = await start();
    const { put } = await connect(sandbox);
    await expectAnswers(sandbox, ['POST gate', { path: 'objects', method: 'put' }, 204]);
    const held = put([room('A')]);
    const gate = async () => (await control(sandbox, 'GET', 'gate')).body;
    await expect.poll(gate).toEqual({ closed: true, held: 1 });
    await expectAnswers(sandbox, ['DELETE gate', undefined, 204]);
    expect((await held).status).toBe(200);
    await expectAnswers(sandbox, ['POST gate', undefined, 204], ['POST gate', { after: -1 }, 400]);
    expect(await gate()).toEqual({ closed: true, held: 0 });
  });

  it('makes, moves, cancels and restores reservations', async () => {
    const sandbox = await start();
    const made = await control(sandbox, 'POST', 'reservations', { extId: 'res/1', begin: 10, end: 20 });
    expect(made.body).toMatchObject({ extId: 'res/1', begin: 10, end: 20, status: [] });
    const { id } = made.body as { id: number };
    const moved = { begin: 30, end: 40 };
    const status = { status: ['C_PLANNED'] };
    const cancelled = { reservationId: id };
    await expectAnswers(
      sandbox,
      [`POST reservations/${id}/move`, moved, 200, moved],
      ['POST reservations/res%2F1/status', status, 200, status],
      [`POST reservations/${id}/cancel`, undefined, 200, cancelled],
      ['GET reservations', undefined, 200, { reservations: [], cancellations: [cancelled] }],
      [`POST reservations/${id}/restore`, undefined, 200, { id }],
      [`DELETE reservations/${id}`, undefined, 204],
    );
    expect(sandbox.reservations()).toEqual([]);
  });

  it('names what it did not understand', async () => {
    const says = (text: string) => ({ message: expect.stringContaining(text) as string });
    await expectAnswers(
      await start(),
      ['PUT faults', { status500: 2 }, 400, says('status500')],
      ['POST reservations/7/move', { begin: 1, end: 2 }, 404],
      ['POST reservations', { begin: 2, end: 2 }, 400],
      ['PUT schema', { types: 1 }, 400],
      ['GET secrets', undefined, 404],
      ['PUT summary', undefined, 405],
      ['PUT refusals/%E0%A4%A', { status: 400, message: '' }, 400],
    );
  });
});

describe('subtypes in the sandbox', () => {
  const withClassroom = { ...SCHEMA, types: [...SCHEMA.types, { extId: 'classroom', parent: 'room' }] };
  const classroom = { ...room('A'), typeId: 'classroom' };

  it.each([
    [true, ['room_A', 'room_B']],
    [undefined, ['room_B']],
  ])('are found with their parent type if the sandbox says so: %s', async (findsSubtypes, expected) => {
    const sandbox = await start({ schema: withClassroom, findsSubtypes });
    const { put, find } = await connect(sandbox);
    await put([classroom, room('B')]);
    const found = async (typeId: string) =>
      (await find('objects', { typeId })).results.map(({ extId }) => extId);
    expect(await found('room')).toEqual(expected);
    expect(await found('classroom')).toEqual(['room_A']);
  });
});
