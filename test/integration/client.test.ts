// Guarantee 1
// The client's handling of each answer over real sockets: the resulting error, the number of requests, and the texts that no
// error may hold.
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { inspect } from 'node:util';
import { pino } from 'pino';
import { afterEach, describe, expect, it } from 'vitest';
import { createDestination, type Destination, type Unreadable } from '../../src/destination/destination.js';
import { completeDialect } from '../../src/dialect/complete-dialect.js';
import type { DialectDefinition } from '../../src/dialect/dialect.js';
import type { Lane, Limiter, QuotaUsage } from '../../src/destination/quota/limiter.js';
import { SlotsyncError } from '../../src/errors/errors.js';
import { startSandbox, type Sandbox, type SandboxOptions } from '../../src/sandbox/sandbox.js';
import type { ApiSettings } from '../../src/config/settings.js';
import { createObject } from '../../src/streams/destination-object.js';
import { drip, DRIPS, openDripping } from '../support/dripping.js';
import { findFreePort } from '../support/free-port.js';
import { settleAmidCollections } from '../support/garbage.js';
import { openWorld, type World } from '../support/world.js';

const KEY = 'key+5f0c/1e77';
const SCHEMA = { types: [{ extId: 'room' }], fields: [{ extId: 'room.name' }] };
const NIGHTLY = { lane: 'sync' } as const;
const CONFIG = {
  streams: {
    rooms: {
      from: 'rooms',
      key: 'code',
      type: 'room',
      externalId: '{code}',
      fields: { 'room.name': 'name' },
    },
  },
  service: { requestTimeoutMs: 300 },
};

let closers: (() => Promise<unknown>)[] = [];
let lines: string[] = [];
afterEach(async () => {
  for (const close of closers.reverse()) await close();
  closers = [];
  lines = [];
});

async function startService(options: SandboxOptions = {}): Promise<Sandbox> {
  const sandbox = await startSandbox({ rate: 0, apiKey: KEY, schema: SCHEMA, ...options });
  closers.push(() => sandbox.close());
  return sandbox;
}

const NO_LANES = { incremental: 0, sync: 0, backfill: 0, verify: 0 };
const UNUSED: QuotaUsage = {
  rate: 20,
  allowed: 20,
  held: 0,
  cooling: 0,
  free: 20,
  lanes: NO_LANES,
  waiting: NO_LANES,
  pausedMs: 0,
  granted: 0,
  throttled: 0,
  usedByOthers: 0,
};

/** Notes the client's calls of the limiter. Every request must ask it; the quota has tests of its own. */
function countingLimiter() {
  const asked = { lanes: [] as Lane[], throttled: [] as (number | undefined)[], held: 0, isUsable: true };
  const limiter: Pick<Limiter, 'take' | 'throttled' | 'usage'> = {
    async take(lane, signal) {
      signal?.throwIfAborted();
      asked.lanes.push(lane);
      asked.held++;
      return { usable: () => asked.isUsable, release: async () => void asked.held-- };
    },
    throttled: async (retryAfterMs) => void asked.throttled.push(retryAfterMs),
    usage: async () => ({ ...UNUSED, throttled: asked.throttled.length, allowed: 19, usedByOthers: 1 }),
  };
  return { asked, limiter: limiter as Limiter };
}

interface ConnectOptions {
  api?: Partial<ApiSettings>;
  timeoutMs?: number;
  pageSize?: number;
  tokenSeconds?: number;
  errorBodies?: 'json' | 'any';
  dialect?: DialectDefinition;
}

function connect(baseUrl: string, options: ConnectOptions = {}) {
  const { asked, limiter } = countingLimiter();
  const destination = createDestination({
    api: { baseUrl, key: KEY, organizationId: 'demo', region: 'EU_EES', ...options.api },
    limiter,
    log: pino({ level: 'trace' }, { write: (line: string) => void lines.push(line) }),
    prefix: '/v1',
    requestTimeoutMs: options.timeoutMs ?? 5000,
    lateWriteSeconds: 30,
    tokenSeconds: options.tokenSeconds ?? 300,
    pageSize: options.pageSize ?? 1000,
    errorBodies: options.errorBodies ?? 'json',
    dialect: completeDialect(options.dialect ?? {}, undefined),
  });
  closers.push(() => destination.close());
  return { destination, asked };
}

/** Starts the service, and a client of it. */
async function connectToService(service: SandboxOptions = {}, options: ConnectOptions = {}) {
  const sandbox = await startService(service);
  return { sandbox, ...connect(sandbox.url, options) };
}

const room = (extId: string) => createObject(extId, 'room', true, [['room.name', [extId]]]);
const put = (destination: Destination, ...extIds: string[]) =>
  destination.putObjects(extIds.map(room), NIGHTLY);

/** Returns the error of a call that must fail. Neither key nor token may stand anywhere in it or in the log. */
async function failureOf(call: Promise<unknown>): Promise<SlotsyncError> {
  const error = await call.then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  expect(error).toBeInstanceOf(SlotsyncError);
  expectNoSecrets(error);
  return error as SlotsyncError;
}

function expectNoSecrets(error: unknown): void {
  for (const text of [inspect(error, { depth: 10, showHidden: true }), ...lines]) {
    expect(text).not.toContain(KEY);
    expect(text).not.toMatch(/eyJ[\w-]+\./);
    expect(text).not.toMatch(/bearer/i);
  }
}

const count = (sandbox: Sandbox, end: string) =>
  sandbox.arrivals().filter(({ path }) => path.endsWith(end)).length;
const authentications = (sandbox: Sandbox) => count(sandbox, '/authenticate');

describe('the token', () => {
  it.each([401, 403] as const)(
    'is renewed once for all requests when the service answers %i',
    async (expiredStatus) => {
      const { sandbox, destination } = await connectToService({ expiredStatus });
      await put(destination, 'a');
      sandbox.revokeTokens();
      const results = await Promise.all(
        Array.from({ length: 20 }, (_, at) => put(destination, `room_${at}`)),
      );
      expect(results.every((result, at) => result.get(`room_${at}`)?.accepted)).toBe(true);
      expect(authentications(sandbox)).toBe(2);
    },
  );

  it.each([
    [401, '/objects', 'forbidden', /the right/],
    [403, '/objects', 'forbidden', /the right/],
    [401, 'all paths', 'unauthorized', /rights/],
    [403, 'all paths', 'unauthorized', /rights/],
  ])(
    'is renewed once, and if refused again with %i at %s, the error is %s',
    async (status, path, code, remedy) => {
      const sandbox = await startService();
      const refused = path === 'all paths' ? ['/objects', '/types/find', '/fields/find'] : [path];
      for (const of of refused)
        sandbox.failNext({ path: of, fault: 'status', status, times: 5, body: { message: 'not for you' } });
      const { destination } = connect(sandbox.url);
      const error = await failureOf(put(destination, 'a'));
      expect(error).toMatchObject({ code, disposition: 'dead', facts: { status } });
      expect(error.detail).toBe('not for you');
      expect(error.remedy).toMatch(remedy);
      expect(authentications(sandbox)).toBe(2);
      expect(count(sandbox, '/objects')).toBe(2);
    },
  );

  it.each([
    ['key', { key: 'wrong-key' }],
    ['region', { region: 'US' }],
    ['organization', { organizationId: 'other' }],
  ])('is not issued for a wrong %s, and every waiting call gets one clear error', async (_, api) => {
    const { sandbox, destination } = await connectToService({}, { api });
    const errors = await Promise.all([1, 2, 3].map((at) => failureOf(put(destination, `room_${at}`))));
    for (const error of errors) {
      expect(error).toMatchObject({ code: 'unauthorized', disposition: 'dead', facts: { status: 401 } });
      expect(error.remedy).toMatch(/API_KEY, API_ORGANIZATION_ID, API_REGION and API_BASE_URL/);
      expect(inspect(error)).not.toContain('wrong-key');
    }
    expect(sandbox.arrivals().map(({ path }) => path)).toEqual([
      expect.stringMatching(/^\/v1\/organizations\/(demo|other)\/api-keys\/authenticate$/),
    ]);
  });

  // test/unit/http-errors.test.ts has the meaning of every status, here and below.
  it.each([
    [400, { message: 'unknown region' }],
    [422, 'not accepted'],
  ])(
    'is refused with %i and the body %j because of the key, and no row is at fault',
    async (status, body) => {
      const { sandbox, destination } = await connectToService();
      sandbox.failNext({ path: '/authenticate', fault: 'status', status, body });
      const error = await failureOf(put(destination, 'a'));
      const message = `the service did not accept the key (${status})`;
      expect(error).toMatchObject({ code: 'unauthorized', message, facts: { status } });
      expect(error.remedy).toMatch(/API_REGION.* EU_EES, ANZ, SGP, UK/);
    },
  );

  it('is requested with the replaced key after a refusal and at each renewal', async () => {
    const sandbox = await startService({ apiKey: 'second-key' });
    const keys = ['first-key', 'second-key', 'third-key'];
    const { destination } = connect(sandbox.url, { api: { key: () => keys.shift() ?? 'third-key' } });
    await put(destination, 'a');
    expect(authentications(sandbox)).toBe(2);

    sandbox.setApiKey('third-key');
    sandbox.revokeTokens();
    await put(destination, 'b');
    expect(authentications(sandbox)).toBe(3);

    sandbox.setApiKey('fourth-key');
    sandbox.revokeTokens();
    const error = await failureOf(put(destination, 'c'));
    expect(error).toMatchObject({ code: 'unauthorized', facts: { status: 401 } });
    expect(authentications(sandbox)).toBe(4);
  });

  it('makes its answer invalid when it is missing', async () => {
    const { sandbox, destination } = await connectToService();
    sandbox.failNext({ fault: 'status', status: 200, body: { jwt: 'x' } });
    expect(await failureOf(put(destination, 'a'))).toMatchObject({
      code: 'answer_invalid',
      disposition: 'retry',
    });
  });
});

describe('an answer', () => {
  it('is retried by the client after 429, and its delays reach the limiter', async () => {
    const { sandbox, destination, asked } = await connectToService();
    sandbox.failNext({ path: '/objects', fault: 'status', status: 429, headers: { 'retry-after': '2' } });
    sandbox.failNext({ path: '/objects', fault: 'status', status: 429 });
    sandbox.failNext({ fault: 'status', status: 429 });
    const result = await put(destination, 'a');
    expect(result.get('a')).toMatchObject({ accepted: true });
    expect(count(sandbox, '/objects')).toBe(3);
    expect(asked.throttled).toEqual([undefined, 2000, undefined]);
    const warnings = lines.filter((line) =>
      line.includes('throttled: other programs may use part of the quota'),
    );
    expect(warnings).toHaveLength(3);
    expect(JSON.parse(warnings[2] ?? '')).toMatchObject({
      level: 40,
      throttled: 3,
      allowed: 19,
      usedByOthers: 1,
    });
    expectNoSecrets(undefined);
  });

  it('leaves the request to the queue after 429 without end, with the likely reason', async () => {
    const { sandbox, destination } = await connectToService();
    sandbox.failNext({ path: '/objects', fault: 'status', status: 429, times: 1000 });
    const error = await failureOf(put(destination, 'a'));
    expect(error).toMatchObject({ code: 'throttled', disposition: 'defer' });
    expect(error.remedy).toMatch(/API_REQUESTS_PER_SECOND/);
    expect(count(sandbox, '/objects')).toBeLessThanOrEqual(30);
  });

  it.each([
    ['hang', 'answer_lost'],
    ['reset', 'answer_lost'],
    ['loseAnswer', 'answer_lost'],
    ['brokenJson', 'answer_invalid'],
  ] as const)('lost to %s is the error %s, which the client does not retry', async (fault, code) => {
    const sandbox = await startService();
    // The others have time, however slow the machine is.
    const { destination, asked } = connect(sandbox.url, { timeoutMs: fault === 'hang' ? 2000 : 60_000 });
    await put(destination, 'first');
    sandbox.failNext({ path: '/objects', fault });
    const error = await failureOf(put(destination, 'a'));
    expect(error).toMatchObject({
      code,
      disposition: 'retry',
      facts: { method: 'PUT', path: '/v1/objects' },
    });
    expect(count(sandbox, '/objects')).toBe(2);
    // The service may still read a request that was given up: its slot is not released.
    expect(asked.held).toBe(fault === 'hang' ? 1 : 0);
    await put(destination, 'a');
    expect(sandbox.object('a')).toBeDefined();
  });

  it.each([
    [503, 'service_failed', 'retry'],
    [400, 'refused', 'dead'],
    [307, 'redirected', 'dead'],
  ])('becomes for status %i the error %s with the disposition %s', async (status, code, disposition) => {
    const { sandbox, destination } = await connectToService();
    const headers = { location: `${sandbox.url}/elsewhere` };
    const body = { message: 'because' };
    sandbox.failNext({ path: '/objects', fault: 'status', status, body, headers });
    const error = await failureOf(put(destination, 'a'));
    expect(error).toMatchObject({ code, disposition, facts: { method: 'PUT', path: '/v1/objects', status } });
    expect(error.detail).toBe('because');
    expect(error.message).not.toContain('because');
    expect(sandbox.arrivals().filter(({ path }) => path === '/elsewhere')).toEqual([]);
    expect(count(sandbox, '/objects')).toBe(1);
  });

  it.each([401, 429, 500, 200])(
    'is reported for status %i without the query of its request',
    async (status) => {
      const paths: string[] = [];
      const service = await fakeService(({ url = '' }) => {
        paths.push(url);
        return url.includes('/login') && status !== 401
          ? { status: 200, body: { token: 'of-a-session' } }
          : { status, body: { message: 'no' } };
      });
      const { destination } = connect(service, {
        dialect: {
          authenticate: { ask: ({ key }) => ({ method: 'POST', path: `/login?key=${key}`, headers: {} }) },
          find: { ask: () => ({ method: 'GET', path: '/objects?name=Ada%20Lovelace' }) },
        },
      });
      const error = await failureOf(destination.findObjects(['a'], 'room', NIGHTLY));
      expect(paths).toContain(status === 401 ? `/login?key=${KEY}` : '/v1/objects?name=Ada%20Lovelace');
      expect(inspect(error, { depth: 10, showHidden: true }) + lines.join('')).not.toMatch(/Lovelace|key=/);
    },
  );

  it('names with status 413 the setting that makes requests smaller', async () => {
    const { destination } = await connectToService({ maxObjects: 1 });
    const { remedy } = await failureOf(put(destination, 'a', 'b'));
    expect(remedy).toMatch(/^Set a smaller `batchSize`.*slotsync check$/);
  });

  it.each([404, 403, 200])(
    'is the error of a gateway with status %i and a page of HTML, without its text',
    async (status) => {
      const { sandbox, destination } = await connectToService();
      sandbox.failNext({ path: '/objects', fault: 'html', status, times: 'always' });
      const error = await failureOf(put(destination, 'a'));
      expect(error).toMatchObject({
        code: 'gateway_answered',
        disposition: 'retry',
        message: `PUT /v1/objects answered ${status}, and the body is not the service’s JSON`,
        facts: { method: 'PUT', path: '/v1/objects', status },
        detail: undefined,
      });
      expect(inspect(error, { depth: 10, showHidden: true })).not.toMatch(/html|title/i);
      expect(count(sandbox, '/objects')).toBe(status === 403 ? 2 : 1);
    },
  );

  it('renews the token with status 403 and a page of HTML', async () => {
    const { sandbox, destination } = await connectToService();
    sandbox.failNext({ path: '/objects', fault: 'html', status: 403 });
    expect((await put(destination, 'a')).get('a')).toMatchObject({ accepted: true });
    expect(authentications(sandbox)).toBe(2);
  });

  it('is the error of a gateway with a page of HTML instead of a token, and the next call succeeds', async () => {
    const { sandbox, destination } = await connectToService();
    sandbox.failNext({ path: '/authenticate', fault: 'html', status: 503 });
    const error = await failureOf(put(destination, 'a'));
    expect(error).toMatchObject({ code: 'gateway_answered', facts: { status: 503 } });
    expect(error.remedy).toContain('API_BASE_URL');
    await put(destination, 'a');
    expect(sandbox.object('a')).toBeDefined();
  });

  it('counts without JSON as the service’s own with errorBodies: any, and is cut', async () => {
    const service = await fakeService(() => ({ status: 400, body: `room ${'x'.repeat(9000)}` }));
    const error = await failureOf(put(connect(service, { errorBodies: 'any' }).destination, 'a'));
    expect(error).toMatchObject({ code: 'refused', facts: { status: 400 } });
    expect(error.detail).toHaveLength(500);
    expect(error.message.length).toBeLessThan(100);
  });

  it('shows whether errors are JSON when a find must be refused', async () => {
    const sandbox = await startService();
    expect(await connect(sandbox.url).destination.probeErrors(NIGHTLY)).toBe('json');
    const { destination: any } = connect(sandbox.url, { errorBodies: 'any' });
    expect(await any.probeErrors(NIGHTLY)).toBeUndefined();
    const plain = await fakeService(() => ({ status: 400, body: 'unknown idFormat' }));
    expect(await connect(plain).destination.probeErrors(NIGHTLY)).toBe('other');
    const lenient = await fakeService(() => findAnswer([], { totalPages: 1, totalResults: 0 }));
    expect(await connect(lenient).destination.probeErrors(NIGHTLY)).toBeUndefined();
  });

  it('is an error that names what is missing if its shape is unknown', async () => {
    const { sandbox, destination } = await connectToService();
    sandbox.failNext({
      path: '/objects',
      fault: 'status',
      status: 200,
      body: { results: [{ extId: 'a', status: 'ok' }] },
    });
    const error = await failureOf(put(destination, 'a'));
    expect(error).toMatchObject({ code: 'answer_invalid', disposition: 'retry' });
    expect(error.message).toContain('results.0.status');
    expect(error.remedy).toContain('slotsync check');
  });

  const base64 = (text: string) => Buffer.from(text).toString('base64');
  it.each([
    ['as it is', KEY],
    ['with its scheme', `Authorization: Api-Key ${KEY}`],
    ['escaped in JSON', String.raw`key\u002B5f0c\/1e77`],
    ['escaped in JSON within JSON', String.raw`key\\u002b5f0c\\\/1e77`],
    ['in an address', encodeURIComponent(KEY)],
    ['in base64', base64(KEY)],
    ['in base64 with its scheme', base64(`Api-Key ${KEY}`)],
    ['at the place where it is cut', 'x'.repeat(485) + KEY],
  ])('is reported without the key that it repeats (%s)', async (_, text) => {
    for (const [body, errorBodies] of [
      [`{"message":"${text} is wrong"}`, 'json'],
      [`["${text} is wrong"]`, 'json'],
      [`cannot read ${text} here`, 'any'],
    ] as const) {
      const service = await fakeService(() => ({ status: 400, body }));
      const { detail } = await failureOf(put(connect(service, { errorBodies }).destination, 'a'));
      expect(detail).toMatch(/\[se/);
      for (const part of ['key', '5f0c', '1e77', 'Api-Key', base64('key').slice(0, 4)])
        expect(detail).not.toContain(part);
    }
    const item = `{"results":[{"extId":"a","status":400,"message":"no:\n${text}"}]}`.replace('\n', '\\n');
    const service = await fakeService(() => ({ status: 207, body: item }));
    const refused = (await put(connect(service).destination, 'a')).get('a');
    expect(JSON.stringify(refused)).toMatch(/no: .*\[se/);
    expect(JSON.stringify(refused)).not.toMatch(/key|5f0c|1e77/);
  });

  it('is reported without the token that it repeats', async () => {
    const service = await fakeService(({ headers }) => ({
      status: 400,
      body: { message: `cannot read ${headers.authorization}, nor its token` },
    }));
    const { detail } = await failureOf(put(connect(service).destination, 'a'));
    expect(detail).toBe('cannot read [secret], nor its token');
  });

  it('keeps a value that holds the token or the key when it is a success', async () => {
    const value = `Aula ${KEY} and hall`;
    const service = await fakeService(
      () => ({
        status: 200,
        body: {
          results: [{ id: 1, extId: 'Aula', fields: [{ fieldId: 'hall', values: [value] }] }],
          totalPages: 1,
          totalResults: 1,
        },
      }),
      'Aula',
    );
    const found = await connect(service).destination.findObjects(['Aula'], 'room', NIGHTLY);
    expect(found.get('Aula')).toMatchObject({
      extId: 'Aula',
      fields: [{ fieldId: 'hall', values: [value] }],
    });
  });

  it('is reported without its text if it is half a document', async () => {
    const service = await fakeService(() => ({ status: 200, body: `{"results": ${KEY}` }));
    const error = await failureOf(put(connect(service).destination, 'a'));
    expect(error.code).toBe('answer_invalid');
    expect(error.cause).toBeUndefined();
  });

  it('becomes `service_unreachable` if nobody listens', async () => {
    const { destination } = connect(`http://127.0.0.1:${await findFreePort()}`);
    const error = await failureOf(put(destination, 'a'));
    expect(error).toMatchObject({
      code: 'service_unreachable',
      disposition: 'retry',
      facts: { reason: 'ECONNREFUSED' },
    });
    expect(error.remedy).toContain('API_BASE_URL');
  });

  it('ends with the reason of the signal that aborts it', async () => {
    const { sandbox, destination, asked } = await connectToService();
    await put(destination, 'first');
    sandbox.failNext({ path: '/objects', fault: 'hang' });
    const stopping = new AbortController();
    const call = destination.putObjects([room('a')], { ...NIGHTLY, signal: stopping.signal });
    await expect.poll(() => count(sandbox, '/objects')).toBe(2);
    stopping.abort(new Error('the worker is stopping'));
    await expect(call).rejects.toThrow('the worker is stopping');
    expect(asked.held).toBe(1);
  });
});

describe('an answer without end', () => {
  it.each(Object.entries(DRIPS))(
    'is given up at its timeout while its %s drips, despite garbage collection',
    async (part, answer) => {
      const url = await fakeService((_request, _body, response) => {
        if (response.socket) drip(response.socket, answer);
      });
      const { destination, asked } = connect(url, { timeoutMs: 3000 });
      const { signal } = new AbortController();
      const ended = await settleAmidCollections(destination.putObjects([room('a')], { ...NIGHTLY, signal }));
      expect(ended).toMatchObject({ reason: { code: 'answer_lost', facts: { reason: 'timeout' } } });
      expect(asked.held).toBe(part === 'head' ? 1 : 0);
    },
  );

  it.each(Object.entries(DRIPS))(
    'is given up at its timeout while its %s drips in an authentication, despite collections',
    async (part, answer) => {
      const service = await openDripping(answer);
      closers.push(service.close);
      const { destination, asked } = connect(service.url, { timeoutMs: 3000 });
      const ended = await settleAmidCollections(put(destination, 'a'));
      expect(ended).toMatchObject({ reason: { code: 'answer_lost', facts: { reason: 'timeout' } } });
      expect(asked.held).toBe(part === 'head' ? 1 : 0);
      await expect.poll(service.openCount).toBe(0);
    },
  );

  /** Sends `head` and then `part` for as long as the client takes it, in chunks without a length. */
  async function endlessService(status: number, head: string, part: string) {
    const sent = { bytes: 0, isClosed: false };
    const chunk = Buffer.from(part.repeat(Math.ceil(65_536 / part.length)));
    const url = await fakeService((_request, _body, response) => {
      response.writeHead(status, { 'content-type': 'application/json' });
      response.write(head);
      const push = () => {
        // No test takes more than this from the machine, whatever the client does.
        while (!response.destroyed && sent.bytes < 1024 * MB) {
          sent.bytes += chunk.length;
          if (!response.write(chunk)) return;
        }
        response.end();
      };
      response.on('drain', push).on('close', () => (sent.isClosed = true));
      push();
    });
    return { url, sent };
  }
  const MB = 1024 * 1024;
  /** Bytes that sockets and streams hold between client and service. */
  const IN_BUFFERS = 16 * MB;

  it.each([
    ['body', 200, '{"results":[', ' ', 64, 'answer_too_large'],
    ['body of an error', 500, '{"message":"', 'x', 1, 'gateway_answered'],
    ['body of a page of HTML', 404, '<html>', '<p>', 1, 'gateway_answered'],
  ])(
    'is read up to its limit in its %s with status %i, and its connection is closed',
    async (_, status, head, part, mb, code) => {
      const { url, sent } = await endlessService(status, head, part);
      const { destination, asked } = connect(url, { timeoutMs: 60_000 });
      expect(await failureOf(put(destination, 'a'))).toMatchObject({ code });
      await expect.poll(() => sent.isClosed).toBe(true);
      expect(sent.bytes).toBeLessThan(mb * MB + IN_BUFFERS);
      expect(asked.held).toBe(0);
    },
  );

  it.each([
    ['a success', 200, 'answer_invalid', /nested more than 100 levels/],
    ['an error', 400, 'gateway_answered', /not the service’s JSON/],
  ])('is not parsed if %s has too many levels of JSON', async (_, status, code, message) => {
    const [open, close] = ['{"a":['.repeat(100_000), ']}'.repeat(100_000)];
    const service = await fakeService(() => ({ status, body: open + close }));
    const error = await failureOf(put(connect(service).destination, 'a'));
    expect(error).toMatchObject({ code, message: expect.stringMatching(message) });
  });

  it('holds no token if no header can carry the token', async () => {
    for (const token of ['x'.repeat(20_000), 'a\nb', 'tökèn…']) {
      const service = await fakeService(() => findAnswer([], {}), token);
      const error = await failureOf(put(connect(service).destination, 'a'));
      expect(error.message).toContain('it holds no token');
    }
  });
});

describe('a find', () => {
  it('is halved while its answer by names is too large, and notes or reports a single large name', async () => {
    const asked: string[][] = [];
    const service = await fakeService((_, body) => {
      const { extIds } = body as unknown as { extIds: string[] };
      asked.push(extIds);
      if (extIds.length > 2 || extIds.includes('large')) return { status: 200, body: MANY_VALUES };
      return findAnswer(extIds, { totalPages: 1, totalResults: extIds.length });
    });
    const { destination } = connect(service);
    const unreadable: Unreadable = new Map();
    const names = ['a', 'b', 'c', 'large', 'd'];
    const found = await destination.findObjects(names, 'room', NIGHTLY, unreadable);
    expect([...found.keys()]).toEqual(['a', 'b', 'c', 'd']);
    expect([...unreadable.keys()]).toEqual(['large']);
    expect(asked.map(({ length }) => length)).toEqual([5, 3, 2, 1, 2, 1, 1]);
    const error = await failureOf(destination.findObjects(names, 'room', NIGHTLY));
    expect(error).toMatchObject({ code: 'answer_too_large', detail: "'large'" });
  });

  it.each([
    [414, '<html>'],
    [431, { message: 'too long' }],
  ])('asks for fewer names from then on after a request was too large (%i)', async (status, body) => {
    const asked: number[] = [];
    const service = await fakeService(({ url = '' }) => {
      const names = [...new URL(url, 'http://service').searchParams.keys()];
      asked.push(names.length);
      if (names.length > 10) return { status, body };
      return findAnswer([], {
        results: names.map((extId) => ({ id: Number(extId.slice(1)), extId, fields: [] })),
        totalPages: 1,
      });
    });
    const { destination } = connect(service, {
      dialect: {
        find: {
          ask({ filter }) {
            const names = filter.by === 'extIds' ? filter.extIds : [];
            return { method: 'GET', path: `/objects?${names.join('&')}` };
          },
        },
      },
    });
    const names = Array.from({ length: 1000 }, (_, at) => `a${at + 1}`);
    expect((await destination.findObjects(names, 'room', NIGHTLY)).size).toBe(1000);
    expect(asked.filter((count) => count > 10)).toEqual([1000, 500, 250, 125, 63, 32, 16]);
    asked.length = 0;
    await destination.findObjects(names, 'room', NIGHTLY);
    expect(asked).toHaveLength(125);
  });

  it('is given up when its answers by names together are too large for the memory', async () => {
    let whole = 0;
    const service = await fakeService((_, body) => {
      const { extIds } = body as unknown as { extIds: string[] };
      if (extIds.length > 1) return { status: 200, body: MANY_VALUES };
      whole++;
      const { status, body: found } = findAnswer(extIds, { totalPages: 1, totalResults: 1 });
      return { status, body: JSON.stringify(found) + ' '.repeat(60 * 1024 * 1024) };
    });
    const names = ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'];
    const error = await failureOf(
      connect(service, { timeoutMs: 60_000 }).destination.findObjects(names, 'room', NIGHTLY, new Map()),
    );
    expect(error).toMatchObject({
      code: 'answer_too_large',
      message: expect.stringContaining('its results together have more than 256 MB'),
    });
    expect(whole).toBe(5);
  });

  it('is retried by a patient reader until its signal ends it', async () => {
    const sandbox = await startService();
    const { patient } = connect(sandbox.url).destination;
    sandbox.failNext({ path: '/authenticate', fault: 'status', status: 503 });
    sandbox.failNext({ path: '/find', fault: 'html', status: 502 });
    expect(await patient.findTypes(NIGHTLY)).toHaveLength(1);

    sandbox.failNext({ path: '/find', fault: 'status', status: 400 });
    expect(await failureOf(patient.findTypes(NIGHTLY))).toMatchObject({ code: 'refused' });

    sandbox.failNext({ path: '/find', fault: 'status', status: 500, times: 'always' });
    const reason = new Error('interrupted');
    const ending = new AbortController();
    const reading = patient.findTypes({ ...NIGHTLY, signal: ending.signal });
    setTimeout(() => ending.abort(reason), 100);
    await expect(reading).rejects.toBe(reason);
  });

  it('fails a patient reader at once at an address that never answered', async () => {
    const { patient } = connect(`http://127.0.0.1:${await findFreePort()}`).destination;
    const startedAt = performance.now();
    expect(await failureOf(patient.findTypes(NIGHTLY))).toMatchObject({ code: 'service_unreachable' });
    expect(performance.now() - startedAt).toBeLessThan(900);
  });
});

describe('the quota', () => {
  it('is asked for every request, in the lane of its caller', async () => {
    const { sandbox, destination, asked } = await connectToService();
    await destination.putObjects([room('a')], { lane: 'backfill' });
    sandbox.revokeTokens();
    await destination.findObjects(['a'], 'room', { lane: 'verify' });
    expect(asked.lanes).toEqual(['incremental', 'backfill', 'verify', 'incremental', 'verify']);
    expect(asked.lanes).toHaveLength(sandbox.arrivals().length);
    expect(asked.held).toBe(0);
    expect(destination.requests()).toBe(sandbox.arrivals().length);
  });

  it('is asked again when the preparation of a request outlasts its slot', async () => {
    const { sandbox, destination, asked } = await connectToService();
    await put(destination, 'a');
    sandbox.clearArrivals();
    asked.lanes = [];
    const request = destination.openPut(NIGHTLY);
    await request.takeSlot();
    asked.isUsable = false;
    expect([await request.send([room('b')]), count(sandbox, '/objects')]).toEqual([undefined, 0]);
    asked.isUsable = true;
    await request.takeSlot();
    expect((await request.send([room('b')]))?.size).toBe(1);
    expect({ slots: asked.lanes.length, held: asked.held }).toEqual({ slots: 2, held: 0 });
    expect(count(sandbox, '/objects')).toBe(1);
  });

  it('gets back a slot with which nothing was sent', async () => {
    const { sandbox, destination, asked } = await connectToService();
    const request = destination.openPut(NIGHTLY);
    await request.takeSlot();
    expect(asked.held).toBe(1);
    request.end();
    expect([asked.held, count(sandbox, '/objects')]).toEqual([0, 0]);
  });

  it('learns of a 429 through the store that all processes share', async () => {
    const world: World = await openWorld(CONFIG);
    closers.push(() => world.close());
    world.sandbox.failNext({ path: '/types/find', fault: 'status', status: 429 });
    await world.destination.findTypes(NIGHTLY);
    await expect.poll(() => world.limiter.usage()).toMatchObject({ throttled: 1, held: 0 });
  });
});

/** More values than the client parses in one answer. */
const MANY_VALUES = `{"results":[${'0,'.repeat(4_000_000)}0]}`;

interface FakeAnswer {
  status: number;
  body: unknown;
}

/** Starts a service that misbehaves as the sandbox cannot. It authenticates, and answers the rest as the test says. */
async function fakeService(
  answer: (request: IncomingMessage, body: { page: number }, response: ServerResponse) => FakeAnswer | void,
  token = `eyJhbGciOiJub25lIn0.${Buffer.from('{"sub":"demo"}').toString('base64url')}.x`,
): Promise<string> {
  const server = createServer((request, response) => {
    void (async () => {
      let text = '';
      for await (const chunk of request) text += chunk;
      const authenticates = request.url?.endsWith('/authenticate') === true;
      const given = authenticates
        ? { status: 200, body: { token } }
        : answer(request, JSON.parse(text || '{}') as { page: number }, response);
      if (given === undefined) return;
      const { status, body } = given;
      response.writeHead(status, { 'content-type': 'application/json' });
      response.end(typeof body === 'string' ? body : JSON.stringify(body));
    })();
  });
  // Its process may be busy for seconds with a large answer: a connection is not closed for that.
  server.keepAliveTimeout = 0;
  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', resolve);
  });
  closers.push(
    () =>
      new Promise((resolve) => {
        server.close(resolve);
        server.closeAllConnections();
      }),
  );
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

function findAnswer(extIds: readonly string[], envelope: object): FakeAnswer {
  const results = extIds.map((extId) => ({
    id: extId.charCodeAt(0),
    extId,
    typeId: 'room',
    active: true,
    fields: [],
  }));
  return { status: 200, body: { results, page: 1, ...envelope } };
}
