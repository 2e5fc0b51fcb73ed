// Health and metrics over real sockets, from a real state.
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { pino } from 'pino';
import postgres from 'postgres';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { UsageError } from '../../src/errors/errors.js';
import { json, readForm, startHttpServer, type HttpServer, type Routes } from '../../src/http/http-server.js';
import { createHealth, createWorkerHttp } from '../../src/http/worker-http.js';
import { readCountedFacts, readGaugeFacts } from '../../src/http/metrics.js';
import { openState, type State, inSnapshot } from '../../src/state/database.js';
import { createDatabase, type TestDatabase } from '../support/services.js';
import { until } from '../support/wait.js';
import { holdRetirements } from '../support/stored-gates.js';

const log = pino({ level: 'silent' });
const servers: HttpServer[] = [];
const sockets: Socket[] = [];
afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy();
  for (const server of servers.splice(0)) await server.close();
});

async function listen(
  routes: Routes = {},
  options: Partial<Parameters<typeof startHttpServer>[0]> = {},
): Promise<HttpServer> {
  const server = await startHttpServer({ host: '127.0.0.1', port: 0, routes, log, ...options });
  servers.push(server);
  return server;
}

/** Starts a server whose log lines are collected. */
async function listenNoted(routes: Routes) {
  const lines: string[] = [];
  const noted = pino({ level: 'trace' }, { write: (line: string) => void lines.push(line) });
  return { server: await listen(routes, { log: noted }), lines };
}

/** Opens a connection that sends these bytes, and reads nothing until `read` is called. */
async function send({ port }: HttpServer, text: string): Promise<Socket> {
  const socket = connect(port, '127.0.0.1').on('error', () => undefined);
  sockets.push(socket.pause());
  await once(socket, 'connect');
  socket.write(text);
  return socket;
}

const HEALTHZ: Routes = { '/healthz': () => json(200, { alive: true }) };
const get = (server: HttpServer, path: string, init?: RequestInit) =>
  fetch(`http://127.0.0.1:${server.port}${path}`, init);

describe('the server', () => {
  it('answers GET at its paths with any query, and nothing else', async () => {
    const server = await listen(HEALTHZ);
    const answer = await get(server, '/healthz?from=probe');
    expect(answer.status).toBe(200);
    expect(answer.headers.get('cache-control')).toBe('no-store');
    expect(await answer.json()).toEqual({ alive: true });
    for (const method of ['POST', 'PUT', 'DELETE']) {
      const refused = await get(server, '/healthz', { method, body: 'x' });
      expect(refused.status).toBe(405);
      expect(refused.headers.get('allow')).toBe('GET');
    }
    for (const path of ['/', '/healthz/', '/constructor', '/__proto__']) {
      expect((await get(server, path)).status).toBe(404);
    }
  });

  it('says in one sentence that its port is taken', async () => {
    const { port } = await listen();
    const second = listen({}, { port });
    await expect(second).rejects.toThrow(UsageError);
    await expect(second).rejects.toThrow(`HTTP_PORT: port ${port} of 127.0.0.1 is in use by another program`);
    await expect(listen({}, { port, portSetting: '--port' })).rejects.toMatchObject({
      message: `--port: port ${port} of 127.0.0.1 is in use by another program`,
      remedy: 'Every process on a host needs its own port: choose another one with --port.',
    });
  });

  it('listens at one address only, and names the setting of an address of another machine', async () => {
    const { port } = await listen();
    // The same port of another address is free, as it would not be under 0.0.0.0.
    await listen({}, { host: '127.0.0.2', port });
    await expect(listen({}, { host: '192.0.2.1' })).rejects.toThrow(
      'HTTP_HOST: port 0 of 192.0.2.1 cannot be opened: this machine does not have that address',
    );
  });
});

describe('a slow client', () => {
  const GET = 'GET /healthz HTTP/1.1\r\nHost: localhost\r\n';
  const POST = `POST /form HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\na=`;
  const BIG = 'x'.repeat(256 * 1024);

  it('is closed within seconds if it sends nothing, or half a request', async () => {
    const server = await listen({
      ...HEALTHZ,
      '/form': { POST: async (context) => json(200, { length: (await context.req.text()).length }) },
    });
    const isAnswered = async () => (await get(server, '/healthz')).ok;
    const halves = ['', 'GET /hea', GET, POST];
    const slow = await Promise.all(
      Array.from({ length: 120 }, (_, at) => send(server, halves[at % halves.length] ?? '')),
    );
    await until(async () => !(await isAnswered().catch(() => false)), {
      describe: 'all connections to be in use',
    });
    // By default Node looks at its connections every 30 s.
    await until(isAnswered, { describe: 'an answer beside slow connections', timeoutMs: 25_000 });
    for (const socket of slow) socket.resume();
    await until(() => slow.every(({ closed }) => closed), { describe: 'the slow connections to be closed' });
  });

  it('is closed after a while if it does not read a page', async () => {
    const gone = { isGone: false };
    const page: Routes = {
      '/': (context) => {
        context.env.outgoing.on('close', () => (gone.isGone = true));
        return context.text(BIG.repeat(64));
      },
    };
    const server = await listen(page, { longestUnreadMs: 500 });
    await send(server, 'GET / HTTP/1.1\r\nHost: localhost\r\n\r\n');
    await until(() => gone.isGone, { describe: 'the connection to be closed' });
    // A client that reads, however slowly the machine lets it.
    const text = await (await get(await listen(page), '/')).text();
    expect(text.length).toBe(64 * BIG.length);
  });

  it('is closed at once when the server closes', async () => {
    let isAsked = false;
    const server = await listen({
      '/never': () => {
        isAsked = true;
        return new Promise(() => undefined);
      },
    });
    const open = await send(server, 'GET /never HTTP/1.1\r\nHost: localhost\r\n\r\n');
    await until(() => isAsked, { describe: 'the request' });
    await server.close();
    open.resume();
    await until(() => open.closed, { describe: 'the connection to be closed' });
  });
});

describe('a request', () => {
  const answerTo = async (server: HttpServer, text: string) => {
    const socket = await send(server, text);
    let answer = '';
    socket.setEncoding('utf8').on('data', (part: string) => (answer += part));
    socket.resume();
    await once(socket, 'close');
    return answer;
  };

  it('is answered in HTTP/1.0 without a host, as load balancers ask for health', async () => {
    const server = await listen(HEALTHZ);
    expect(await answerTo(server, 'GET /healthz HTTP/1.0\r\n\r\n')).toMatch(
      /^HTTP\/1\.1 200 OK[^]*{"alive":true}\n$/,
    );
  });

  it('is no error of the server if its form is cut off', async () => {
    let failure: unknown;
    const routes: Routes = {
      '/form': {
        POST: async (context) => {
          await readForm(context).catch((error: unknown) => {
            failure = error;
            throw error;
          });
          return json(200, {});
        },
      },
    };
    const { server, lines } = await listenNoted(routes);
    const form = 'Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 100';
    const socket = await send(server, `POST /form HTTP/1.1\r\nHost: a\r\n${form}\r\n\r\na=`);
    socket.destroy();
    await until(() => failure, { describe: 'the form to fail' });
    expect(failure).toMatchObject({ status: 400 });
    await get(server, '/none');
    expect(lines).toEqual([]);
  });

  it('is answered with 400 if it cannot be read, and is no error of the server', async () => {
    const { server, lines } = await listenNoted({ '/:any': () => json(200, {}) });
    for (const text of [
      'GET /a HTTP/1.1\r\nHost: a b\r\nConnection: close\r\n\r\n',
      'OPTIONS * HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n',
      'GET /\\a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n',
      'no request\r\n\r\n',
    ])
      expect(await answerTo(server, text)).toMatch(/^HTTP\/1\.1 400 Bad Request/);
    expect(lines).toEqual([]);
  });

  it('that fails is answered with 500 and no message, and logged by the pattern of its path', async () => {
    const { server, lines } = await listenNoted({
      '/records/:key': () => Promise.reject(new Error('of a secret')),
    });
    const answer = await get(server, '/records/anna');
    expect(answer.status).toBe(500);
    expect(await answer.text()).not.toContain('secret');
    expect(lines.join('')).toContain('"path":"/records/:key"');
    expect(lines.join('')).not.toMatch(/anna|secret/);
  });

  it('leaves the next request on its connection intact if its body is large', async () => {
    const server = await listen(HEALTHZ);
    const first = `POST /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: 50000\r\n\r\n${'x'.repeat(50_000)}`;
    const second = 'GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n';
    const answer = await answerTo(server, first + second);
    expect(answer).toMatch(/^HTTP\/1\.1 405 [^]*HTTP\/1\.1 200 OK/);
  });
});

describe('health', () => {
  const fine = async () => 'fine';

  const gone = async () =>
    Promise.reject(Object.assign(new Error('connect to db.internal'), { code: 'ECONNREFUSED' }));
  const stopped = {
    since: new Date('2026-11-01T02:00:00Z'),
    code: 'service_unreachable',
    message: 'connect to 10.1.2.3',
  };
  const { message: _, ...shown } = { ...stopped, meaning: 'the service does not answer' };
  const worker = (phase: 'starting' | 'stopping' | 'ended') =>
    [{ phase: () => phase }, { worker: phase }] as const;

  it.each([
    ['is ready when every part answers', {}, undefined, 200],
    [
      'is not ready while sending is stopped, and says since when and why without the message',
      { sendingStopped: () => stopped },
      { sending: 'service_unreachable' },
      200,
    ],
    [
      'names the part that does not answer, only by its code',
      { checks: { state: gone, queue: fine } },
      { state: 'ECONNREFUSED' },
      200,
    ],
    ['takes a worker that is starting for not ready', ...worker('starting'), 200],
    ['takes a worker that is stopping for not ready', ...worker('stopping'), 200],
    ['takes a worker that has ended for neither ready nor alive', ...worker('ended'), 503],
  ])('%s', async (_title, deps, notReady, alive) => {
    const health = createHealth({
      sendingStopped: () => null,
      phase: () => 'running',
      checks: { state: fine, queue: fine },
      ...deps,
    });
    const answer = await health.readiness();
    expect(answer.status).toBe(notReady ? 503 : 200);
    const why = 'sendingStopped' in deps ? { sendingStopped: { ...shown, since: shown.since.toJSON() } } : {};
    expect(await answer.json()).toEqual(notReady ? { ready: false, notReady, ...why } : { ready: true });
    expect((await health.liveness()).status).toBe(alive);
  });

  it('fails the liveness probe when the state was not reached for five minutes', async () => {
    let [minutes, isReached] = [0, true];
    const { liveness } = createHealth({
      sendingStopped: () => null,
      phase: () => 'running',
      checks: { state: async () => isReached || Promise.reject(new Error('no answer')) },
      clock: () => minutes * 60_000,
    });
    const statusAt = async (minute: number) => {
      minutes = minute;
      return (await liveness()).status;
    };
    expect(await statusAt(60)).toBe(200); // nobody has asked in between
    isReached = false;
    expect(await statusAt(90)).toBe(200); // the first look that failed
    expect(await statusAt(95)).toBe(200);
    expect(await statusAt(96)).toBe(503);
    isReached = true;
    expect(await statusAt(97)).toBe(200);
  });
});

describe('the reading of the state', () => {
  let database: TestDatabase;
  let sql: postgres.Sql;
  let state: State;
  const read = (streams: readonly string[], limitMs = 2000) =>
    inSnapshot(state.db, (tx) => readGaugeFacts(tx, streams), { limitMs });
  const count = (streams: readonly string[], limitMs = 2000) =>
    inSnapshot(state.db, (tx) => readCountedFacts(tx, streams), { limitMs });
  beforeAll(async () => {
    database = await createDatabase();
    sql = postgres(database.url, { max: 1 });
    state = openState({ url: database.url });
  });
  afterAll(async () => {
    await state.close();
    await sql.end();
    await database.drop();
  });

  /** A run that was asked for `ago` seconds ago and took `took`. */
  async function addRun(run: {
    streams: string[];
    status: string;
    ago: number;
    took?: number;
    kind?: string;
    counts?: object;
    plan?: object;
  }): Promise<number> {
    const { kind = 'sync', streams, status, ago, took = null, counts = {}, plan = {} } = run;
    const [row] = await sql<{ id: number }[]>`
      INSERT INTO slotsync.runs (kind, lane, started_by, streams, status, plan, counts, requested_at, finished_at)
      VALUES (${kind}, 'sync', 'command', ${streams}, ${status}, ${sql.json(plan as never)}, ${sql.json(counts as never)},
        now() - make_interval(secs => ${ago}), now() - make_interval(secs => ${ago}) + make_interval(secs => ${took}))
      RETURNING id::int`;
    return row?.id ?? 0;
  }

  it('is empty when nothing ever ran', async () => {
    expect(await read(['rooms'])).toEqual({
      now: expect.any(Date),
      binding: null,
      configured: ['rooms'],
      backlog: [],
      inboxAge: { changes: 0, oldestSeconds: 0 },
      durations: [],
      loads: [],
      streamStates: [],
      drift: [],
      verifications: [],
      unfinished: [],
      processes: [],
    });
    expect(await count(['rooms'])).toMatchObject({
      records: [],
      runs: { gates: [], successes: [{ kind: 'sync', ageSeconds: null }] },
      bookings: [],
    });
  });

  it('holds the changes that wait in the inbox', async () => {
    await sql`
      INSERT INTO slotsync.changes (stream, local_key, requested_at, run_id)
      VALUES ('rooms', 'A', now() - interval '1 minute', NULL), ('rooms', 'B', now(), NULL), ('rooms', 'C', now(), 1)`;
    const { inboxAge } = await read([]);
    expect(inboxAge.changes).toBe(2);
    expect(inboxAge.oldestSeconds).toBeGreaterThan(59);
    await sql`DELETE FROM slotsync.changes`;
  });

  it('holds the backlog: runs to be planned, and batches that are queued', async () => {
    await addRun({ streams: ['rooms'], status: 'planning', ago: 40 });
    const running = await addRun({ streams: ['courses'], status: 'running', ago: 90 });
    await sql`
      INSERT INTO slotsync.batches (run_id, stream, level, keys, state, created_at)
      SELECT ${running}, 'courses', 0, ARRAY['1'], state, now() - interval '80 s'
      FROM unnest(ARRAY['queued', 'queued', 'planned', 'done']) AS state`;
    const { backlog } = await read([]);
    expect(backlog).toEqual([{ lane: 'sync', jobs: 3, oldestSeconds: expect.closeTo(80, -1) }]);
    await sql`DELETE FROM slotsync.runs`;
  });

  it('holds the latest run of each kind and status', async () => {
    await addRun({ streams: ['rooms'], status: 'succeeded', ago: 500, took: 7 });
    await addRun({ streams: ['rooms'], status: 'succeeded', ago: 400, took: 9 });
    await addRun({ streams: ['rooms'], status: 'failed', ago: 300, took: 1 });
    const { durations } = await read([]);
    expect(durations).toEqual([
      { kind: 'sync', status: 'failed', seconds: 1 },
      { kind: 'sync', status: 'succeeded', seconds: 9 },
    ]);
    await sql`DELETE FROM slotsync.runs`;
  });

  it('counts records, held keys, bookings, and the last success of each kind', async () => {
    await sql`DELETE FROM slotsync.runs`;
    await addRun({ streams: ['rooms'], kind: 'verify', status: 'failed', ago: 100, took: 0 });
    await sql.unsafe(holdRetirements('rooms'));
    await sql`
      INSERT INTO slotsync.streams (stream, synced_at)
      VALUES ('rooms', now() - interval '200 s'), ('courses', now() - interval '500 s')`;
    await sql`
      INSERT INTO slotsync.records (stream, local_key, status)
      SELECT 'rooms', number::text, CASE WHEN number > 8 THEN 'dead' ELSE 'synced' END
      FROM generate_series(1, 10) AS number`;
    await sql`
      INSERT INTO slotsync.reservations (key, verdict, problem, seen_at)
      VALUES ('1', 'agrees', NULL, now()), ('2', 'differs', 'no room', now())`;
    expect(await count(['courses', 'rooms'])).toEqual({
      records: [
        { stream: 'rooms', status: 'dead', count: 2 },
        { stream: 'rooms', status: 'synced', count: 8 },
      ],
      runs: {
        gates: [expect.objectContaining({ stream: 'rooms', operation: 'retire', count: 11 })],
        successes: [
          { kind: 'verify', ageSeconds: null },
          { kind: 'sync', ageSeconds: expect.closeTo(500, -1) },
        ],
      },
      bookings: [
        { verdict: 'agrees', count: 1, problems: 0 },
        { verdict: 'differs', count: 1, problems: 1 },
      ],
      connections: expect.arrayContaining([{ duty: 'state', count: expect.any(Number) }]),
    });
  });

  it('holds processes, the last answer of the service and unfinished runs', async () => {
    await sql`DELETE FROM slotsync.runs`;
    const paused = await addRun({ streams: ['rooms'], status: 'running', ago: 90 });
    await sql`UPDATE slotsync.runs SET paused_at = now() WHERE id = ${paused}`;
    await sql`
      INSERT INTO slotsync.processes (id, command, host, pid, seen_at, stopped_since, error_code)
      VALUES ('a', 'worker', 'one', 1, now(), now() - interval '50 s', 'service_failed'),
        ('b', 'worker', 'two', 2, now() - interval '1 hour', NULL, NULL)`;
    await sql`
      INSERT INTO slotsync.destination (base_url, organization_id, region, answered_at, answer)
      VALUES ('https://service', 'demo', 'EU', now() - interval '70 s', '503')`;
    const { now, unfinished, binding, processes } = await read(['rooms']);
    const ageOf = (at: Date | null | undefined) => at && (now.getTime() - at.getTime()) / 1000;
    expect(unfinished).toMatchObject([{ id: paused, kind: 'sync', pausedAt: expect.any(Date) }]);
    expect(ageOf(unfinished[0]?.requestedAt)).toBeCloseTo(90, -1);
    expect(binding?.succeededAt).toBeNull();
    expect(ageOf(binding?.answeredAt)).toBeCloseTo(70, -1);
    const [stopped, silent] = processes.toSorted((a, b) => a.pid - b.pid);
    expect(stopped).toMatchObject({ isAlive: true, errorCode: 'service_failed' });
    expect(ageOf(stopped?.stoppedSince)).toBeCloseTo(50, -1);
    expect(silent).toMatchObject({ isAlive: false, stoppedSince: null });
  });

  it('leaves out a table that cannot be counted in time, and has all other tables', async () => {
    await sql.begin(async (tx) => {
      await tx`LOCK TABLE slotsync.records`;
      expect(await count(['rooms'], 200)).toMatchObject({
        records: null,
        runs: { gates: [expect.anything()] },
        bookings: [expect.anything(), expect.anything()],
      });
    });
  });

  it('is made once for many scrapes at the same time, whatever they show', async () => {
    let readingsBegun = 0;
    const { serve } = createWorkerHttp({
      host: '127.0.0.1',
      port: 0,
      log,
      streams: async () => ['rooms'],
      limiter: async () => Promise.reject(new Error('no quota here')),
      state: async () => {
        readingsBegun++;
        return state;
      },
    });
    const page = { routes: {}, notFound: () => json(404, {}) };
    const server = await serve(
      { phase: () => 'running', sendingStopped: () => null },
      async () => undefined,
      page,
    );
    servers.push(server);
    const scrapes = Array.from({ length: 8 }, async () => (await get(server, '/metrics')).text());
    for (const text of await Promise.all(scrapes)) {
      expect(text).toContain('slotsync_source_up{source="quota"} 0\n');
      for (const source of ['state', 'records', 'runs', 'bookings', 'connections', 'concerns'])
        expect(text).toContain(`slotsync_source_up{source="${source}"} 1\n`);
    }
    expect(readingsBegun).toBe(3); // what is quick, what counts tables, and concerns
  });

  it('fails in time while the tables are locked, and delays no other statement', async () => {
    await sql.begin(async (tx) => {
      await tx`LOCK TABLE slotsync.runs`;
      const reading = read(['rooms'], 60_000);
      await state.client`SELECT 1`;
      await expect(reading).rejects.toMatchObject({ facts: { sqlstate: '55P03' } });
    });
  });
});
