// Connections to the service: direct or through a proxy, with a certificate of a public or a private authority. A failure
// before the request is written reports that nothing was sent.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer as createHttpServer, type IncomingMessage } from 'node:http';
import { connect as connectTcp, createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { text as readText } from 'node:stream/consumers';
import { createServer as createTlsServer } from 'node:tls';
import { inspect } from 'node:util';
import { pino } from 'pino';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { DEFAULT_DIALECT } from '../../src/dialect/complete-dialect.js';
import { createClient } from '../../src/destination/client.js';
import type { Limiter } from '../../src/destination/quota/limiter.js';
import { SlotsyncError } from '../../src/errors/errors.js';
import { startSandbox, type Sandbox } from '../../src/sandbox/sandbox.js';
import type { ApiSettings } from '../../src/config/settings.js';
import { createAuthority, type Authority } from '../support/certificates.js';
import { drip, DRIPS } from '../support/dripping.js';
import { endWithTests } from '../support/child-processes.js';
import type { Env } from '../support/program.js';
import { findFreePort } from '../support/free-port.js';
import { settleAmidCollections } from '../support/garbage.js';

const PASSWORD = 'p@ss word';
const CREDENTIALS = `proxy-user:${encodeURIComponent(PASSWORD)}`;
const PROXY_AUTHORIZATION = `Basic ${Buffer.from(`proxy-user:${PASSWORD}`).toString('base64')}`;

let authority: Authority | undefined;
let sandbox: Sandbox;
let closers: (() => unknown)[] = [];
beforeAll(async () => {
  authority = await createAuthority().catch(() => undefined);
  sandbox = await startSandbox({ rate: 0 });
});
afterEach(() => {
  for (const close of closers.splice(0).reverse()) close();
});
afterAll(async () => {
  await sandbox.close();
  await authority?.remove();
});

/** Listens on a port of this machine until the test ends. */
async function listen(server: Server): Promise<number> {
  const sockets = new Set<Socket>();
  server.on('connection', (socket: Socket) => {
    sockets.add(socket.on('error', () => undefined).on('close', () => sockets.delete(socket)));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  closers.push(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return (server.address() as AddressInfo).port;
}

/** Starts the sandbox behind https, with a certificate of the private authority. */
async function startTls(): Promise<number> {
  const { cert, key } = (await authority?.issue('service', ['DNS:service.test', 'DNS:localhost'])) ?? {};
  const options = { cert: readFileSync(cert ?? ''), key: readFileSync(key ?? '') };
  const server = createTlsServer(options, (socket) => {
    const behind = connectTcp(Number(new URL(sandbox.url).port), '127.0.0.1');
    behind.on('error', () => undefined);
    socket.on('error', () => undefined).on('close', () => behind.destroy());
    socket.pipe(behind).pipe(socket);
  });
  return listen(server);
}

/** Starts a proxy that connects every client with the password to one port, whatever host the client asks for. */
async function startProxy(port: number) {
  const asked: string[] = [];
  const proxy = createHttpServer();
  proxy.on('connect', ({ url = '', headers }: IncomingMessage, socket: Socket) => {
    asked.push(url);
    if (headers['proxy-authorization'] !== PROXY_AUTHORIZATION) {
      socket.end('HTTP/1.1 407 Proxy Authentication Required\r\n\r\n');
      return;
    }
    const service = connectTcp(port, '127.0.0.1').on('error', () => undefined);
    socket.on('error', () => undefined).on('close', () => service.destroy());
    socket.write('HTTP/1.1 200 Connection established\r\n\r\n');
    socket.pipe(service).pipe(socket);
  });
  return { port: await listen(proxy), asked };
}

const limiter = {
  take: async () => ({ usable: () => true, release: async () => undefined }),
} as unknown as Limiter;

/** Returns the error of a request for a token. */
async function failureOf(api: Pick<ApiSettings, 'baseUrl' | 'proxy'>): Promise<SlotsyncError> {
  const client = createClient({
    api: { key: 'sandbox-key', organizationId: 'demo', region: 'EU_EES', ...api },
    limiter,
    log: pino({ level: 'silent' }),
    dialect: DEFAULT_DIALECT,
    prefix: '/v1',
    requestTimeoutMs: 10_000, // a step has half of it, and seconds remain on a busy machine
    tokenSeconds: 300,
    errorBodies: 'json',
  });
  closers.push(client.close);
  const ended = await settleAmidCollections(client.authenticate());
  const error: unknown = ended.status === 'rejected' ? ended.reason : undefined;
  expect(error).toBeInstanceOf(SlotsyncError);
  for (const secret of [PASSWORD, CREDENTIALS, PROXY_AUTHORIZATION])
    expect(inspect(error, { depth: 10, showHidden: true })).not.toContain(secret);
  return error as SlotsyncError;
}

const closes = () => createServer((socket) => socket.destroy());
const silent = () => createServer(() => undefined);
const drips = () => createServer((socket) => drip(socket, DRIPS.head));
const refusesAtLength = () => {
  const first = DRIPS.body.first.replace('200 OK', '407 Proxy Authentication Required');
  return createServer((socket) => drip(socket, { ...DRIPS.body, first }));
};
/** Reads a part of the request, so that something was sent, and then breaks the connection. */
const breaks = () => createServer((socket) => socket.once('data', () => socket.resetAndDestroy()));
const answersHttp = () => createHttpServer((_, response) => response.end('{}'));

const https = (port: number) => ({ baseUrl: `https://127.0.0.1:${port}` });
const http = (port: number) => ({ baseUrl: `http://127.0.0.1:${port}` });
const through = (port: number) => ({
  baseUrl: 'https://service.test',
  proxy: { url: `http://${CREDENTIALS}@127.0.0.1:${port}`, except: 'elsewhere.test' },
});

describe('a request that was not written', () => {
  it.each([
    ['https to a port that speaks http', answersHttp, https, /ERR_SSL|EPROTO/, /port in API_BASE_URL/],
    ['a connection that ends in the handshake', closes, https, /ECONNRESET|UND_ERR_SOCKET/, /API_BASE_URL/],
    ['a handshake that is not answered', silent, https, /timeout|TIMEOUT/, /API_BASE_URL/],
    ['a proxy that closes', closes, through, /proxy does not connect.*\(/, /HTTPS_PROXY/],
    ['a proxy whose answer drips', drips, through, /proxy does not connect.*TIMEOUT/, /HTTPS_PROXY/],
    ['a proxy whose refusal drips', refusesAtLength, through, /it answered 407/, /HTTPS_PROXY/],
    ['a proxy that says nothing', silent, through, /proxy does not connect.*TIMEOUT/, /HTTPS_PROXY/],
  ])('reports that nothing was sent: %s', async (_, create, way, message, remedy) => {
    const error = await failureOf(way(await listen(create())));
    expect(error).toMatchObject({ code: 'service_unreachable', remedy: expect.stringMatching(remedy) });
    expect(error.message).toMatch(message);
    expect(error.message).toMatch(/; nothing was sent$/);
  });

  it('names the setting of a proxy that does not listen or that requires a password', async () => {
    const refused = await failureOf(through(await findFreePort()));
    expect(refused.message).toBe(
      'the proxy does not connect to the service (ECONNREFUSED); nothing was sent',
    );
    const { port, asked } = await startProxy(0);
    const { proxy, ...way } = through(port);
    const wrong = { ...proxy, url: `http://proxy-user:wrong@127.0.0.1:${port}` };
    const unauthorized = await failureOf({ ...way, proxy: wrong });
    expect(unauthorized).toMatchObject({
      code: 'service_unreachable',
      message: 'the proxy does not connect to the service (it answered 407); nothing was sent',
      remedy: expect.stringContaining('HTTPS_PROXY'),
    });
    expect(asked).toEqual(['service.test:443']);
  });
});

it('a read without an answer does not say that the service may have carried it out', async () => {
  const error = await failureOf(http(await listen(breaks())));
  expect(error.code).toBe('answer_lost');
  expect(error.message).toMatch(/no answer arrived \(\w+\)$/);
});

it('a request over plain http is never sent to a proxy', async () => {
  const { port, asked } = await startProxy(0);
  expect(await failureOf({ ...through(port), ...http(await findFreePort()) })).toMatchObject({
    facts: { reason: 'ECONNREFUSED' },
  });
  expect(asked).toEqual([]);
});

/** Asks for a token with each of these settings in a process of its own, because Node reads authorities only at its start. */
async function authenticate(settings: Env[], authorities: Env = {}): Promise<string[]> {
  const dist = (file: string) => JSON.stringify(new URL(`../../dist/${file}`, import.meta.url));
  const script = `
    const { loadSettings } = await import(${dist('config/settings.js')});
    const { createClient } = await import(${dist('destination/client.js')});
    const { DEFAULT_DIALECT: dialect } = await import(${dist('dialect/complete-dialect.js')});
    const ask = async (env) => {
      const client = createClient({
        api: loadSettings(['api'], { API_KEY: 'sandbox-key', API_ORGANIZATION_ID: 'demo', ...env }).api,
        limiter: { take: async () => ({ usable: () => true, release: async () => undefined }) },
        dialect, prefix: '/v1', requestTimeoutMs: 60_000, tokenSeconds: 300, errorBodies: 'json',
      });
      const said = await client.authenticate().then(
        (token) => 'token ' + token.length,
        ({ code, message, remedy }) => [code, message, remedy].join('\\n'),
      );
      await client.close();
      return said;
    };
    console.log(JSON.stringify(await Promise.all(${JSON.stringify(settings)}.map(ask))));`;
  const env = { PATH: process.env['PATH'], ...authorities };
  const child = spawn(process.execPath, ['--input-type=module', '-e', script], { env });
  endWithTests(child);
  const [stdout, stderr] = await Promise.all([readText(child.stdout), readText(child.stderr)]);
  expect(stderr).toBe('');
  return JSON.parse(stdout) as string[];
}

describe('a certificate of a private authority', () => {
  it('is trusted with NODE_EXTRA_CA_CERTS, directly and through a proxy', async (test) => {
    if (!authority) return test.skip('openssl is not there');
    const port = await startTls();
    const { port: proxyPort, asked } = await startProxy(port);
    const [straight, proxied] = [`https://localhost:${port}`, 'https://service.test'];
    const proxy = `http://${CREDENTIALS}@127.0.0.1:${proxyPort}`;

    const nowhere = 'http://127.0.0.1:9';
    const [unknown = ''] = await authenticate([{ API_BASE_URL: straight }]);
    const [otherName = '', ...known] = await authenticate(
      [
        { API_BASE_URL: `https://127.0.0.1:${port}` },
        { API_BASE_URL: straight },
        { API_BASE_URL: straight, HTTPS_PROXY: nowhere },
        { API_BASE_URL: proxied, HTTPS_PROXY: proxy },
        { API_BASE_URL: proxied, https_proxy: proxy, HTTPS_PROXY: nowhere },
      ],
      { NODE_EXTRA_CA_CERTS: authority.ca },
    );
    expect(unknown).toMatch(/^service_unreachable\n.*nothing was sent\n.*NODE_EXTRA_CA_CERTS/);
    expect(known).toEqual(Array(4).fill(expect.stringMatching(/^token \d+$/)));
    expect(otherName).toMatch(/^service_unreachable\n.*ALTNAME.*\n.*another name/);
    expect(asked).toEqual(['service.test:443', 'service.test:443']);
  });

  it('is received over a direct connection from a host in NO_PROXY', async (test) => {
    if (!authority) return test.skip('openssl is not there');
    const port = await startTls();
    const { port: proxyPort, asked } = await startProxy(port);
    const { proxy } = through(proxyPort);
    const error = await failureOf({ ...https(port), proxy: { ...proxy, except: 'a.test, 127.0.0.1' } });
    expect(error.remedy).toContain('NODE_EXTRA_CA_CERTS');
    expect(asked).toEqual([]);
    await failureOf({ ...https(port), proxy });
    expect(asked).toEqual([`127.0.0.1:${port}`]);
  });
});
