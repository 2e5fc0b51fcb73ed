// The operator's page over HTTP with a real state: who may read and act, the headers of every answer, and the actions.
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { checkConfiguration } from '../../src/config/config-file.js';
import { createMirror } from '../../src/mirror/mirror.js';
import { startHttpServer } from '../../src/http/http-server.js';
import { createPage, type PageDeps } from '../../src/page/page.js';
import { notePresence } from '../../src/state/processes.js';
import { readGates } from '../../src/state/gates/gates.js';
import { readRun } from '../../src/state/runs/read-runs.js';
import { startRun } from '../../src/state/runs/start-run.js';
import type { SlotsyncConfig } from '../../src/streams/config-schema.js';
import { reconcile } from '../../src/sync/reconcile/reconcile.js';
import { verify } from '../../src/sync/verify/verify.js';
import { ROOMS } from '../support/campus.js';
import { createVisitor } from '../support/visitor.js';
import { until } from '../support/wait.js';
import { openWorld, type World } from '../support/world.js';
import { keepWorlds } from '../support/worlds.js';

const TOKEN = 'correct horse battery';
/** The header in which a proxy names its client. */
const CLIENT = { 'x-forwarded-for': '192.0.2.1' };
const SCRIPT = '<script>alert(1)</script>';
const CONFIG = { streams: { rooms: { ...ROOMS, retire: 'deactivate' } } } as const;

const open = keepWorlds();
/** A world for tests that change nothing. */
let morning: World;
beforeAll(async () => {
  morning = await openBadMorning(openWorld);
});
afterAll(() => morning.close());
let closers: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const close of closers.reverse()) await close();
  closers = [];
});

/** Serves the page of a world, at a loopback address whatever `host` says. */
async function serve(
  world: World,
  {
    token,
    host = '127.0.0.1',
    config = CONFIG,
    ...others
  }: Partial<
    Pick<PageDeps, 'token' | 'host' | 'signIn' | 'trustedProxies' | 'userHeader' | 'longestStatementMs'>
  > & {
    config?: SlotsyncConfig;
  } = {},
) {
  const queued: number[] = [];
  const configuration = checkConfiguration(config);
  const page = createPage({
    host,
    token,
    port: 0,
    ...others,
    state: async () => world.state,
    timeZone: async () => 'Europe/Stockholm',
    configuration: async () => configuration,
    configuredStreams: async () => ['rooms'],
    quotaUsage: () => world.limiter.usage(),
    requestsPerSecond: 20,
    mirror: async () => world.mirror,
    openMirror: async () => createMirror({ url: world.url }),
    destination: async () => world.destination,
    producer: async () => ({
      enqueueRun: async (id: number) => void queued.push(id),
      requeue: async () => undefined,
    }),
    log: world.log,
  });
  const server = await startHttpServer({
    host: '127.0.0.1',
    port: 0,
    routes: page.routes,
    notFound: page.notFound,
    log: world.log,
  });
  closers.push(server.close);
  return { queued, ...createVisitor(server.port) };
}

/** Serves the page to an operator who has signed in. */
async function serveSignedIn(world: World, options: Parameters<typeof serve>[1] = {}) {
  const visitor = await serve(world, { token: TOKEN, ...options });
  const { visit, readForm } = visitor;
  await visitor.signIn(TOKEN);
  return {
    ...visitor,
    /** Sends the form of an action, and returns the page that is opened next. `changed`: fields that were not as the form has them. */
    async carryOut(path: string, changed: Record<string, string> = {}, headers: Record<string, string> = {}) {
      await visit(path, { form: { ...(await readForm(path)), ...changed }, headers });
      return (await visit('/')).body;
    },
  };
}

/** Opens rooms of which one cannot be sent, and twenty of thirty are held for deactivation. */
async function openBadMorning(openIt = open): Promise<World> {
  const world = await openIt(CONFIG);
  await world.sql`CREATE TABLE rooms (code text PRIMARY KEY, name text)`;
  await world.sql`INSERT INTO rooms SELECT 'R' || i, 'Sal ' || i FROM generate_series(1, 30) AS i`;
  await world.sql`INSERT INTO rooms VALUES (${SCRIPT}, ${SCRIPT})`;
  world.sandbox.refuseObject(`room_${SCRIPT}`, { status: 400, message: `no ${SCRIPT}` });
  await world.sync();
  await world.sql`DELETE FROM rooms WHERE code IN (SELECT 'R' || i FROM generate_series(11, 30) AS i)`;
  await world.sync();
  return world;
}

/** Notes an object that a verify found different. */
async function noteDrift(world: World): Promise<void> {
  world.sandbox.changeObject('room_R1', { fields: [{ fieldId: 'room.name', values: ['Aula'] }] });
  await world.sql`UPDATE slotsync.records SET updated_at = updated_at - interval '1 hour'`;
  await verify(world.verifying());
}

const PATHS = [
  '/',
  '/runs',
  '/runs?all',
  '/runs/2',
  '/failures',
  '/failures?stream=rooms',
  '/drift',
  '/bookings',
  '/report',
  '/report?run=2',
  '/actions',
];
const RECORD = `/records/rooms/${encodeURIComponent(SCRIPT)}`;
const HOLD = '/runs/2/approve?stream=rooms&operation=retire';
const REJECT = HOLD.replace('approve', 'reject');
const REPAIR = '/drift/repair?stream=rooms';
const RETRY = '/failures/retry?stream=rooms&status=dead&code=refused_400';

describe('every answer of the page', () => {
  it('has a strict content security policy, and forbids sniffing, frames and copies', async () => {
    const { visit } = await serve(morning, { token: TOKEN });
    const paths = [
      ...PATHS,
      RECORD,
      '/records?key=R1',
      '/none',
      '/runs/99',
      '/sign-in',
      '/page.css',
      '/page.js',
      '/page.svg',
      HOLD,
    ];
    for (const path of paths) expectHeaders((await visit(path)).headers);
    for (const method of ['POST', 'PUT', 'HEAD']) expectHeaders((await visit('/', { method })).headers);
    expectHeaders((await visit(HOLD, { form: {} })).headers);
    const { headers } = await visit('/runs');
    const unchanged = await visit('/runs', { headers: { 'if-none-match': String(headers.etag) } });
    expect([unchanged.status, unchanged.body]).toEqual([304, '']);
    expectHeaders(unchanged.headers);
  });

  function expectHeaders(headers: Record<string, unknown>): void {
    expect(headers['content-security-policy']).toBe(
      "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    );
    expect(headers).toMatchObject({
      'cache-control': 'no-store',
      'x-content-type-options': 'nosniff',
      'referrer-policy': 'same-origin',
      'cross-origin-opener-policy': 'same-origin',
      'cross-origin-resource-policy': 'same-origin',
    });
  }

  it('has no markup from a row, and no inline script or style', async () => {
    const { visit } = await serve(morning);
    for (const path of [
      ...PATHS,
      RECORD,
      `/records?key=${encodeURIComponent(SCRIPT)}`,
      `/failures?stream=${encodeURIComponent(SCRIPT)}`,
    ]) {
      const { body } = await visit(path);
      expect(body, path).not.toContain('<script>');
      expect(body.match(/<script /g), path).toHaveLength(1);
      expect(body, path).not.toMatch(/<style|style="|\son\w+="|https?:\/\/(?!127\.0\.0\.1)/);
    }
    expect((await visit('/failures')).body).toContain('no &lt;script&gt;alert(1)&lt;/script&gt;');
    expect((await visit(RECORD)).body).toContain('rooms &#39;&lt;script&gt;alert(1)&lt;/script&gt;&#39;');
  });

  it('is a page that says so for an unknown path, and a refusal for another method', async () => {
    const { visit } = await serve(morning);
    for (const path of [
      '/none',
      '/runs/99',
      '/runs/x',
      '/records/rooms/nobody',
      '/__proto__',
      '/constructor',
    ]) {
      const { status, body } = await visit(path);
      expect(status).toBe(404);
      expect(body).toContain('<h1>Not found</h1>');
    }
    const refused = await visit('/runs', { method: 'DELETE' });
    expect(refused.status).toBe(405);
    expect(refused.headers.allow).toBe('GET');
  });
});

describe('reading the page', () => {
  it('needs no token on this machine under its own name, and then nobody may act', async () => {
    const { visit } = await serve(morning);
    const { body } = await visit('/', { headers: { host: 'localhost:8080' } });
    expect(body).toContain('20 deactivations of rooms');
    expect(body.replaceAll(/<\/?span[^>]*>/g, '')).toContain(
      'slotsync approve 2 --stream rooms --operation retire',
    );
    expect(body).not.toContain('method="post"');
    const others: Record<string, string>[] = [
      { host: 'rebound.example' },
      { 'x-forwarded-for': '192.0.2.1' },
      { 'x-forwarded-proto': 'https' },
    ];
    for (const headers of others) {
      const refused = await visit('/', { headers });
      expect(refused.status).toBe(403);
      expect(refused.body).toMatch(/^This page is available only on this machine.*docs\/page\.md.*\n$/);
    }
    for (const path of [HOLD, RETRY, '/runs/2/cancel', REPAIR, RECORD]) {
      const { status, body: said } = await visit(path, { form: { form_token: '' } });
      expect(status, path).toBe(403);
      expect(said).toContain('HTTP_TOKEN');
    }
    expect(await readGates(morning.state.db)).toHaveLength(1);
  });

  it('needs a sign-in at another address, or where the setting says so', async () => {
    const closed = await serve(morning, { host: '0.0.0.0' });
    for (const path of ['/', '/failures', RECORD]) expect((await closed.visit(path)).status).toBe(403);
    for (const options of [{ host: '0.0.0.0' }, { signIn: 'always' } as const]) {
      const { visit, signIn } = await serve(morning, { ...options, token: TOKEN });
      for (const path of ['/', '/failures', RECORD]) {
        const { status, headers, body } = await visit(path);
        expect(status).toBe(303);
        expect(headers.location).toBe(`/sign-in?next=${encodeURIComponent(path)}`);
        expect(body).not.toContain('deactivations');
      }
      await signIn(TOKEN);
      expect((await visit('/')).body).toContain('20 deactivations of rooms');
    }
  });
});

describe('signing in to the page', () => {
  it('sets a cookie hidden from scripts and other sites, and secure behind a proxy with https', async () => {
    const { visit, signIn } = await serve(morning, { token: TOKEN });
    const { status, headers } = await signIn(TOKEN);
    expect(status).toBe(303);
    expect(headers.location).toBe('/');
    expect(headers['set-cookie']).toEqual([
      expect.stringMatching(/^slotsync_0=[\w-]{43}; Max-Age=43200; Path=\/; HttpOnly; SameSite=Strict$/),
    ]);
    const form = { token: TOKEN, next: '/' };
    const secure = await visit('/sign-in', { form, headers: { 'x-forwarded-proto': 'https' } });
    expect(secure.headers['set-cookie']?.[0]).toMatch(/; Secure;/);
  });

  it('refuses a wrong token, slows down its address, and always accepts the right token', async () => {
    const { visit, signIn } = await serve(morning, { token: TOKEN, trustedProxies: '127.0.0.1' });
    for (let attempt = 0; attempt < 11; attempt++) {
      const form = { token: `${TOKEN}r` };
      const { status, headers, body } = await visit('/sign-in', { form, headers: CLIENT });
      expect(status).toBe(403);
      expect(headers['set-cookie']).toBeUndefined();
      expect(body).toContain('The token is wrong.');
    }
    expect((await visit('/sign-in', { form: { token: TOKEN }, headers: CLIENT })).status).toBe(303);
    expect((await visit('/')).body).toContain('Sign out');
    expect((await signIn(TOKEN)).status).toBe(303);
    const lines = morning.lines.join('');
    expect(lines).toMatch(/"remote":"192\.0\.2\.1","waitMs":0,[^]*"remote":"192\.0\.2\.1","waitMs":2000,/);
    expect(lines).not.toContain(TOKEN);
  });

  it('leads back to the page that was asked for, and to no other server', async () => {
    const { visit } = await serve(morning, { token: TOKEN });
    const leadsTo = async (next: string) =>
      (await visit('/sign-in', { form: { token: TOKEN, next } })).headers.location;
    expect(await leadsTo(HOLD)).toBe(HOLD);
    const away = ['https://elsewhere.example', '//elsewhere.example', '/\\elsewhere.example'];
    const inHeaders = ['/\t/elsewhere.example', '/\n/elsewhere.example', '/x\r\nSet-Cookie: a=b', '/€'];
    for (const next of [...away, ...inHeaders, '']) expect(await leadsTo(next)).toBe('/');
  });
});

describe('the actions of the page', () => {
  it('are carried out only by a form of the same session and address', async () => {
    const { visit, readForm } = await serveSignedIn(morning);
    const form = await readForm(HOLD);
    expect(form).toEqual({ form_token: expect.any(String), shown: '20' });
    const forged: [form: Record<string, string>, headers: Record<string, string>][] = [
      [{ shown: '20' }, {}],
      [{ ...form, form_token: 'guessed' }, {}],
      [form, { 'sec-fetch-site': 'cross-site' }],
      [form, { 'sec-fetch-site': 'same-site' }],
      [form, { 'sec-fetch-site': 'none' }],
      [form, { cookie: 'slotsync_0=guessed' }],
    ];
    for (const [fields, headers] of forged) {
      const { status, headers: answered } = await visit(HOLD, { form: fields, headers });
      expect([403, 303]).toContain(status);
      if (status === 303) expect(answered.location).toBe('/sign-in');
    }
    // Older browsers say only the origin.
    const headers = { cookie: 'x=y', 'content-type': 'application/x-www-form-urlencoded' };
    for (const origin of ['null', 'http://elsewhere.example'])
      expect((await visit('/sign-in', { method: 'POST', headers: { ...headers, origin } })).status).toBe(403);
    expect((await visit(HOLD, { form, headers: { 'content-type': 'text/plain' } })).status).toBe(415);
    expect((await visit(HOLD, { form: { ...form, more: 'x'.repeat(20_000) } })).status).toBe(413);
    expect(await readGates(morning.state.db)).toMatchObject([{ approval: null }]);
  });

  it('do nothing for another number than was shown', async () => {
    const world = await openBadMorning();
    await noteDrift(world);
    const { carryOut, queued } = await serveSignedIn(world);
    for (const [path, shown, said] of [
      [HOLD, '21', 'run 2 holds 20 now, not 21; nothing was approved'],
      [HOLD, '19', 'there are 20 records now, not 19, so nothing was done'],
      [HOLD, '', 'there are 20 records now, not 0, so nothing was done'],
      [REJECT, '19', 'there are 20 records now, not 19, so nothing was done'],
      [REJECT, '-1200', 'there are 20 records now, not -1 200, so nothing was done'],
      [RETRY, '0', 'there are 1 records now, not 0, so nothing was done. Open the page again and check'],
      [RETRY, 'all', 'there are 1 records now, not NaN, so nothing was done. Open the page again and check'],
      [REPAIR, '0', 'there are 1 records now, not 0, so nothing was done. Open the page again and check'],
    ] as const)
      expect(await carryOut(path, { shown }), `${path} ${shown}`).toContain(said);
    expect(await readGates(world.state.db)).toMatchObject([{ approval: null, rejectedAt: null }]);
    expect(await world.sql`SELECT FROM slotsync.changes`).toHaveLength(0);
    expect((await world.statusesOf('rooms'))[SCRIPT]).toBe('dead');
    expect(queued).toEqual([]);
  });

  it('approve a hold for the number shown', async () => {
    const world = await openBadMorning();
    // Deactivations wait for whatever is not accepted.
    await world.sql`DELETE FROM rooms WHERE code = ${SCRIPT}`;
    await world.sql`DELETE FROM slotsync.records WHERE local_key = ${SCRIPT}`;
    const { visit, carryOut, queued } = await serveSignedIn(world);
    const question = (await visit(HOLD)).body;
    expect(question).toContain('<button class="main">Approve 20 deactivations of rooms</button>');
    expect(question).toContain('Held: &#39;R11&#39;, &#39;R12&#39;, ');
    expect(question).not.toMatch(/<h\d[^>]*>[^<]*&#39;/); // keys are no heading
    const body = await carryOut(HOLD);
    expect(body).toContain('Approved: up to 20 deactivations of rooms until');
    expect(body).toContain('Run 3 is queued. No process is running: start slotsync worker.');
    expect((await visit('/')).body).not.toContain('No process is running: start slotsync worker.');
    expect(queued).toEqual([3]);
    const { queue } = await world.planRun(3);
    await world.finish(3, queue);
    expect(world.sandbox.objects().filter(({ active }) => !active)).toHaveLength(20);
    expect(world.lines.join('')).toContain(
      '"action":"approve","runId":2,"stream":"rooms","msg":"operator acted"',
    );
    await until(async () => !(await visit('/')).body.includes('20 deactivations'), {
      describe: 'the hold to be gone',
    });
  });

  it.each([
    ['127.0.0.1', 'zoë'],
    ['192.0.2.7', null],
  ])('reject a hold with a reason, by the user whom a trusted proxy names: %s', async (proxy, by) => {
    const world = await openBadMorning();
    const options = { trustedProxies: proxy, userHeader: 'X-User' };
    const { visit, carryOut } = await serveSignedIn(world, options);
    const named = { 'x-user': 'zoë', ...CLIENT };
    expect(await carryOut(REJECT, { reason: 'x'.repeat(1001) }, named)).toContain(
      'a reason has at most 1000 characters',
    );
    const reason = 'the load was cut off';
    expect(await carryOut(REJECT, { reason }, named)).toContain(
      'Rejected: 20 deactivations of rooms, held in run 2.',
    );
    expect(await readGates(world.state.db)).toMatchObject([{ rejectedAt: expect.any(Date) }]);
    const noted = await world.sql`SELECT by, via, action, run_id::int, reason FROM slotsync.actions`;
    expect(noted).toEqual([{ by, via: 'page', action: 'reject', run_id: 2, reason }]);
    for (const path of ['/actions', '/runs/2']) {
      const { body } = await visit(path);
      expect(body).toContain(`${by ?? 'somebody'} (page) rejected rooms: retire 20, `);
      expect(body).toContain(`Reason: ${reason}`);
    }
  });

  it('retry the records of a cause through the inbox', async () => {
    const world = await openBadMorning();
    const { visit, carryOut } = await serveSignedIn(world);
    expect((await visit('/failures')).body).toContain(RETRY.replaceAll('&', '&amp;'));
    world.sandbox.allowObject(`room_${SCRIPT}`);
    expect(await carryOut(RETRY)).toContain('1 record of rooms put into the inbox.');
    await world.drainInbox();
    expect((await world.statusesOf('rooms'))[SCRIPT]).toBe('synced');
  });

  it('pause, resume and cancel a run', async () => {
    const world = await open(CONFIG);
    const { run } = await startRun(world.state.db, {
      kind: 'sync',
      lane: 'sync',
      startedBy: 'command',
      streams: ['rooms'],
    });
    await notePresence(
      world.state.db,
      { id: '00000000-0000-4000-8000-000000000001', command: 'worker', host: 'h', pid: 1 },
      null,
    );
    const { visit, readForm } = await serveSignedIn(world);
    const act = async (verb: string, page = '/') =>
      visit(`/runs/${run.id}/${verb}`, { form: await readForm(page, `/runs/${run.id}/${verb}`) });
    await act('pause');
    expect((await readRun(world.state.db, run.id))?.pausedAt).not.toBeNull();
    await act('resume');
    expect((await visit(`/runs/${run.id}`)).body).toContain(`Run ${run.id} continues. `);
    expect((await readRun(world.state.db, run.id))?.pausedAt).toBeNull();
    await act('cancel', `/runs/${run.id}/cancel`);
    expect((await readRun(world.state.db, run.id))?.status).toBe('cancelled');
    await act('pause', '/sign-in');
    expect((await act('cancel', '/')).status).toBe(403);
  });

  it('repair drift', async () => {
    const world = await openBadMorning();
    await noteDrift(world);
    const { visit, carryOut, queued } = await serveSignedIn(world);
    expect((await visit('/drift')).body).toContain(
      'room.name: &quot;Aula&quot; at the service, &quot;Sal 1&quot; expected',
    );
    expect(await carryOut(REPAIR)).toContain('is queued.');
    const [run = 0] = queued;
    const { queue } = await world.planRun(run);
    await world.finish(run, queue);
    expect(world.fieldsOf('room_R1')).toEqual({ 'room.name': 'Sal 1' });
    await until(async () => !(await visit('/drift')).body.includes('Aula'), {
      describe: 'the drift to be gone',
    });
  });

  it('read row and object of a record only when a signed-in operator asks for them', async () => {
    const world = await openBadMorning();
    const { visit, signIn, readForm } = await serve(world, { token: TOKEN });
    world.sandbox.clearArrivals();
    const state = await visit('/records/rooms/R1');
    expect(state.body).toContain('room_R1');
    expect(state.body).not.toContain('Sal 1');
    await signIn(TOKEN);
    expect((await visit('/records/rooms/R1')).body).not.toContain('Sal 1');
    expect(world.sandbox.arrivals()).toHaveLength(0);
    await visit('/records/rooms/R1', { form: await readForm('/records/rooms/R1') });
    expect((await visit('/records/rooms/R1')).body).toMatch(
      /&quot;Sal 1&quot;[^]*A write would change nothing|A write would change nothing[^]*&quot;Sal 1&quot;/,
    );
    expect(world.sandbox.arrivals().length).toBeGreaterThan(0);
    expect((await visit('/records?key=room_R1')).body).toContain('/records/rooms/R1');
  });
});

describe('the page of a booking', () => {
  const RESERVATIONS: NonNullable<SlotsyncConfig['reservations']> = {
    from: 'bookings',
    key: 'id',
    externalId: 'res_{id}',
    begin: 'begins',
    end: 'ends',
    objects: [{ stream: 'rooms', key: 'room' }],
    fields: { 'res.title': 'title' },
  };

  it('is linked from the list, and reads both sides when a signed-in operator asks for them', async () => {
    const config = { ...CONFIG, reservations: RESERVATIONS };
    const world = await open(config);
    await world.sql`CREATE TABLE rooms (code text PRIMARY KEY, name text)`;
    await world.sql`INSERT INTO rooms VALUES ('A', 'Sal A')`;
    await world.sql`CREATE TABLE bookings (id text, begins timestamptz, ends timestamptz, room text, title text)`;
    await world.sql`INSERT INTO bookings VALUES ('a/b', now() + interval '1 day', now() + interval '2 days', 'A', 'Viva')`;
    await world.sync();
    await reconcile(world.reconciling());
    const { visit, signIn, readForm } = await serve(world, { token: TOKEN, config });
    const path = '/bookings/a%2Fb';
    expect((await visit('/bookings')).body).toContain(`<a href="${path}">booking &#39;a/b&#39;</a>`);
    expect((await visit('/')).body).toContain('<a href="/bookings">1 booking</a> does not agree');
    // Its week has it, and no other week.
    const ofWeek = /<svg class="graph week"[^]*<a href="\/bookings\/a%2Fb"[^]*<\/svg>/;
    expect((await visit('/bookings')).body).toMatch(ofWeek);
    const after = await visit('/bookings?week=2020-02-03');
    expect(after.body).toContain('Week of 2020-02-03');
    expect(after.body).not.toMatch(ofWeek);
    expect((await visit('/bookings?week=x')).body).toMatch(ofWeek);
    expect((await visit('/report')).body).toContain('<a href="/bookings">1</a>');
    const state = (await visit(path)).body;
    expect(state).toContain('missing there');
    expect(state).toContain('correct the booking at the service');
    expect(state).toContain('<a href="/runs/2">run 2</a>');
    expect(state).not.toContain('Viva');
    expect((await visit('/bookings/none')).status).toBe(404);
    for (const address of ['/bookings/%00', '/records/rooms/%00', '/failures?stream=%00'])
      expect((await visit(address)).status, address).toBe(404);
    await world.sql`INSERT INTO slotsync.records (stream, local_key, status) VALUES ('rooms', '..', 'dead')`;
    expect((await visit('/records?key=..')).body).toContain('<a href="/records/rooms/~..">');
    expect((await visit('/records/rooms/~..')).status).toBe(200);
    await world.sql`INSERT INTO slotsync.records (stream, local_key, status, waits_for, waits_since)
      VALUES ('courses', 'c900', 'deferred', '["rooms","r900"]', now())`;
    expect((await visit('/records/rooms/r900')).body).toContain('Waited for by courses');

    world.sandbox.clearArrivals();
    await signIn(TOKEN);
    expect((await visit(path)).body).not.toContain('Viva');
    expect(world.sandbox.arrivals()).toHaveLength(0);
    await visit(path, { form: await readForm(path) });
    const { body } = await visit(path);
    expect(body).toContain('Viva');
    expect(body).toContain('<a href="/records/rooms/A">');
    expect(body).toContain('No reservation.');
  });
});

describe('a reader of the page who goes away while row and object are read', () => {
  it.each(['statement', 'request'] as const)('ends the %s with the connection', async (what) => {
    // Not cancelled, the request would end later than the test.
    const world = await openBadMorning((config) =>
      open({ ...config, service: { requestTimeoutMs: 300_000 } }),
    );
    const { visit, readForm } = await serveSignedIn(world);
    const form = await readForm('/records/rooms/R1');
    const reader = new AbortController();
    const read = () => visit('/records/rooms/R1', { form, signal: reader.signal }).catch(() => 'gone');
    const waiting = async () =>
      (
        await world.sql`SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`
      ).length;
    const ended = () => world.lines.filter((line) => line.includes('page could not be shown')).length;
    if (what === 'request') {
      world.sandbox.closeGate({ path: '/objects/find' });
      const answer = read();
      await until(() => world.sandbox.gate().held > 0, { describe: 'the service to be asked' });
      reader.abort();
      expect(await answer).toBe('gone');
      await until(() => ended() === 1, { describe: 'the request to end while the service holds it' });
      return world.sandbox.openGate();
    }
    await world.sql.begin(async (sql) => {
      await sql`LOCK TABLE rooms IN ACCESS EXCLUSIVE MODE`;
      const answer = read();
      await until(async () => (await waiting()) > 0, { describe: 'the statement to wait for the table' });
      reader.abort();
      expect(await answer).toBe('gone');
      await until(async () => (await waiting()) === 0, { describe: 'the statement to end at the server' });
    });
  });
});

describe('an open page', () => {
  /** Asks as an open page does, which shows the version that was answered before. */
  function openPage({ visit }: Pick<Awaited<ReturnType<typeof serve>>, 'visit'>, path: string) {
    let version = '""';
    return async () => {
      const answer = await visit(path, { headers: { 'if-none-match': version } });
      version = answer.headers.etag ?? version;
      return answer;
    };
  }

  it('is answered with 304 until it has changed', async () => {
    const world = await openBadMorning();
    const ask = openPage(await serve(world), '/runs');
    expect(await ask()).toMatchObject({ status: 200, body: expect.stringContaining('partial') });
    for (let times = 0; times < 5; times++) expect(await ask()).toMatchObject({ status: 304, body: '' });
    await world.sql`UPDATE slotsync.runs SET status = 'cancelled'`;
    const changed = await until(
      async () => {
        const answer = await ask();
        return answer.status === 200 && answer;
      },
      { describe: 'the page to change' },
    );
    expect(changed.body).toContain('cancelled');
  });

  it('does not show the result of an action, which the page that is opened next shows', async () => {
    const server = await serveSignedIn(await openBadMorning());
    const { visit, readForm } = server;
    const ask = openPage(server, '/');
    await visit(REJECT, { form: await readForm(REJECT) });
    const done = '<p class="notice" role="status">Rejected: 20 deactivations of rooms';
    expect((await ask()).body).not.toContain(done);
    expect((await visit('/')).body).toContain(done);
    expect((await visit('/')).body).not.toContain(done);
  });

  it('leaves a connection of the state for the work while readings hang', async () => {
    const world = await openBadMorning();
    const { visit } = await serve(world, { longestStatementMs: 500 });
    const hangs = () => world.sql`
      SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`;
    const paths = [0, 1, 2, 3].map((at) => `/bookings?${at}`);
    await world.sql.begin(async (tx) => {
      await tx`LOCK TABLE slotsync.reservations`;
      const asked = Promise.all(paths.map((path) => visit(path)));
      await until(async () => (await hangs()).length > 0, { describe: 'a reading to hang' });
      expect(await world.state.client`SELECT 1 AS works`).toEqual([{ works: 1 }]);
      await until(async () => (await visit('/runs')).status === 200, { describe: 'another page' });
      for (const { status } of await asked) expect(status).toBe(503);
    });
    for (const path of paths)
      await until(async () => (await visit(path)).status === 200, { describe: `${path} to be read` });
  });

  it('ends with its session, at the sign-out and when the token is replaced', async () => {
    let token = TOKEN;
    const server = await serve(morning, { host: '0.0.0.0', token: () => token });
    const { visit, signIn, readForm } = server;
    const endings = [
      async () => visit('/sign-out', { form: await readForm('/', '/sign-out') }),
      async () => (token = 'another token of length'),
    ];
    for (const endSession of endings) {
      await signIn(token);
      const ask = openPage(server, '/');
      expect((await ask()).status).toBe(200);
      await endSession();
      const { status, headers, body } = await ask();
      expect([status, headers.location, body]).toEqual([303, '/sign-in?next=%2F', '']);
    }
  });

  it('says that it cannot be read, and delays no other page', async () => {
    const world = await openBadMorning();
    const { visit } = await serve(world);
    const gone = await visit('/runs/99');
    expect([gone.status, gone.body]).toEqual([404, expect.stringContaining('There is no run 99.')]);
    await world.sql`ALTER TABLE slotsync.runs RENAME TO runs_away`;
    await until(async () => (await visit('/')).status === 503, { describe: 'a page that cannot be read' });
    expect((await visit('/actions')).status).toBe(200);
    await world.sql`ALTER TABLE slotsync.runs_away RENAME TO runs`;
    await until(async () => (await visit('/')).status === 200, { describe: 'the page to be read' });
  });
});
